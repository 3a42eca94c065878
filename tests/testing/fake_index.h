// FakeIndex: a PrefixIndex of one scope whose answers a test writes by hand and whose questions it can read back.
//
// Thread-compatible. Writing to it is not supported: tests that need what observations do use NaiveIndex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "icache/index/prefix_index.h"

namespace icache::testing {

class FakeIndex final : public PrefixIndex, private ScopeView {
 public:
  // A row of what both matchers answer with.
  struct Holder {
    std::string replica_id;
    int32_t matched_tokens = 0;
    absl::Time last_seen;
    Tier tier = Tier::kT1;
  };

  // --- What it answers -------------------------------------------------------------------------------------------
  std::vector<Holder> holders;
  std::vector<std::string> replicas;          // present in the scope, sorted bytewise
  std::map<std::string, ReplicaStats> stats;  // of (tenant, model)
  KnownKeys known = KnownKeys::kScopeKnown;
  bool holds_model = false;
  std::function<void()> on_match = [] {};  // called by either matcher

  // --- What it was asked -----------------------------------------------------------------------------------------
  struct Question {
    bool is_chain = false;
    std::string adapter_id;
    std::vector<std::string> hashes;
    std::vector<int32_t> tokens;  // chains only
    absl::Time expired_through;
  };
  mutable std::vector<std::string> scopes_read;       // "tenant/model/scheme" of each Read
  mutable std::vector<Question> questions;            // one per matcher call
  mutable std::vector<std::string> credited;          // replicas, in the order of the credit
  mutable std::vector<Question> credits;              // one per credit call
  mutable std::vector<std::string> models_looked_up;  // by HoldsModel

  // --- PrefixIndex -----------------------------------------------------------------------------------------------
  void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const override {
    scopes_read.push_back(std::string(key.tenant_id) + "/" + std::string(key.model_id) + "/" +
                          std::string(key.hash_scheme));
    reader(*this);
  }
  bool HoldsModel(std::string_view model_id) const override {
    models_looked_up.emplace_back(model_id);
    return holds_model;
  }
  ApplyResult ApplyUpdate(const StateUpdate&, absl::Time) override { std::abort(); }
  ApplyResult ApplyEvent(const CacheEvent&, absl::Time) override { std::abort(); }
  CacheState GetState(std::string_view, std::string_view) const override { std::abort(); }
  size_t Sweep(absl::Time) override { std::abort(); }
  IndexStats Stats() const override { std::abort(); }
  void ForEachModel(absl::FunctionRef<void(std::string_view, const ModelStats&)>) const override { std::abort(); }
  void ListHeld(std::string_view, std::string_view, NameList*) const override {}
  std::vector<PartitionState> ListPartitions(std::string_view, const std::optional<PartitionName>&,
                                             size_t) const override {
    std::abort();
  }
  ScopeReplicas ListReplicas(const ScopeKey&, std::string_view, size_t) const override { std::abort(); }
  void ForEachQuotaTenant(absl::FunctionRef<void(std::string_view, int64_t)>) const override { std::abort(); }
  absl::Status CheckInvariants() const override { return absl::OkStatus(); }

  // The view that Read() hands out, for tests of what takes one.
  const ScopeView& view() const { return *this; }

 private:
  // --- ScopeView -------------------------------------------------------------------------------------------------
  void MatchHash(std::string_view adapter_id, BlockHash hash, absl::Time expired_through,
                 std::vector<ReplicaMatch>* matches) const override {
    Answer(ExactQuestion(adapter_id, hash, expired_through), matches);
  }
  void MatchChain(std::string_view adapter_id, const Chain& chain, absl::Time expired_through,
                  absl::FunctionRef<bool()> /*give_up*/, std::vector<ReplicaMatch>* matches) const override {
    Answer(ChainQuestion(adapter_id, chain, expired_through), matches);
  }
  void CreditHash(std::string_view adapter_id, BlockHash hash, absl::Span<const ReplicaMatch> matches) const override {
    Credit(ExactQuestion(adapter_id, hash, absl::Time()), matches);
  }
  void CreditChain(std::string_view adapter_id, const Chain& chain,
                   absl::Span<const ReplicaMatch> matches) const override {
    Credit(ChainQuestion(adapter_id, chain, absl::Time()), matches);
  }
  size_t ReplicaCount() const override { return replicas.size(); }
  std::string_view ReplicaAt(size_t i) const override { return replicas.at(i); }
  bool HasReplica(std::string_view replica_id) const override {
    return std::find(replicas.begin(), replicas.end(), replica_id) != replicas.end();
  }
  std::optional<absl::Time> LeaseOf(std::string_view) const override { return std::nullopt; }
  void ForEachStats(absl::FunctionRef<void(std::string_view, const ReplicaStats&, bool)> visit) const override {
    for (const auto& [replica_id, row] : stats) visit(replica_id, row, HasReplica(replica_id));
  }
  KnownKeys Known() const override { return known; }

  static std::string BytesOf(BlockHash hash) {
    if (!hash.IsPacked()) return std::string(hash.wide());
    std::string bytes(kPackedHashBytes, '\0');
    StoreBigEndian64(hash.packed(), bytes.data());
    return bytes;
  }
  static Question ExactQuestion(std::string_view adapter_id, BlockHash hash, absl::Time expired_through) {
    return {.is_chain = false,
            .adapter_id = std::string(adapter_id),
            .hashes = {BytesOf(hash)},
            .tokens = {},
            .expired_through = expired_through};
  }
  static Question ChainQuestion(std::string_view adapter_id, const Chain& chain, absl::Time expired_through) {
    Question question{.is_chain = true,
                      .adapter_id = std::string(adapter_id),
                      .hashes = {},
                      .tokens = {},
                      .expired_through = expired_through};
    for (size_t i = 0; i < chain.size(); ++i) {
      question.hashes.push_back(BytesOf(chain.hash(i)));
      question.tokens.push_back(chain.tokens(i));
    }
    return question;
  }

  void Answer(Question question, std::vector<ReplicaMatch>* matches) const {
    matches->clear();
    for (size_t i = 0; i < holders.size(); ++i) {
      const Holder& holder = holders[i];
      if (holder.last_seen <= question.expired_through) continue;
      const auto row = stats.find(holder.replica_id);
      matches->push_back({.replica_id = holder.replica_id,
                          .slot = static_cast<uint32_t>(i),
                          .name_order = static_cast<uint32_t>(
                              std::lower_bound(replicas.begin(), replicas.end(), holder.replica_id) - replicas.begin()),
                          .matched_blocks = 1,
                          .matched_tokens = holder.matched_tokens,
                          .last_seen_us = absl::ToUnixMicros(holder.last_seen),
                          .tier = holder.tier,
                          .stats = row == stats.end() ? nullptr : &row->second});
    }
    questions.push_back(std::move(question));
    on_match();
  }
  void Credit(Question question, absl::Span<const ReplicaMatch> matches) const {
    for (const ReplicaMatch& match : matches) credited.emplace_back(match.replica_id);
    credits.push_back(std::move(question));
  }
};

}  // namespace icache::testing
