// MirrorSink: what a daemon would hold that was told what a ledger reports.
#pragma once

#include "icache/engine/block_ledger.h"
#include "tests/testing/simulated_engine.h"

namespace icache::testing {

class MirrorSink final : public LedgerSink {
 public:
  void OnHeld(const BlockRun& run) override {
    int32_t tokens = run.tokens_before;
    for (const uint64_t hash : run.hashes) {
      tokens += run.tokens_per_block;
      held[{std::string(run.adapter_id), hash}] = {run.warm, tokens};
    }
    ++runs;
  }
  void OnEvicted(std::string_view adapter_id, uint64_t hash) override { held.erase({std::string(adapter_id), hash}); }

  HeldContents held;
  size_t runs = 0;
};

}  // namespace icache::testing
