#include "icache/engine/payload_decoder.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine/msgpack_tape.h"
#include "icache/base/block_hash.h"
#include "icache/base/utf8.h"
#include "xxhash.h"

namespace icache {
namespace {

using Kind = MsgpackItem::Kind;

// The fields of events, in the order in which the array form has them behind the tag.
constexpr std::string_view kStoredFields[] = {
    "block_hashes", "parent_block_hash", "token_ids",  "block_size", "lora_id",
    "medium",       "lora_name",         "extra_keys", "group_idx",  "kv_cache_spec_kind"};
constexpr std::string_view kRemovedFields[] = {"block_hashes", "medium", "group_idx"};
constexpr std::string_view kBatchFields[] = {"ts", "events", "data_parallel_rank"};

// A container's fields by name, in whichever form it came: index on the tape, or kAbsent.
template <size_t kCount>
struct Fields {
  static constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();
  uint32_t at[kCount];
};

class Reader {
 public:
  explicit Reader(const MsgpackTape& tape) : tape_(tape) {}

  // Finds `names` in the array or map at `index`; in an array they follow `skipped` other items.
  template <size_t kCount>
  Fields<kCount> Find(uint32_t index, const std::string_view (&names)[kCount], uint32_t skipped) const {
    Fields<kCount> fields;
    for (uint32_t& at : fields.at) at = Fields<kCount>::kAbsent;
    const MsgpackItem& container = tape_[index];
    uint32_t part = index + 1;
    for (uint32_t i = 0; i < container.size; ++i) {
      if (container.kind == Kind::kArray) {
        if (i >= skipped && i - skipped < kCount) fields.at[i - skipped] = part;
      } else {
        const MsgpackItem& key = tape_[part];
        part = key.end;
        for (size_t n = 0; n < kCount; ++n) {
          if (key.kind == Kind::kText && key.text() == names[n]) fields.at[n] = part;
        }
      }
      part = tape_[part].end;
    }
    return fields;
  }

  bool IsContainer(uint32_t index) const {
    return tape_[index].kind == Kind::kArray || tape_[index].kind == Kind::kMap;
  }
  bool IsNil(uint32_t index) const { return index == kAbsent || tape_[index].kind == Kind::kNil; }

  // All of these: false when the value is there, or is required, and is not what it should be.

  bool ReadTime(uint32_t index, absl::Time* time) const {
    if (index == kAbsent) return false;
    const MsgpackItem& item = tape_[index];
    if (item.kind != Kind::kFloat && item.kind != Kind::kUnsigned) return false;
    const double seconds = item.kind == Kind::kFloat ? item.number : static_cast<double>(item.bits);
    if (!std::isfinite(seconds)) return false;
    *time = absl::UnixEpoch() + absl::Seconds(seconds);
    return true;
  }

  bool ReadOptionalInteger(uint32_t index, std::optional<int64_t>* value) const {
    if (IsNil(index)) return true;
    const MsgpackItem& item = tape_[index];
    const bool beyond = item.kind == Kind::kUnsigned && item.bits > static_cast<uint64_t>(INT64_MAX);
    if (!item.IsInteger() || beyond) return false;
    *value = static_cast<int64_t>(item.bits);
    return true;
  }

  bool ReadOptionalText(uint32_t index, std::optional<std::string_view>* value) const {
    if (IsNil(index)) return true;
    if (tape_[index].kind != Kind::kText || !IsUtf8(tape_[index].text())) return false;
    *value = tape_[index].text();
    return true;
  }

  bool ReadHash(uint32_t index, std::vector<EngineHash>* hashes) const {
    const std::optional<EngineHash> hash = HashAt(index);
    if (hash.has_value()) hashes->push_back(*hash);
    return hash.has_value();
  }
  bool ReadHashes(uint32_t index, std::vector<EngineHash>* hashes) const {
    return ReadList(index, hashes, [&](uint32_t part) { return ReadHash(part, hashes); });
  }
  bool ReadParent(uint32_t index, std::optional<EngineHash>* parent) const {
    // Left out, it would be taken for the start of a sequence, so it has to be there.
    if (index == kAbsent) return false;
    if (!IsNil(index)) *parent = HashAt(index);
    return IsNil(index) || parent->has_value();
  }

