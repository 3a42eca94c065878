#include "ctl/ingest_verbs.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "ctl/argument.h"
#include "ctl/client.h"
#include "ctl/message_json.h"
#include "ctl/output.h"
#include "ctl/text.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

using nlohmann::ordered_json;

absl::StatusOr<wire::CacheStateUpdate> ReadUpdate(const std::string& line, const Settings& settings) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("is no JSON");
  wire::CacheStateUpdate update;
  RETURN_IF_ERROR(FromJson(json, &update));
  if (update.tenant_id().empty()) update.set_tenant_id(settings.tenant);
  if (update.model_id().empty()) update.set_model_id(settings.model);
  if (update.hash_scheme().empty()) update.set_hash_scheme(settings.scheme);
  if (update.adapter_id().empty()) update.set_adapter_id(settings.adapter);
  for (const auto& [name, value] :
       {std::pair("replica_id", &update.replica_id()), std::pair("tenant_id", &update.tenant_id()),
        std::pair("model_id", &update.model_id())}) {
    if (value->empty()) return absl::InvalidArgumentError(fmt::format("{}: is missing", name));
  }
  return update;
}

absl::StatusOr<std::vector<wire::CacheStateUpdate>> ReadUpdates(const std::string& text, const Settings& settings) {
  std::vector<wire::CacheStateUpdate> updates;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<wire::CacheStateUpdate> update = ReadUpdate(line, settings);
    if (!update.ok()) {
      return absl::InvalidArgumentError(fmt::format("line {}: {}", number, std::string(update.status().message())));
    }
    updates.push_back(*std::move(update));
  }
  return updates;
}

absl::StatusOr<bool> PrintAck(const Settings& settings, const char* verb, size_t sent, const char* what,
                              const wire::Ack& ack) {
  const ordered_json document = {{"sent", sent}, {"accepted", ack.accepted()}, {"reason_code", ack.reason_code()}};
  RETURN_IF_ERROR(Print(settings.Output(), document, [&](const Style& style) {
    if (!ack.accepted()) {
      return fmt::format("{}: {}\n", Painted("not accepted", Tone::kBad, style), Visible(ack.reason_code()));
    }
    return fmt::format("{} {}\n", verb, Counted(static_cast<int64_t>(sent), what));
  }));
  return ack.accepted();
}

absl::Status RequireReplica(const std::string& replica) {
  return replica.empty() ? absl::InvalidArgumentError("--replica: must not be empty") : absl::OkStatus();
}

wire::CacheEvent EventOf(const Settings& settings, const std::string& replica, wire::CacheEvent::Type type) {
  wire::CacheEvent event;
  event.set_type(type);
  event.set_replica_id(replica);
  event.set_tenant_id(settings.tenant);
  event.set_model_id(settings.model);
  return event;
}

}  // namespace

absl::StatusOr<bool> RunReport(const Settings& settings, const std::string& input) {
  if (std::error_code error; std::filesystem::exists(input, error)) {
    return absl::InvalidArgumentError(fmt::format("{} is no update but a file: it is read as @{}", input, input));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadArgument(input));
  ASSIGN_OR_RETURN(const std::vector<wire::CacheStateUpdate> updates, ReadUpdates(text, settings));
  if (updates.empty()) return absl::InvalidArgumentError("no update is given");
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const wire::Ack ack, client->Report(updates));
  return PrintAck(settings, "reported", updates.size(), "update", ack);
}

absl::StatusOr<bool> RunEvict(const Settings& settings, const std::string& replica, const std::string& hashes) {
  RETURN_IF_ERROR(RequireReplica(replica));
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::tenant));
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::model));
  ASSIGN_OR_RETURN(const std::string text, ReadArgument(hashes));
  ASSIGN_OR_RETURN(const std::vector<std::string> evicted, ParseHashes(text));
  if (evicted.empty()) return absl::InvalidArgumentError("no block hash is given");
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  wire::CacheEvent event = EventOf(settings, replica, wire::CacheEvent::PREFIX_EVICTED);
  event.set_adapter_id(settings.adapter);
  wire::Ack ack;
  ack.set_accepted(true);
  for (const std::string& hash : evicted) {
    event.set_prefix_hash(hash);
    ASSIGN_OR_RETURN(ack, client->Publish(event));
    if (!ack.accepted()) break;
  }
  return PrintAck(settings, "evicted", evicted.size(), "block", ack);
}

absl::StatusOr<bool> RunClear(const Settings& settings, const std::string& replica) {
  RETURN_IF_ERROR(RequireReplica(replica));
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::tenant));
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::model));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const wire::Ack ack, client->Publish(EventOf(settings, replica, wire::CacheEvent::ALL_CLEARED)));
  return PrintAck(settings, "cleared", 1, "replica", ack);
}

}  // namespace icache
