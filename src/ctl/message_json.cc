#include "ctl/message_json.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "ctl/text.h"
#include "icache/base/block_hash.h"
#include "icache/base/status_macros.h"
#include "icache/base/utf8.h"

namespace icache {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;
using nlohmann::ordered_json;

std::string HashHex(uint64_t packed) { return fmt::format("{:016x}", packed); }

// A float as the shortest number that reads back as it, rather than as the double nearest to it.
ordered_json FloatJson(float value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

ordered_json DoubleJson(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  return value;
}

ordered_json ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
#define ICACHE_GET(Type) \
  (repeated ? reflection.GetRepeated##Type(message, &field, index) : reflection.Get##Type(message, &field))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return ICACHE_GET(Bool);
    case FieldDescriptor::CPPTYPE_INT32:
      return ICACHE_GET(Int32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return ICACHE_GET(UInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return ICACHE_GET(Int64);
    case FieldDescriptor::CPPTYPE_UINT64:
      if (field.type() == FieldDescriptor::TYPE_FIXED64) return HashHex(ICACHE_GET(UInt64));
      return ICACHE_GET(UInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return FloatJson(ICACHE_GET(Float));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return DoubleJson(ICACHE_GET(Double));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = ICACHE_GET(EnumValue);
      const EnumValueDescriptor* const value = field.enum_type()->FindValueByNumber(number);
      if (value == nullptr) return number;
      return value->name();
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = ICACHE_GET(String);
      return field.type() == FieldDescriptor::TYPE_BYTES ? ToHex(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(ICACHE_GET(Message));
  }
#undef ICACHE_GET
  return nullptr;
}

absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<int64_t> ReadSigned(const json& value, int64_t least, int64_t most) {
  if (!value.is_number_integer()) return Wrong("must be an integer");
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (beyond || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    return Wrong(fmt::format("must be from {} to {}", least, most));
  }
  return value.get<int64_t>();
}

absl::StatusOr<uint64_t> ReadUnsigned(const json& value, uint64_t most) {
  if (!value.is_number_unsigned()) return Wrong("must be an integer from 0 up");
  if (value.get<uint64_t>() > most) return Wrong(fmt::format("must be at most {}", most));
  return value.get<uint64_t>();
}

absl::StatusOr<uint64_t> ReadHash(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  const std::optional<std::string> bytes =
      value.is_string() ? FromHex(value.get<std::string>()) : std::optional<std::string>();
  if (!bytes.has_value() || bytes->size() != kPackedHashBytes) {
    return Wrong("must be a hash of 16 hexadecimal digits, or its number");
  }
  return LoadBigEndian64(bytes->data());
}

absl::StatusOr<std::string> ReadText(const json& value, bool bytes) {
  if (!value.is_string()) return Wrong("must be a string");
  std::string text = value.get<std::string>();
  if (!bytes) return text;
  std::optional<std::string> decoded = FromHex(text);
  if (!decoded.has_value()) return Wrong("must be hexadecimal digits, two a byte");
  return *std::move(decoded);
}

absl::StatusOr<int> ReadEnum(const json& value, const FieldDescriptor& field) {
  if (value.is_string()) {
    const EnumValueDescriptor* const known = field.enum_type()->FindValueByName(value.get<std::string>());
    if (known != nullptr) return known->number();
    std::string names;
    for (int i = 0; i < field.enum_type()->value_count(); ++i) {
      names += (i == 0 ? "" : ", ") + field.enum_type()->value(i)->name();
    }
    return Wrong("must be one of " + names);
  }
  absl::StatusOr<int64_t> number =
      ReadSigned(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  if (!number.ok()) return number.status();
  return static_cast<int>(*number);
}

absl::Status SetValue(const json& value, const FieldDescriptor& field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
#define ICACHE_SET(Type, given) \
  (field.is_repeated() ? reflection.Add##Type(message, &field, given) : reflection.Set##Type(message, &field, given))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean()) return Wrong("must be true or false");
      ICACHE_SET(Bool, value.get<bool>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_INT32: {
      ASSIGN_OR_RETURN(const int64_t number,
                       ReadSigned(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
      ICACHE_SET(Int32, static_cast<int32_t>(number));
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      ASSIGN_OR_RETURN(const uint64_t number, ReadUnsigned(value, std::numeric_limits<uint32_t>::max()));
      ICACHE_SET(UInt32, static_cast<uint32_t>(number));
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      ASSIGN_OR_RETURN(const int64_t number,
                       ReadSigned(value, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
      ICACHE_SET(Int64, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      ASSIGN_OR_RETURN(const uint64_t number, field.type() == FieldDescriptor::TYPE_FIXED64
                                                  ? ReadHash(value)
                                                  : ReadUnsigned(value, std::numeric_limits<uint64_t>::max()));
      ICACHE_SET(UInt64, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_FLOAT:
      if (!value.is_number()) return Wrong("must be a number");
      ICACHE_SET(Float, value.get<float>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!value.is_number()) return Wrong("must be a number");
      ICACHE_SET(Double, value.get<double>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      ASSIGN_OR_RETURN(const int number, ReadEnum(value, field));
      ICACHE_SET(EnumValue, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      ASSIGN_OR_RETURN(const std::string text, ReadText(value, field.type() == FieldDescriptor::TYPE_BYTES));
      ICACHE_SET(String, text);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FromJson(value, field.is_repeated() ? reflection.AddMessage(message, &field)
                                                 : reflection.MutableMessage(message, &field));
  }
#undef ICACHE_SET
  return absl::OkStatus();
}

absl::Status At(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string rest(status.message());
  const bool deeper = rest.find(": ") != std::string::npos && rest.rfind("must", 0) != 0;
  return absl::InvalidArgumentError(path + (deeper ? "." : ": ") + rest);
}

}  // namespace

ordered_json ToJson(const Message& message) {
  ordered_json object = ordered_json::object();
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.is_repeated()) {
      ordered_json& list = object[field.name()] = ordered_json::array();
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) list.push_back(ValueJson(message, field, k));
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      object[field.name()] = ValueJson(message, field, 0);
    }
  }
  return object;
}

absl::Status FromJson(const json& value, Message* message) {
  if (!value.is_object()) return Wrong("must be an object");
  for (const auto& [name, given] : value.items()) {
    const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) return Wrong(name + ": unknown field");
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(At(name, SetValue(given, *field, message)));
      continue;
    }
    if (!given.is_array()) return Wrong(name + ": must be a list");
    for (size_t i = 0; i < given.size(); ++i) {
      RETURN_IF_ERROR(At(fmt::format("{}[{}]", name, i), SetValue(given[i], *field, message)));
    }
  }
  return absl::OkStatus();
}

}  // namespace icache
