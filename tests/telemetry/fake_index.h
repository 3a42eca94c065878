// FakeIndex: a PrefixIndex that reports what a test tells it to, and nothing else. Thread-safe only while nobody writes
// its fields.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "icache/index/prefix_index.h"

namespace icache::testing {

class FakeIndex final : public PrefixIndex {
 public:
  std::map<std::string, ModelStats, std::less<>> models;
  std::map<std::string, int64_t> quota_tenants;  // with the prefixes evicted
  IndexStats stats;

  IndexStats Stats() const override { return stats; }
  bool HoldsModel(std::string_view model_id) const override { return models.contains(model_id); }
  void ForEachModel(absl::FunctionRef<void(std::string_view, const ModelStats&)> visit) const override {
    for (const auto& [model, model_stats] : models) visit(model, model_stats);
  }
  void ForEachQuotaTenant(absl::FunctionRef<void(std::string_view, int64_t)> visit) const override {
    for (const auto& [tenant, evicted] : quota_tenants) visit(tenant, evicted);
  }

  // Not for telemetry.
  ApplyResult ApplyUpdate(const StateUpdate&, absl::Time) override { return {}; }
  ApplyResult ApplyEvent(const CacheEvent&, absl::Time) override { return {}; }
  void Read(const ScopeKey&, absl::FunctionRef<void(const ScopeView&)>) const override {}
  CacheState GetState(std::string_view, std::string_view) const override { return {}; }
  void ListHeld(std::string_view, std::string_view, NameList*) const override {}
  std::vector<PartitionState> ListPartitions(std::string_view, const std::optional<PartitionName>&,
                                             size_t) const override {
    return {};
  }
  ScopeReplicas ListReplicas(const ScopeKey&, std::string_view, size_t) const override { return {}; }
  size_t Sweep(absl::Time) override { return 0; }
  absl::Status CheckInvariants() const override { return absl::OkStatus(); }
};

}  // namespace icache::testing
