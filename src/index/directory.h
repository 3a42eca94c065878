// Directory: records shared by everything of one name (a tenant, a model), alive while somebody holds them.
//
// Thread-safe; its lock is a leaf.
#pragma once

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
 public:
  // Keeps one record alive. Movable.
  class Ref {
   public:
    Ref() = default;
    Ref(Ref&& other) noexcept : directory_(other.directory_), record_(std::exchange(other.record_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
      std::swap(directory_, other.directory_);
      std::swap(record_, other.record_);
      return *this;
    }
    ~Ref() {
      if (record_ != nullptr) directory_->Release(record_);
    }

    Record* get() const { return record_; }
    Record* operator->() const { return record_; }
    Record& operator*() const { return *record_; }

   private:
    friend class Directory;
    Ref(Directory* directory, Record* record) : directory_(directory), record_(record) {}

    Directory* directory_ = nullptr;
    Record* record_ = nullptr;
  };

  // The record of `name`, made if need be.
  Ref Acquire(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_) {
    WriterLock lock(&mutex_);
    auto found = slots_.find(name);
    if (found == slots_.end()) {
      found = slots_.try_emplace(std::string(name)).first;
      found->second.record = std::make_unique<Record>(name);
    }
    ++found->second.refs;
    return Ref(this, found->second.record.get());
  }

  // Calls `visit(record)` when there is a record of `name`; the lock is held meanwhile.
  template <typename Visit>
  void With(std::string_view name, Visit visit) const ABSL_LOCKS_EXCLUDED(mutex_) {
    ReaderLock lock(&mutex_);
    auto found = slots_.find(name);
    if (found != slots_.end()) visit(static_cast<const Record&>(*found->second.record));
  }

  // Calls `visit(record)` for each record; the lock is held meanwhile.
  template <typename Visit>
  void ForEach(Visit visit) const ABSL_LOCKS_EXCLUDED(mutex_) {
    ReaderLock lock(&mutex_);
    for (const auto& [name, slot] : slots_) visit(*slot.record);
  }

 private:
  struct Slot {
    std::unique_ptr<Record> record;
    int64_t refs = 0;
  };

  void Release(Record* record) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::unique_ptr<Record> last;  // dies outside the lock
    WriterLock lock(&mutex_);
    auto found = slots_.find(std::string_view(record->name));
    if (--found->second.refs > 0) return;
    last = std::move(found->second.record);
    slots_.erase(found);
  }

  mutable SharedMutex mutex_;
  StringMap<Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
