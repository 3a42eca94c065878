// Router: answers one LookupRoute call from the policies and the index.
//
// A request never makes it fail: whatever comes in, an answer with a reason code comes out. The ten steps of
// contract/lookup.md are named functions in src/routing/; docs/life-of-a-lookup.md walks through them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/clock.h"
#include "icache/base/string_map.h"
#include "icache/index/prefix_index.h"
#include "icache/policy/policy_store.h"
#include "icache/ranking/ranking.h"
#include "icache/routing/explanation.h"
#include "icache/routing/lookup.h"

namespace icache {

struct RouterOptions {
  // The tokens per block of `model_id`.
  int32_t BlockSizeOf(std::string_view model_id) const {
    const auto found = block_size_by_model.find(model_id);
    return found == block_size_by_model.end() ? block_size : found->second;
  }

  int32_t block_size = 16;                 // tokens per block for fingerprinting token ids, >= 1
  StringMap<int32_t> block_size_by_model;  // overrides, >= 1
  RankerOptions ranker;
  size_t max_chain_blocks = 65'536;  // longer chains are malformed
  size_t max_token_ids = 1'048'576;  // longer lists are NO_HINT
};

// Buffers of one thread's lookups, kept between calls so that a call allocates nothing. Use one per thread.
class LookupScratch {
 public:
  LookupScratch();
  ~LookupScratch();
  LookupScratch(const LookupScratch&) = delete;
  LookupScratch& operator=(const LookupScratch&) = delete;

 private:
  friend class Router;
  struct Buffers;
  const std::unique_ptr<Buffers> buffers_;
};

class Router {
 public:
  // Nothing is owned; everything must outlive the router. `observer` may be null.
  Router(RouterOptions options, const PrefixIndex* index, const PolicyStore* policies, const Clock* clock,
         LookupObserver* observer);

  // Answers `request`, replacing `answer`, and tells the observer. `received_at` is when the call arrived: latency and
  // the policy's budget count from it. Returns the latency. Thread-safe; `scratch` and `answer` are the caller's own.
  absl::Duration Lookup(const LookupRequest& request, absl::Time received_at, LookupScratch* scratch,
                        LookupAnswer* answer) const;

  // The answer to a call that is not even looked at, for which there are too many. Tells the observer. Thread-safe.
  ReasonCode Shed() const;

  // Replaces `explanation` by what Lookup() would answer, and why. Runs the same steps, but credits nothing and tells
  // the observer nothing. The answer's adapter points into the request. Thread-safe likewise.
  // O(the lookup + rows log rows + names of the level that a miss ended on).
  void Explain(const LookupRequest& request, absl::Time received_at, LookupScratch* scratch,
               Explanation* explanation) const;

 private:
  template <typename Trace>
  class Call;  // one lookup in progress

  // What the index holds in the place of an unknown key, and when it last heard of the model.
  void AddNames(const LookupRequest& request, ScopeExplanation* scope) const;

  const RouterOptions options_;
  const PrefixIndex* const index_;
  const PolicyStore* const policies_;
  const Clock* const clock_;
  LookupObserver* const observer_;
};

}  // namespace icache
