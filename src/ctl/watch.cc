#include "ctl/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "absl/time/clock.h"
#include "ctl/client.h"
#include "ctl/interrupt.h"
#include "ctl/message_json.h"
#include "ctl/output.h"
#include "ctl/text.h"
#include "icache/base/block_hash.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

std::string EventText(OutputFormat format, const wire::CacheEvent& event) {
  const nlohmann::ordered_json json = ToJson(event);
  switch (format) {
    case OutputFormat::kJson:
      return ToJsonText(json) + "\n";
    case OutputFormat::kYaml:
      return "---\n" + ToYaml(json);
    case OutputFormat::kTable:
      break;
  }
  const absl::Time time = event.timestamp_us() == 0 ? absl::Now() : absl::FromUnixMicros(event.timestamp_us());
  const std::string clock = absl::FormatTime("%H:%M:%E3S", time, absl::LocalTimeZone());
  if (event.type() == wire::CacheEvent::TYPE_UNSPECIFIED && event.prefix_hash().size() == kPackedHashBytes) {
    const uint64_t lost = LoadBigEndian64(event.prefix_hash().data());
    return fmt::format("{}  {:<15}  {} not read in time\n", clock, "LOST",
                       Counted(static_cast<int64_t>(lost), "event"));
  }
  std::string text = fmt::format("{}  {:<15}  {} / {} / {}", clock,
                                 json["type"].is_string() ? json["type"].get<std::string>() : json["type"].dump(),
                                 Visible(event.tenant_id()), Visible(event.model_id()), Visible(event.replica_id()));
  if (!event.adapter_id().empty()) text += " / " + Visible(event.adapter_id());
  if (!event.prefix_hash().empty()) text += "  " + ToHex(event.prefix_hash());
  return text + "\n";
}

}  // namespace

absl::StatusOr<bool> RunWatch(const Settings& settings, const std::vector<std::string>& types,
                              absl::Duration duration) {
  wire::StreamEventsRequest request;
  request.set_tenant_id(settings.tenant);
  request.set_model_id(settings.model);
  for (const std::string& name : types) {
    wire::CacheEvent::Type type;
    if (!wire::CacheEvent::Type_Parse(name, &type)) {
      return absl::InvalidArgumentError(fmt::format(
          "--type: \"{}\" is no event type; those are PREFIX_ADDED, PREFIX_EVICTED, REPLICA_UPDATED and ALL_CLEARED",
          Visible(name)));
    }
    request.add_types(type);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const bool serving, client->IsServing());
  const Interrupt interrupt;  // from before anybody is told of it
  const auto greet = [&] {
    if (settings.Output() != OutputFormat::kTable || isatty(STDOUT_FILENO) != 1) return;
    fmt::print(stderr, "watching {}{}; Ctrl-C ends it\n", settings.address, serving ? "" : " (not ready)");
  };
  const absl::Time end = absl::Now() + duration;
  absl::Status written = absl::OkStatus();
  const absl::Status status = client->Watch(
      request, greet, [&](const wire::CacheEvent& event) { written = WriteOut(EventText(settings.Output(), event)); },
      [&] { return interrupt.seen() || absl::Now() >= end || !written.ok(); });
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(status);
  return true;
}

}  // namespace icache
