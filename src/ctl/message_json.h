// Protobuf messages as JSON values and back, with the wire's own field names.
//
// What differs from protobuf's JSON suits people and jq: bytes, and the fixed64 in which the wire packs block hashes,
// are hexadecimal strings, 64-bit integers are numbers, and scalars are there even when they are 0.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"

namespace icache {

// In the order of the message's fields. Fields that tell presence are left out when they are absent.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// Sets what `json`, an object, holds. A fixed64 may be a number too, an enum its name or number. Errors:
// InvalidArgument, led by the path to the value: an unknown field, a wrong type, a number out of range.
absl::Status FromJson(const nlohmann::json& json, google::protobuf::Message* message);

}  // namespace icache
