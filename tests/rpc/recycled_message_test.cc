#include "src/rpc/recycled_message.h"

#include <grpcpp/impl/grpc_library.h>
#include <gtest/gtest.h>

#include <string>

#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {
namespace {

using inferencecache::v1alpha1::LookupRouteRequest;

constexpr size_t kLimit = 64 << 10;

grpc::ByteBuffer Bytes(const std::string& text) {
  static const grpc::internal::GrpcLibraryInitializer library;  // buffers need it, and nothing else here brings it up
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer RequestWithBlocks(int blocks) {
  LookupRouteRequest request;
  for (int i = 0; i < blocks; ++i) request.add_block_hashes("hash");
  return Bytes(request.SerializeAsString());
}

TEST(RecycledMessageTest, ReadsOneMessageAfterTheOther) {
  RecycledMessage<LookupRouteRequest> message(kLimit);
  for (const int blocks : {3, 0, 5}) {
    grpc::ByteBuffer bytes = RequestWithBlocks(blocks);
    ASSERT_TRUE(message.Parse(&bytes).ok());
    EXPECT_EQ(message.message().block_hashes_size(), blocks);
    message.Trim();
  }
}

TEST(RecycledMessageTest, SmallMessagesKeepTheirMemory) {
  RecycledMessage<LookupRouteRequest> message(kLimit);
  grpc::ByteBuffer bytes = RequestWithBlocks(100);
  ASSERT_TRUE(message.Parse(&bytes).ok());
  const size_t used = message.message().SpaceUsedLong();
  message.Trim();
  EXPECT_EQ(message.message().SpaceUsedLong(), used);
}

TEST(RecycledMessageTest, OneHugeMessagePinsNothing) {
  RecycledMessage<LookupRouteRequest> message(kLimit);
  grpc::ByteBuffer bytes = RequestWithBlocks(100'000);
  ASSERT_TRUE(message.Parse(&bytes).ok());
  ASSERT_GT(message.message().SpaceUsedLong(), kLimit);
  message.Trim();
  EXPECT_LT(message.message().SpaceUsedLong(), kLimit);
}

TEST(RecycledMessageTest, AHugeMessageThatCannotBeParsedPinsNothing) {
  RecycledMessage<LookupRouteRequest> message(kLimit);
  LookupRouteRequest request;
  for (int i = 0; i < 100'000; ++i) request.add_block_hashes("hash");
  grpc::ByteBuffer bytes = Bytes(request.SerializeAsString() + "\xff");
  EXPECT_EQ(message.Parse(&bytes).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_LT(message.message().SpaceUsedLong(), kLimit);
}

TEST(RecycledMessageTest, ManyMessagesThatGrowDifferentFieldsAreMeasuredInTime) {
  RecycledMessage<LookupRouteRequest> message(kLimit);
  constexpr int kElements = 200;
  for (int large = 0; large < kElements; ++large) {  // each alone is small; the strings together are not
    LookupRouteRequest request;
    for (int i = 0; i < kElements; ++i) request.add_block_hashes(i == large ? std::string(kLimit / 8, 'x') : "");
    grpc::ByteBuffer bytes = Bytes(request.SerializeAsString());
    ASSERT_TRUE(message.Parse(&bytes).ok());
    message.Trim();
    EXPECT_LT(message.message().SpaceUsedLong(), 2 * kLimit);
  }
}

}  // namespace
}  // namespace icache
