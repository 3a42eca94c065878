// A LookupRouteRequest off the wire, answered by the router: whatever it holds, the answer must be well-formed.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "icache/routing/router.h"
#include "icache/rpc/conversions.h"
#include "tests/fuzz/fuzz_index.h"
#include "tests/testing/fake_clock.h"

namespace icache {
namespace {

void Check(const LookupRequest& request, const LookupAnswer& answer) {
  using testing::Require;
  const bool hint = answer.reason == ReasonCode::kPrefixMatch || answer.reason == ReasonCode::kTenantHot ||
                    answer.reason == ReasonCode::kAffinityHint;
  Require(hint == !answer.rows.empty(), "rows and reason disagree");
  Require(request.max_replicas <= 0 || answer.rows.size() <= static_cast<size_t>(request.max_replicas),
          "too many rows");
  Require(answer.adapter_id.empty() || answer.adapter_id == request.adapter_id, "another adapter");
  for (size_t i = 0; i < answer.rows.size(); ++i) {
    Require(std::isfinite(answer.rows[i].score) && answer.rows[i].score >= 0, "a score out of range");
    Require(i == 0 || answer.rows[i - 1].score >= answer.rows[i].score, "rows out of order");
  }
}

}  // namespace
}  // namespace icache

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static icache::testing::FuzzIndex fixture;
  static const icache::testing::FakeClock clock(fixture.now);
  static const icache::Router router({}, fixture.index.get(), &fixture.policies, &clock, nullptr);
  static icache::LookupScratch scratch;
  inferencecache::v1alpha1::LookupRouteRequest message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  icache::LookupRequestView view;
  icache::LookupAnswer answer;
  const icache::LookupRequest& request = view.Read(message, absl::InfiniteFuture());
  router.Lookup(request, clock.Now(), &scratch, &answer);
  icache::Check(request, answer);
  inferencecache::v1alpha1::LookupRouteResponse response;
  icache::LookupAnswerToWire(answer, absl::ZeroDuration(), &response);
  return 0;
}
