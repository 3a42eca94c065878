#include "ctl/doctor.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/time/clock.h"
#include "ctl/argument.h"
#include "ctl/client.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "icache/base/status_macros.h"
#include "icache/fingerprint/fingerprint.h"

namespace icache {
namespace {

// A clock that is off by more makes stamps misleading; the round trip hides as much again.
constexpr absl::Duration kMaxSkew = absl::Seconds(1);

// Block sizes that engines use.
constexpr std::array<int32_t, 10> kLikelyBlockSizes = {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

std::string Join(const google::protobuf::RepeatedPtrField<std::string>& names, int64_t omitted) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + Visible(name);
  return omitted > 0 ? fmt::format("{} and {} more", text, omitted) : text;
}

// The findings as they come up.
class Judgement {
 public:
  explicit Judgement(const DoctorFacts& facts)
      : facts_(facts), scope_(facts.explanation.scope()), daemon_(facts.explanation.daemon()) {}

  std::vector<Finding> Run() && {
    CheckHealth();
    CheckVersion();
    CheckClock();
    if (CheckNames()) {
      CheckObservations();
      CheckLeases();
      CheckStats();
    }
    CheckBlockSize();
    return std::move(findings_);
  }

 private:
  void Ok(const char* check, std::string found) { findings_.push_back({check, Health::kOk, std::move(found), ""}); }
  void Warn(const char* check, std::string found, std::string mend) {
    findings_.push_back({check, Health::kWarning, std::move(found), std::move(mend)});
  }
  void Bad(const char* check, std::string found, std::string mend) {
    findings_.push_back({check, Health::kBad, std::move(found), std::move(mend)});
  }

  void CheckHealth() {
    if (facts_.serving) return Ok("health", facts_.settings.address + " is serving");
    Bad("health", facts_.settings.address + " answers, but is not ready: it is warming up or draining",
        "Wait for /readyz to turn 200; the daemon's log says what it waits for.");
  }

  void CheckVersion() {
    const std::string found = fmt::format("icached {}, icachectl {}", Visible(daemon_.version()), facts_.version);
    if (daemon_.version() == facts_.version) return Ok("version", found);
    Warn("version", found, "Use the icachectl of the daemon's release: fields that one does not know are not shown.");
  }

  void CheckClock() {
    const absl::Duration skew = absl::FromUnixMicros(daemon_.time_us()) - facts_.local_time;
    const absl::Duration shown = absl::AbsDuration(skew);
    if (shown <= kMaxSkew + facts_.round_trip) return Ok("clock", "the daemon's agrees with this host's");
    Warn("clock",
         fmt::format("the daemon's is {} {} this host's", AgeText(shown),
                     skew > absl::ZeroDuration() ? "ahead of" : "behind"),
         "Synchronise both with NTP: stamps of a fast clock count as now, those of a slow one make entries old.");
  }

  // Whether the scope is known.
  bool CheckNames() {
    const Settings& settings = facts_.settings;
    if (!scope_.tenant_known() && scope_.tenants().empty()) {
      Bad("names", "the daemon holds no prefix at all",
          "Let engines report: start icache-bridge beside them, with this daemon among its daemons (docs/engines.md).");
      return false;
    }
    const auto unknown = [&](const char* what, const char* flag, const std::string& name, const std::string& known) {
      Bad(what, fmt::format("no prefix is held for {} \"{}\"; held are: {}", what, Visible(name), known),
          fmt::format("Ask under a name that is held ({}), or let engines report under this one.", flag));
    };
    if (!scope_.tenant_known()) {
      unknown("tenant", "--tenant", settings.tenant, Join(scope_.tenants(), scope_.names_omitted()));
    } else if (!scope_.model_known()) {
      unknown("model", "--model", settings.model, Join(scope_.models(), scope_.names_omitted()));
    } else if (!scope_.hash_scheme_known()) {
      unknown("hash scheme", "--scheme", settings.scheme, Join(scope_.hash_schemes(), scope_.names_omitted()));
    } else {
      Ok("names", fmt::format("{} / {} / {}: {} replicas present", Visible(settings.tenant), Visible(settings.model),
                              Visible(settings.scheme), scope_.replicas_present()));
      return true;
    }
    return false;
  }

