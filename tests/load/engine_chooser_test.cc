#include "load/engine_chooser.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "load/load_window.h"

namespace icache {
namespace {

LoadWindow Loads(const std::vector<int64_t>& loads) {
  LoadWindow window(loads.size(), 1000);
  for (size_t engine = 0; engine < loads.size(); ++engine) window.Add(engine, loads[engine]);
  return window;
}

TEST(LoadWindowTest, ForgetsWorkAfterTheWindow) {
  LoadWindow window(2, 1000);
  window.AdvanceTo(100);
  window.Add(0, 7);
  window.AdvanceTo(600);
  window.Add(0, 5);
  window.AdvanceTo(1099);
  EXPECT_EQ(window.load(0), 12);
  window.AdvanceTo(1100);
  EXPECT_EQ(window.load(0), 5);
  window.AdvanceTo(1600);
  EXPECT_EQ(window.load(0), 0);
}

TEST(LoadWindowTest, TheCapIsAMultipleOfTheMean) {
  const LoadWindow window = Loads({125, 126, 49});  // mean 100
  EXPECT_FALSE(window.IsOverCap(0, 1.25));
  EXPECT_TRUE(window.IsOverCap(1, 1.25));
  EXPECT_FALSE(window.IsOverCap(2, 1.25));
}

TEST(LoadWindowTest, NobodyIsOverTheCapWhenNobodyHasWork) { EXPECT_FALSE(Loads({0, 0}).IsOverCap(0, 1)); }

// A chooser that has given every engine its first request.
EngineChooser Introduced(double load_cap, size_t engines) {
  EngineChooser chooser(load_cap);
  const LoadWindow idle(engines, 1000);
  for (size_t i = 0; i < engines; ++i) chooser.Choose({}, idle);
  return chooser;
}

TEST(EngineChooserTest, GivesEveryEngineOneRequestFirst) {
  EngineChooser chooser(1.25);
  const LoadWindow loads = Loads({0, 100, 0});
  EXPECT_EQ(chooser.Choose({{.engine = 2, .worth = 9}}, loads), 0u);
  EXPECT_EQ(chooser.Choose({{.engine = 2, .worth = 9}}, loads), 1u);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 9}}, loads), 2u);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 9}}, loads), 0u);
}

TEST(EngineChooserTest, TakesTheEngineWorthMost) {
  EngineChooser chooser = Introduced(1.25, 3);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 1}, {.engine = 2, .worth = 3}, {.engine = 1, .worth = 2}},
                           Loads({10, 10, 10})),
            2u);
}

TEST(EngineChooserTest, PassesOverAnEngineAboveTheLoadCap) {
  EngineChooser chooser = Introduced(1.25, 3);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 3}, {.engine = 1, .worth = 1}}, Loads({20, 10, 10})), 1u);
}

TEST(EngineChooserTest, OfEqualsTakesTheLeastLoadedThenTheLowest) {
  EngineChooser chooser = Introduced(2, 2);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 1}, {.engine = 1, .worth = 1}}, Loads({11, 10})), 1u);
  EXPECT_EQ(chooser.Choose({{.engine = 1, .worth = 1}, {.engine = 0, .worth = 1.000001}}, Loads({10, 10})), 0u);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 1.001}, {.engine = 1, .worth = 1}}, Loads({11, 10})), 0u);
}

TEST(EngineChooserTest, WithoutARankingTakesTurnsAmongThoseUnderTheCap) {
  EngineChooser chooser = Introduced(1.25, 3);
  const LoadWindow loads = Loads({10, 20, 10});
  EXPECT_EQ(chooser.Choose({}, loads), 0u);
  EXPECT_EQ(chooser.Choose({}, loads), 2u);
  EXPECT_EQ(chooser.Choose({}, loads), 0u);
}

TEST(EngineChooserTest, TakesTurnsWhenAllThatIsRankedIsAboveTheCap) {
  EngineChooser chooser = Introduced(1.25, 3);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 1}}, Loads({20, 0, 0})), 1u);
  EXPECT_EQ(chooser.Choose({{.engine = 0, .worth = 1}}, Loads({20, 0, 0})), 2u);
}

TEST(EngineChooserTest, BlindToLoadSeesNeitherCapNorLoad) {
  EngineChooser chooser(std::nullopt);
  EXPECT_EQ(chooser.Choose({{.engine = 1, .worth = 1}, {.engine = 0, .worth = 1}}, Loads({100, 0})), 0u);
  EXPECT_EQ(chooser.Choose({}, Loads({100, 0})), 0u);
  EXPECT_EQ(chooser.Choose({}, Loads({100, 0})), 1u);
}

}  // namespace
}  // namespace icache