  bool ReadTokens(uint32_t index, std::vector<uint32_t>* tokens) const {
    return ReadList(index, tokens, [&](uint32_t part) {
      const MsgpackItem& item = tape_[part];
      if (item.kind != Kind::kUnsigned || item.bits > std::numeric_limits<uint32_t>::max()) return false;
      tokens->push_back(static_cast<uint32_t>(item.bits));
      return true;
    });
  }

  bool ReadBlockSize(uint32_t index, int32_t* size) const {
    if (index == kAbsent) return false;
    const MsgpackItem& item = tape_[index];
    if (item.kind != Kind::kUnsigned || item.bits < 1 || item.bits > std::numeric_limits<int32_t>::max()) return false;
    *size = static_cast<int32_t>(item.bits);
    return true;
  }

  bool ReadKeys(uint32_t index, size_t blocks, std::vector<BlockKeys>* keys) const {
    if (IsNil(index)) return true;
    const bool read = ReadList(index, keys, [&](uint32_t part) {
      keys->push_back(KeysAt(part));
      return true;
    });
    return read && keys->size() == blocks;
  }

  // Reads the event at `index` into `batch`, or counts it there.
  void ReadEvent(uint32_t index, KvBatch* batch) const {
    const uint32_t tag_at = IsContainer(index) ? TagOf(index) : kAbsent;
    if (tag_at == kAbsent || tape_[tag_at].kind != Kind::kText) {
      ++batch->malformed_events;
      return MarkLostRemoval(batch);
    }
    const std::string_view tag = tape_[tag_at].text();
    if (tag == "BlockStored") {
      AddEvent<BlockStored>(index, batch);
    } else if (tag == "BlockRemoved") {
      AddEvent<BlockRemoved>(index, batch);
    } else if (tag == "AllBlocksCleared") {
      batch->events.emplace_back(AllBlocksCleared());
    } else {
      ++batch->unknown_events;
    }
  }

  static constexpr uint32_t kAbsent = Fields<1>::kAbsent;

 private:
  uint32_t TagOf(uint32_t index) const {
    static constexpr std::string_view kTag[] = {"type"};
    return Find(index, kTag, 0).at[0];
  }

  std::optional<EngineHash> HashAt(uint32_t index) const {
    const MsgpackItem& item = tape_[index];
    if (item.IsInteger()) return EngineHash(item.bits);
    const bool is_bytes = item.kind == Kind::kBytes || item.kind == Kind::kText;
    if (!is_bytes || item.size == 0 || item.size > kMaxEngineHashBytes) return std::nullopt;
    return EngineHash::FromBytes(item.text());
  }

  BlockKeys KeysAt(uint32_t index) const {
    const MsgpackItem& item = tape_[index];
    if (item.kind == Kind::kNil || (item.kind == Kind::kArray && item.size == 0)) return {};
    if (item.kind == Kind::kArray && item.size == 1 && tape_[index + 1].kind == Kind::kText) {
      return {BlockKeys::Kind::kOneText, tape_[index + 1].text()};
    }
    return {BlockKeys::Kind::kOther, {}};
  }

  // Calls `read` with each item of the array at `index`, which must have one at least; false when it, or that, fails.
  template <typename T, typename ReadItem>
  bool ReadList(uint32_t index, std::vector<T>* into, ReadItem read) const {
    if (index == kAbsent || tape_[index].kind != Kind::kArray || tape_[index].size == 0) return false;
    into->reserve(tape_[index].size);
    for (uint32_t part = index + 1; part < tape_[index].end; part = tape_[part].end) {
      if (!read(part)) return false;
    }
    return true;
  }