  void CheckObservations() {
    const absl::Duration age = Age(scope_.last_observation_us());
    const std::string found = fmt::format("the model's last update came {} ago", AgeText(age));
    if (age < Ttl() / 2) return Ok("reports", found);
    const std::string mend = "Check that the engines and their icache-bridge run and reach this daemon.";
    if (age < Ttl()) return Warn("reports", found + ", over half the TTL", mend);
    Bad("reports", found + ", longer than the TTL: all that is held is dead", mend);
  }

  void CheckLeases() {
    int64_t without = 0;
    for (const ops::Replica& replica : scope_.replicas()) {
      if (replica.lease_us() == 0 || Age(replica.lease_us()) >= Ttl()) ++without;
    }
    if (without == 0) return Ok("leases", "every replica renews its lease");
    Warn("leases", fmt::format("{} of {} replicas have no lease in force", without, scope_.replicas_size()),
         "Let reporters send retains_all within the TTL; engines announce a block once, so the hottest expire first.");
  }

  void CheckStats() {
    int64_t without = 0;
    for (const ops::Replica& replica : scope_.replicas()) {
      if (replica.stats_reported_us() == 0 || Age(replica.stats_reported_us()) >= Ttl()) ++without;
    }
    if (without == 0) return Ok("stats", "every replica reports stats");
    Warn("stats", fmt::format("{} of {} replicas have no stats in force", without, scope_.replicas_size()),
         "Set metrics_url of the engines in icache-bridge: without stats pressure counts as 0.");
  }

  void CheckBlockSize() {
    const std::string model = Visible(facts_.settings.model);
    if (facts_.matching_block_size.has_value()) {
      return Bad(
          "blocks",
          fmt::format("replicas hold these tokens in blocks of {}; the daemon hashes them in blocks of {}",
                      *facts_.matching_block_size, daemon_.block_size()),
          fmt::format("Set models.{}.block_size to {} in the daemon's config.", model, *facts_.matching_block_size));
    }
    if (facts_.expected_block_size.has_value() && *facts_.expected_block_size != daemon_.block_size()) {
      return Bad(
          "blocks",
          fmt::format("the daemon hashes token ids of the model in blocks of {}, not of {}", daemon_.block_size(),
                      *facts_.expected_block_size),
          fmt::format("Set models.{}.block_size in the daemon's config to what engines and gateways use.", model));
    }
    const std::string size = fmt::format("token ids are hashed in blocks of {}", daemon_.block_size());
    if (!facts_.tokens_given) return Ok("blocks", size);
    for (const ops::Match& match : facts_.explanation.matches()) {
      if (match.matched_blocks() > 0) return Ok("blocks", size + ", in which replicas hold these tokens");
    }
    Warn("blocks", size + ", in which nobody holds these tokens, nor in any other usual size",
         "Check that engines report the same token ids: same tokenizer, template and adapter.");
  }

  absl::Duration Age(int64_t then_us) const { return absl::Microseconds(daemon_.time_us() - then_us); }
  absl::Duration Ttl() const { return absl::Microseconds(facts_.explanation.policy().eviction_ttl_us()); }

  const DoctorFacts& facts_;
  const ops::Scope& scope_;
  const ops::Daemon& daemon_;
  std::vector<Finding> findings_;
};

const char* HealthText(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kBad:
      return "bad";
  }
  return "";
}

Tone ToneOf(Health health) {
  switch (health) {
    case Health::kOk:
      return Tone::kGood;
    case Health::kWarning:
      return Tone::kWarning;
    case Health::kBad:
      return Tone::kBad;
  }
  return Tone::kPlain;
}

// `text` broken between words into lines of at most `width` columns, those after the first with `indent` before them.
std::string Wrapped(const std::string& text, size_t width, const std::string& indent) {
  std::string wrapped;
  size_t column = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t length = DisplayWidth(word);
    if (column > 0 && column + 1 + length > width) {
      wrapped += "\n" + indent;
      column = 0;
    }
    wrapped += (column == 0 ? "" : " ") + word;
    column += (column == 0 ? 0 : 1) + length;
  }
  return wrapped;
}

