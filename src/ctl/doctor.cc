#include "ctl/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/time/clock.h"
#include "ctl/argument.h"
#include "ctl/client.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "icache/base/block_hash.h"
#include "icache/base/status_macros.h"
#include "icache/fingerprint/fingerprint.h"

namespace icache {
namespace {

// A clock that is off by more makes stamps misleading; the round trip hides as much again.
constexpr absl::Duration kMaxSkew = absl::Seconds(1);

// All but one in so many blocks are as good as all: engines drop the last one of a prompt, or add one.
constexpr int64_t kMostOf = 10;

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
      CheckStamps();
      CheckObservations();
      CheckLeases();
      CheckStats();
    }
    CheckBlockSize();
    CheckAnswer();
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
    const absl::Duration allowed = kMaxSkew + facts_.round_trip;
    if (shown <= allowed) {
      return Ok("clock", fmt::format("the daemon's agrees with this host's to within {}", AgeText(allowed)));
    }
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
      Ok("names", fmt::format("{} / {} / {}: {} present", Visible(settings.tenant), Visible(settings.model),
                              Visible(settings.scheme), Counted(scope_.replicas_present(), "replica")));
      return true;
    }
    return false;
  }

  // Whether the times that reporters send are microseconds. What is sent in a larger unit is dead on arrival, and all
  // that the other checks would say of it is that it is old.
  void CheckStamps() {
    std::string replicas;
    const char* unit = nullptr;
    for (const ops::Replica& replica : scope_.replicas()) {
      for (const int64_t stamp : {replica.lease_us(), replica.stats_reported_us(), replica.last_seen_us()}) {
        const char* const found = UnitOf(stamp);
        if (found == nullptr) continue;
        unit = found;
        replicas += (replicas.empty() ? "" : ", ") + Visible(replica.replica_id());
        break;
      }
    }
    if (unit == nullptr) return;
    Bad("stamps", fmt::format("the times that came from {} are {}, not microseconds", replicas, unit),
        "Have the reporter send timestamp_us in microseconds since 1970: until then all that it reports is too old.");
  }

  // The unit that a time of a reporter would be plausible in, when it is not the right one; else null.
  const char* UnitOf(int64_t stamp) const {
    const int64_t now = daemon_.time_us();
    const auto is_near_now = [now](int64_t time, int64_t unit_us) {
      return time >= now / 2 / unit_us && time <= now / unit_us * 2;
    };
    if (is_near_now(stamp, 1'000'000)) return "seconds";
    if (is_near_now(stamp, 1'000)) return "milliseconds";
    return nullptr;
  }

  void CheckObservations() {
    const std::string mend = "Check that the engines and their icache-bridge run and reach this daemon.";
    if (scope_.last_observation_us() == 0)
      return Warn("reports", "no update of the model has come, for any tenant", mend);
    const absl::Duration age = Age(scope_.last_observation_us());
    const std::string found = fmt::format("the model's last update, for whichever tenant, came {} ago", AgeText(age));
    if (age < Ttl() / 2) return Ok("reports", found);
    const std::string ttl = absl::FormatDuration(Ttl());
    if (age < Ttl()) return Warn("reports", fmt::format("{}, over half the TTL of {}", found, ttl), mend);
    Bad("reports", fmt::format("{}, longer than the TTL of {}", found, ttl), mend);
  }

  void CheckLeases() {
    CheckReplicas("leases", "a lease in force", &ops::Replica::lease_us,
                  "Let reporters send retains_all within the TTL; engines announce a block once, so the hottest expire "
                  "first.");
  }

  void CheckStats() {
    CheckReplicas("stats", "stats in force", &ops::Replica::stats_reported_us,
                  "Set metrics_url of the engines in icache-bridge: without stats pressure counts as 0.");
  }

  // Whether replicas have `what`, which they have reported at `time_us` (0 = never) and which lasts for a TTL.
  void CheckReplicas(const char* check, const char* what, int64_t (ops::Replica::*time_us)() const, const char* mend) {
    const int64_t listed = scope_.replicas_size();
    if (listed == 0) return;
    const int64_t with = std::count_if(scope_.replicas().begin(), scope_.replicas().end(), [&](const auto& replica) {
      return (replica.*time_us)() != 0 && Age((replica.*time_us)()) < Ttl();
    });
    const std::string looked_at =
        listed == scope_.replicas_present()
            ? Counted(listed, "replica")
            : fmt::format("{} that {} looked at, out of {},", Counted(listed, "replica"), listed == 1 ? "was" : "were",
                          WithCommas(scope_.replicas_present()));
    const std::string found = fmt::format("{} of {} {} {}", with, looked_at, with == 1 ? "has" : "have", what);
    if (with == listed) return Ok(check, found);
    Warn(check, found, mend);
  }

  void CheckBlockSize() {
    const std::string model = Visible(facts_.settings.model);
    const int32_t used = daemon_.block_size();
    const auto held = std::find_if(facts_.probes.begin(), facts_.probes.end(), std::mem_fn(&BlockProbe::held));
    if (held != facts_.probes.end() && held->block_size != used) {
      return Bad("blocks",
                 fmt::format("replicas hold the first {} of these tokens as a block; the daemon hashes blocks of {}",
                             held->block_size, used),
                 fmt::format("Set models.{}.block_size to {} in the daemon's config.", model, held->block_size));
    }
    if (facts_.expected_block_size.has_value() && *facts_.expected_block_size != used) {
      return Bad(
          "blocks",
          fmt::format("the daemon hashes token ids of the model in blocks of {}, not of {}", used,
                      *facts_.expected_block_size),
          fmt::format("Set models.{}.block_size in the daemon's config to what engines and gateways use.", model));
    }
    const std::string size = fmt::format("token ids are hashed in blocks of {}", used);
    if (facts_.probes.empty()) return Ok("blocks", size);
    if (held != facts_.probes.end()) return Ok("blocks", size + "; the first block of these tokens is held");
    CheckWhatIsNotHeld(size);
  }

  // No probe has found the first block alive. `size` says how the daemon hashes.
  void CheckWhatIsNotHeld(const std::string& size) {
    for (const BlockProbe& probe : facts_.probes) {
      if (!probe.asked) {
        return Warn(
            "blocks",
            fmt::format("{}; whether these tokens are held was not found out: {}", size, Visible(probe.because)),
            "Mend what icachectl explain says of these tokens, and ask again.");
      }
    }
    for (const BlockProbe& probe : facts_.probes) {
      if (!probe.expired) continue;
      return Warn(
          "blocks",
          fmt::format("{}; the first block of these tokens, of {}, is held, but has expired", size, probe.block_size),
          "Check that engines report and renew their leases within the TTL.");
    }
    std::string sizes;
    for (const BlockProbe& probe : facts_.probes) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(probe.block_size);
    }
    if (facts_.token_count < static_cast<size_t>(daemon_.block_size())) {
      return Warn("blocks",
                  fmt::format("{}; these {} tokens are fewer, and not held in blocks of {} either", size,
                              facts_.token_count, sizes),
                  fmt::format("Give --tokens at least {} token ids.", daemon_.block_size()));
    }
    Warn("blocks", fmt::format("{}; the first block of these tokens is not held, in any of the sizes {}", size, sizes),
         "Check that engines report the same token ids: same tokenizer, template and adapter.");
  }

  // What a gateway would be answered.
  void CheckAnswer() {
    if (facts_.token_count == 0) return;
    const std::string& reason = facts_.explanation.answer().reason_code();
    const std::string found =
        fmt::format("these tokens get {}: {}", Visible(reason), Visible(facts_.explanation.because()));
    if (reason == "PREFIX_MATCH") return Ok("answer", found);
    const ops::Policy& policy = facts_.explanation.policy();
    const int64_t least = std::max(policy.minimum_prefix_tokens(), policy.minimum_matched_tokens());
    if (reason == "NO_HINT" || reason == "AFFINITY_HINT") {
      if (facts_.explanation.input().tokens() < least) {
        return Ok("answer",
                  fmt::format("{}; the policy has prompts of fewer than {} tokens go anywhere", found, least));
      }
    }
    if (AllHoldAlike()) return CheckWhatAllHold(found);
    Warn("answer", found, "icachectl explain with these tokens tells every step.");
  }

  static bool IsAlive(const ops::Match& match) {
    return match.outcome() != ops::EXPIRED && match.outcome() != ops::NO_TOKENS;
  }

  // Whether the tokens are held, and by all replicas as far as by any.
  bool AllHoldAlike() const {
    const auto& matches = facts_.explanation.matches();
    return std::any_of(matches.begin(), matches.end(), IsAlive) &&
           std::all_of(matches.begin(), matches.end(), [](const ops::Match& match) {
             return !IsAlive(match) || (match.n() > 0 && match.k() == match.n());
           });
  }

  // All replicas hold the tokens alike, so none is preferred. That is well where they hold them to the end, and where
  // the policy would let a replica be preferred.
  void CheckWhatAllHold(const std::string& found) {
    const ops::Policy& policy = facts_.explanation.policy();
    const int64_t blocks = facts_.explanation.input().blocks();
    int64_t held = blocks;
    double best_score = 0;  // if others did not hold as much
    for (const ops::Match& match : facts_.explanation.matches()) {
      if (!IsAlive(match)) continue;
      held = std::min(held, match.matched_blocks());
      best_score = std::max<double>(best_score, static_cast<double>(match.matched_tokens()) * match.freshness() *
                                                    match.pressure_factor() * match.slo_bias());
    }
    if (best_score < policy.routing_floor_score()) {
      return Warn("answer",
                  fmt::format("{}; the policy's routingFloorScore of {} is above all that they could score", found,
                              policy.routing_floor_score()),
                  fmt::format("Lower it at {}, unless these prompts are to go anywhere.", Visible(policy.source())));
    }
    if (held * kMostOf < blocks * (kMostOf - 1)) {
      return Warn("answer",
                  fmt::format("{}; all replicas hold the first {} of their {} blocks alike, and not all of the rest",
                              found, held, blocks),
                  "Check that engines report all blocks of a prompt, of the same token ids: same tokenizer, template "
                  "and adapter.");
    }
    Ok("answer", found + "; all replicas hold them alike, so each is as good as another");
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

// What is held of the first block of `token_ids`, if it has `size` of them. Asks by the block's hash, so that neither
// the daemon's block size nor a policy that requires chains is in the way, and for as many tokens as the policy wants.
absl::StatusOr<BlockProbe> Probe(const Client& client, wire::LookupRouteRequest request, const ops::Policy& policy,
                                 const std::vector<uint32_t>& token_ids, int32_t size) {
  const uint64_t hash = ContentHash(absl::MakeConstSpan(token_ids).first(static_cast<size_t>(size)));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto tokens = static_cast<int32_t>(std::clamp<int64_t>(policy.minimum_prefix_tokens(), size, kMost));
  request.clear_token_ids();
  if (policy.enable_chain_matching()) {
    request.add_block_hashes_u64(hash);
    request.set_tokens_per_block(tokens);
  } else {
    request.mutable_prefix_hash()->resize(kPackedHashBytes);
    StoreBigEndian64(hash, request.mutable_prefix_hash()->data());
    request.set_prefix_token_count(tokens);
  }
  ASSIGN_OR_RETURN(const ops::ExplainRouteResponse explanation, client.Explain(request));
  BlockProbe probe = {.block_size = size, .asked = explanation.index_consulted(), .because = explanation.because()};
  for (const ops::Match& match : explanation.matches()) {
    (match.outcome() == ops::EXPIRED ? probe.expired : probe.held) = true;
  }
  return probe;
}

absl::StatusOr<std::vector<BlockProbe>> ProbeBlocks(const Client& client, const wire::LookupRouteRequest& request,
                                                    const ops::ExplainRouteResponse& explanation,
                                                    const std::vector<uint32_t>& token_ids) {
  std::vector<int32_t> sizes = {explanation.daemon().block_size()};
  std::copy_if(kLikelyBlockSizes.begin(), kLikelyBlockSizes.end(), std::back_inserter(sizes),
               [used = sizes[0]](int32_t size) { return size != used; });
  std::vector<BlockProbe> probes;
  for (const int32_t size : sizes) {
    if (token_ids.size() < static_cast<size_t>(size)) continue;
    ASSIGN_OR_RETURN(BlockProbe probe, Probe(client, request, explanation.policy(), token_ids, size));
    probes.push_back(std::move(probe));
    if (probes.back().held) break;
  }
  return probes;
}

absl::StatusOr<DoctorFacts> Gather(const Settings& settings, const std::vector<uint32_t>& token_ids,
                                   int32_t block_size) {
  DoctorFacts facts;
  facts.settings = settings;
  facts.version = ICACHE_VERSION;
  facts.token_count = token_ids.size();
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
  if (facts.explanation.scope().hash_scheme_known()) {
    ASSIGN_OR_RETURN(facts.probes, ProbeBlocks(*client, request, facts.explanation, token_ids));
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