  // One mark stands for several in a row, which would take far more memory than what they stand for.
  static void MarkLostRemoval(KvBatch* batch) {
    const bool marked = !batch->events.empty() && std::holds_alternative<LostRemoval>(batch->events.back());
    if (!marked) batch->events.emplace_back(LostRemoval());
  }

  // Reads the event into the batch; one that is malformed is counted there instead.
  template <typename Event>
  void AddEvent(uint32_t index, KvBatch* batch) const {
    Event& event = std::get<Event>(batch->events.emplace_back(std::in_place_type<Event>));
    if (Read(index, &event)) return;
    batch->events.pop_back();
    ++batch->malformed_events;
    if (std::is_same_v<Event, BlockRemoved>) MarkLostRemoval(batch);
  }

  bool Read(uint32_t index, BlockStored* event) const {
    const auto [at] = Find(index, kStoredFields, 1);
    return ReadHashes(at[0], &event->block_hashes) && ReadParent(at[1], &event->parent) &&
           ReadTokens(at[2], &event->token_ids) && ReadBlockSize(at[3], &event->block_size) &&
           ReadOptionalInteger(at[4], &event->lora_id) && ReadOptionalText(at[5], &event->medium) &&
           ReadOptionalText(at[6], &event->lora_name) &&
           ReadKeys(at[7], event->block_hashes.size(), &event->extra_keys) &&
           ReadOptionalInteger(at[8], &event->group_idx) && ReadOptionalText(at[9], &event->spec_kind) &&
           event->token_ids.size() == event->block_hashes.size() * static_cast<size_t>(event->block_size);
  }

  bool Read(uint32_t index, BlockRemoved* event) const {
    const auto [at] = Find(index, kRemovedFields, 1);
    return ReadHashes(at[0], &event->block_hashes) && ReadOptionalText(at[1], &event->medium) &&
           ReadOptionalInteger(at[2], &event->group_idx);
  }

  const MsgpackTape& tape_;
};

}  // namespace

EngineHash EngineHash::FromBytes(std::string_view bytes) {
  if (bytes.size() == kPackedHashBytes) return EngineHash(LoadBigEndian64(bytes.data()));
  const XXH128_hash_t digest = XXH3_128bits(bytes.data(), bytes.size());
  return EngineHash(digest.low64, digest.high64);
}

PayloadDecoder::PayloadDecoder() : tape_(std::make_unique<MsgpackTape>()) {}
PayloadDecoder::~PayloadDecoder() = default;

absl::StatusOr<KvBatch> PayloadDecoder::Decode(std::string_view payload) {
  if (payload.size() > kMaxPayloadBytes) return absl::ResourceExhaustedError("more bytes than a batch may have");
  if (absl::Status read = tape_->Read(payload, kMaxPayloadValues, kMaxPayloadDepth); !read.ok()) return read;
  const Reader reader(*tape_);
  if (!reader.IsContainer(0)) return absl::InvalidArgumentError("neither an array nor a map");
  const auto [at] = reader.Find(0, kBatchFields, 0);
  KvBatch batch;
  if (!reader.ReadTime(at[0], &batch.time)) return absl::InvalidArgumentError("no ts, or no number in it");
  if (!reader.ReadOptionalInteger(at[2], &batch.rank) || batch.rank.value_or(0) < 0) {
    return absl::InvalidArgumentError("data_parallel_rank is no rank");
  }
  if (at[1] == Reader::kAbsent || (*tape_)[at[1]].kind != Kind::kArray) {
    return absl::InvalidArgumentError("no list of events");
  }
  for (uint32_t event = at[1] + 1; event < (*tape_)[at[1]].end; event = (*tape_)[event].end) {
    reader.ReadEvent(event, &batch);
  }
  return batch;
}

}  // namespace icache
