// PayloadDecoder: the bytes of a KV-event batch -> KvBatch, in every form that engines have sent.
//
// A batch is an array or a map, and so is each event in it, in any mix. What is unknown is skipped: kinds of events,
// map keys, fields at an array's end. What is malformed costs that event alone; what makes the batch unreadable as a
// whole costs the batch. Source: contract/engine-events.md.
//
// Hostile input is normal: bytes, values and depth are bounded, and nothing is allocated for what a header merely
// announces.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "icache/engine/kv_events.h"

namespace icache {

inline constexpr size_t kMaxPayloadBytes = 16 << 20;
inline constexpr size_t kMaxPayloadValues = 4 << 20;  // of one batch, containers included
inline constexpr size_t kMaxPayloadDepth = 32;

class MsgpackTape;

// Thread-compatible. Keeps its scratch memory between calls.
class PayloadDecoder {
 public:
  PayloadDecoder();
  ~PayloadDecoder();
  PayloadDecoder(const PayloadDecoder&) = delete;
  PayloadDecoder& operator=(const PayloadDecoder&) = delete;

  // The batch that `payload` is; its strings are views into it. O(bytes). Errors: InvalidArgument for what is no batch,
  // ResourceExhausted beyond the bounds.
  absl::StatusOr<KvBatch> Decode(std::string_view payload);

 private:
  const std::unique_ptr<MsgpackTape> tape_;
};

}  // namespace icache
