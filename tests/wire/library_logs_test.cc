#include "icache/wire/library_logs.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

namespace icache {
namespace {

TEST(LibraryLogsDeathTest, LastWordsAreLetThrough) {
  EXPECT_DEATH(
      {
        SilenceRpcLibraries();
        grpc_init();  // before which gRPC says nothing
        GPR_ASSERT(1 + 1 == 3);
      },
      "gRPC .*library_logs_test.cc:[0-9]+: assertion failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace icache
