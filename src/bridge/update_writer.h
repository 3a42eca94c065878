// UpdateWriter: what a ledger tells -> updates of the wire, few and full.
//
// Chains from the root on go packed; one that continues a prefix carries its counts, for each block is stored with the
// tokens up to its end. Removals come first within an update, and within a batch of updates no block is both removed
// and added, so their order does not matter. Source: contract/wire.md 101 to 104.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/string_map.h"
#include "icache/engine/block_ledger.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {

using CacheStateUpdate = inferencecache::v1alpha1::CacheStateUpdate;

// Whose updates they are.
struct ReplicaNames {
  std::string replica;
  std::string model;
  std::string tenant;
  std::string hash_scheme;
};

// One update, shared by all the daemons that it goes to.
struct Report {
  std::shared_ptr<const CacheStateUpdate> update;
  size_t blocks = 0;   // added and removed
  absl::Time made_at;  // by the steady clock; for the lag
};

// An update of `names` at `at` that says nothing yet.
std::shared_ptr<CacheStateUpdate> EmptyUpdate(const ReplicaNames& names, absl::Time at);

// Thread-compatible.
class UpdateWriter final : public LedgerSink {
 public:
  // At most `max_blocks` in one update. `clear`: two that clear the replica come first. `names` must
  // outlive it.
  UpdateWriter(const ReplicaNames* names, absl::Time at, absl::Time made_at, size_t max_blocks, bool clear);

  void OnHeld(const BlockRun& run) override;
  void OnEvicted(std::string_view adapter_id, uint64_t hash) override;

  // The updates, in order; none when there is nothing to say.
  std::vector<Report> Finish();

 private:
  struct Open {
    std::shared_ptr<CacheStateUpdate> update;
    size_t blocks = 0;
  };
  // The update that takes more blocks of `adapter_id`.
  Open& OpenFor(std::string_view adapter_id);
  void Close(Open* open);

  const ReplicaNames* const names_;
  const absl::Time at_;
  const absl::Time made_at_;
  const size_t max_blocks_;
  Open base_;                 // of the base model's removals, and everybody's additions
  StringMap<Open> removals_;  // of each adapter
  std::vector<Report> finished_;
};

}  // namespace icache
