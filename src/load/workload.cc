#include "load/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "icache/base/block_hash.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

constexpr size_t kMaxMisses = 256;              // distinct ones; each is as long as a hit
constexpr size_t kMaxBlocksPerUpdate = 65'536;  // keeps an update well below the daemon's message limit

std::string ReplicaId(size_t replica) { return fmt::format("bench-{:04}", replica); }

std::vector<uint64_t> RandomChain(size_t blocks, SplitMix64* random) {
  std::vector<uint64_t> chain(blocks);
  std::generate(chain.begin(), chain.end(), [random] { return random->Next(); });
  return chain;
}

// Writes the chain into the fields that a lookup and an observation have in common.
template <typename Message>
void SetChain(const std::vector<uint64_t>& chain, const WorkloadOptions& options, Message* message) {
  switch (options.encoding) {
    case ChainEncoding::kPacked:
      message->mutable_block_hashes_u64()->Assign(chain.begin(), chain.end());
      message->set_tokens_per_block(options.block_size);
      return;
    case ChainEncoding::kBytes:
      for (const uint64_t hash : chain) {
        char bytes[kPackedHashBytes];
        StoreBigEndian64(hash, bytes);
        message->add_block_hashes(bytes, sizeof bytes);
        message->add_block_token_counts(options.block_size);
      }
      return;
  }
}

}  // namespace

Workload::Workload(const WorkloadOptions& options, const Target& target) : options_(options), target_(target) {
  SplitMix64 random(options.seed);
  for (size_t i = 0; i < options.chains; ++i) {
    chains_.push_back(RandomChain(options.blocks, &random));
    hits_.push_back(LookupOf(chains_.back()));
  }
  for (size_t i = 0; i < std::min(options.chains, kMaxMisses); ++i) {
    misses_.push_back(LookupOf(RandomChain(options.blocks, &random)));
  }
}

absl::Status Workload::Populate(const Connection& connection) const {
  for (size_t replica = 0; replica < options_.replicas; ++replica) {
    wire::CacheStateUpdate update = NewUpdate(ReplicaId(replica));
    update.set_clear(true);
    size_t blocks = 0;
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      const size_t distance = (replica + options_.replicas - chain % options_.replicas) % options_.replicas;
      if (distance >= options_.holders) continue;
      if (blocks > 0 && blocks + options_.blocks > kMaxBlocksPerUpdate) {
        RETURN_IF_ERROR(connection.Report({std::exchange(update, NewUpdate(ReplicaId(replica)))}));
        blocks = 0;
      }
      AddPrefix(chains_[chain], &update);
      blocks += options_.blocks;
    }
    RETURN_IF_ERROR(connection.Report({std::move(update)}));
  }
  return absl::OkStatus();
}

absl::Status Workload::Clear(const Connection& connection) const {
  for (size_t replica = 0; replica < options_.replicas; ++replica) {
    wire::CacheStateUpdate update = NewUpdate(ReplicaId(replica));
    update.set_clear(true);
    RETURN_IF_ERROR(connection.Report({std::move(update)}));
  }
  return absl::OkStatus();
}

const wire::LookupRouteRequest& Workload::Draw(SplitMix64* random) const {
  const std::vector<wire::LookupRouteRequest>& requests = random->NextFraction() < options_.hit_ratio ? hits_ : misses_;
  return requests[random->Next() % requests.size()];
}

wire::CacheStateUpdate Workload::NewUpdate(const std::string& replica) const {
  wire::CacheStateUpdate update;
  update.set_replica_id(replica);
  update.set_tenant_id(target_.tenant);
  update.set_model_id(target_.model);
  update.set_hash_scheme(target_.scheme);
  return update;
}

wire::LookupRouteRequest Workload::LookupOf(const ChainHashes& chain) const {
  wire::LookupRouteRequest request;
  request.set_tenant_id(target_.tenant);
  request.set_model_id(target_.model);
  request.set_hash_scheme(target_.scheme);
  SetChain(chain, options_, &request);
  return request;
}

void Workload::AddPrefix(const ChainHashes& chain, wire::CacheStateUpdate* update) const {
  wire::PrefixEntry* prefix = update->add_prefixes();
  SetChain(chain, options_, prefix);
  prefix->set_tier(wire::CACHE_TIER_T1);
}

}  // namespace icache
