// Directory: records shared by everything of one name (a tenant, a model), alive while somebody holds them.
//
// Thread-safe; its lock is a leaf. Only who holds a record copies a Ref without it, and only the last Ref goes under
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"

namespace icache {

// `Record` is constructible from its name, a std::string_view, and has a `const std::string name`.
template <typename Record>
class Directory {
  struct Slot {
    explicit Slot(std::string_view name) : record(name) {}
    Record record;
    std::atomic<int64_t> refs{0};
  };

 public:
  // Keeps one record alive.
  class Ref {
   public:
    Ref(const Ref& other) : directory_(other.directory_), slot_(other.slot_) {
      slot_->refs.fetch_add(1, std::memory_order_relaxed);
    }
    Ref& operator=(const Ref&) = delete;
    ~Ref() { directory_->Release(slot_); }

    Record* get() const { return &slot_->record; }
    Record* operator->() const { return get(); }
    Record& operator*() const { return *get(); }

   private:
    friend class Directory;
    Ref(Directory* directory, Slot* slot) : directory_(directory), slot_(slot) {}

    Directory* const directory_;
    Slot* const slot_;
  };

  // The record of `name`, made if need be.
  Ref Acquire(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_) {
    WriterLock lock(&mutex_);
    auto found = slots_.find(name);
    if (found == slots_.end()) {
      found = slots_.try_emplace(std::string(name), std::make_unique<Slot>(name)).first;
    }
    found->second->refs.fetch_add(1, std::memory_order_relaxed);
    return Ref(this, found->second.get());
  }

  // Calls `visit(record)` when there is a record of `name`; the lock is held meanwhile.
  template <typename Visit>
  void With(std::string_view name, Visit visit) const ABSL_LOCKS_EXCLUDED(mutex_) {
    ReaderLock lock(&mutex_);
    auto found = slots_.find(name);
    if (found != slots_.end()) visit(static_cast<const Record&>(found->second->record));
  }

  // Calls `visit(record)` for each record; the lock is held meanwhile.
  template <typename Visit>
  void ForEach(Visit visit) const ABSL_LOCKS_EXCLUDED(mutex_) {
    ReaderLock lock(&mutex_);
    for (const auto& [name, slot] : slots_) visit(static_cast<const Record&>(slot->record));
  }

 private:
  void Release(Slot* slot) ABSL_LOCKS_EXCLUDED(mutex_) {
    for (int64_t refs = slot->refs.load(std::memory_order_relaxed); refs > 1;) {
      if (slot->refs.compare_exchange_weak(refs, refs - 1, std::memory_order_release, std::memory_order_relaxed))
        return;
    }
    std::unique_ptr<Slot> last;  // dies outside the lock
    WriterLock lock(&mutex_);
    if (slot->refs.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    auto found = slots_.find(std::string_view(slot->record.name));
    last = std::move(found->second);
    slots_.erase(found);
  }

  mutable SharedMutex mutex_;
  StringMap<std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