std::string FindingsText(const std::vector<Finding>& findings, const Style& style) {
  constexpr size_t kIndent = 22;
  const std::string indent(kIndent, ' ');
  const size_t width = std::max<size_t>(style.width == 0 ? 80 : style.width, kIndent + 20) - kIndent;
  std::string text;
  for (const Finding& finding : findings) {
    const std::string health = HealthText(finding.health);
    text += Painted(health, ToneOf(finding.health), style) + std::string(9 - health.size(), ' ') +
            fmt::format("{:<13}", finding.check) + Wrapped(finding.found, width, indent) + "\n";
    if (!finding.mend.empty()) text += indent + Wrapped(finding.mend, width, indent) + "\n";
  }
  return text;
}

// A block size other than `used` in whose blocks replicas hold the beginning of `token_ids`.
absl::StatusOr<std::optional<int32_t>> FindBlockSize(const Client& client, const wire::LookupRouteRequest& names,
                                                     const std::vector<uint32_t>& token_ids, int32_t used) {
  for (const int32_t size : kLikelyBlockSizes) {
    if (size == used || token_ids.size() < static_cast<size_t>(size)) continue;
    wire::LookupRouteRequest request = names;
    request.clear_token_ids();
    request.add_block_hashes_u64(ContentHash(absl::MakeConstSpan(token_ids).first(static_cast<size_t>(size))));
    request.set_tokens_per_block(size);
    ASSIGN_OR_RETURN(const ops::ExplainRouteResponse explanation, client.Explain(request));
    if (!explanation.matches().empty()) return size;
  }
  return std::nullopt;
}

absl::StatusOr<DoctorFacts> Gather(const Settings& settings, const std::vector<uint32_t>& token_ids,
                                   int32_t block_size) {
  DoctorFacts facts;
  facts.settings = settings;
  facts.version = ICACHE_VERSION;
  facts.tokens_given = !token_ids.empty();
  if (block_size > 0) facts.expected_block_size = block_size;
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(facts.serving, client->IsServing());
  wire::LookupRouteRequest request;
  request.set_tenant_id(settings.tenant);
  request.set_model_id(settings.model);
  request.set_hash_scheme(settings.scheme);
  request.set_adapter_id(settings.adapter);
  request.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
  const absl::Time asked_at = absl::Now();
  ASSIGN_OR_RETURN(facts.explanation, client->Explain(request));
  facts.round_trip = absl::Now() - asked_at;
  facts.local_time = asked_at + facts.round_trip / 2;
  if (facts.tokens_given && facts.explanation.matches().empty()) {
    ASSIGN_OR_RETURN(facts.matching_block_size,
                     FindBlockSize(*client, request, token_ids, facts.explanation.daemon().block_size()));
  }
  return facts;
}

}  // namespace

std::vector<Finding> Judge(const DoctorFacts& facts) { return Judgement(facts).Run(); }

absl::StatusOr<bool> RunDoctor(const Settings& settings, const std::string& tokens, int32_t block_size) {
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::tenant));
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::model));
  ASSIGN_OR_RETURN(const std::string text, ReadArgument(tokens));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> token_ids, ParseTokenIds(text));
  ASSIGN_OR_RETURN(const DoctorFacts facts, Gather(settings, token_ids, block_size));
  const std::vector<Finding> findings = Judge(facts);
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  bool well = true;
  for (const Finding& finding : findings) {
    document.push_back({{"check", finding.check},
                        {"health", HealthText(finding.health)},
                        {"found", finding.found},
                        {"mend", finding.mend}});
    well = well && finding.health == Health::kOk;
  }
  RETURN_IF_ERROR(
      Print(settings.Output(), document, [&](const Style& style) { return FindingsText(findings, style); }));
  return well;
}

}  // namespace icache
