#include "ctl/lookup_verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ctl/argument.h"
#include "ctl/client.h"
#include "ctl/message_json.h"
#include "ctl/output.h"
#include "ctl/policy_view.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "icache/base/block_hash.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

using Align = Table::Align;

absl::Status AddHashes(const std::string& argument, int32_t block_size, wire::LookupRouteRequest* request) {
  ASSIGN_OR_RETURN(const std::string text, ReadArgument(argument));
  ASSIGN_OR_RETURN(const std::vector<std::string> hashes, ParseHashes(text));
  if (hashes.empty()) return absl::InvalidArgumentError("--hashes: holds no hash");
  const bool packed = std::all_of(hashes.begin(), hashes.end(),
                                  [](const std::string& hash) { return hash.size() == kPackedHashBytes; });
  for (const std::string& hash : hashes) {
    if (packed) {
      request->add_block_hashes_u64(LoadBigEndian64(hash.data()));
    } else {
      request->add_block_hashes(hash);
      request->add_block_token_counts(block_size);
    }
  }
  if (packed) request->set_tokens_per_block(block_size);
  return absl::OkStatus();
}

std::string TierText(wire::CacheTier tier) {
  switch (tier) {
    case wire::CACHE_TIER_T1:
      return "T1";
    case wire::CACHE_TIER_T2:
      return "T2";
    case wire::CACHE_TIER_T3:
      return "T3";
    default:
      return "-";
  }
}

Tone ToneOf(const wire::LookupRouteResponse& answer) {
  if (answer.reason_code() == "PREFIX_MATCH") return Tone::kGood;
  return answer.replica_scores().empty() ? Tone::kBad : Tone::kWarning;
}

std::string AnswerTable(const wire::LookupRouteResponse& answer, const Style& style) {
  std::string text =
      fmt::format("{}  {} µs in the daemon\n", Painted(Visible(answer.reason_code()), ToneOf(answer), style),
                  WithCommas(answer.lookup_latency_us()));
  if (answer.replica_scores().empty()) return text;
  Table table(
      {{"REPLICA"}, {"SCORE", Align::kRight}, {"TOKENS", Align::kRight}, {"HIT PROB", Align::kRight}, {"TIER"}});
  for (const wire::ReplicaScore& row : answer.replica_scores()) {
    table.AddRow({Visible(row.replica_id()), fmt::format("{:.3f}", row.score()), WithCommas(row.matched_tokens()),
                  fmt::format("{:.3f}", row.estimated_cache_hit_prob()), TierText(row.tier())});
  }
  return text + "\n" + table.Render(style);
}

// ---- explain -------------------------------------------------------------------------------------------------------

Table::Cell OutcomeCell(ops::Outcome outcome) {
  switch (outcome) {
    case ops::RETURNED:
      return {"returned", Tone::kGood};
    case ops::EXPIRED:
      return {"expired", Tone::kBad};
    case ops::NO_TOKENS:
      return {"no tokens", Tone::kBad};
    case ops::NO_CANDIDATE:
      return {"no candidate", Tone::kWarning};
    case ops::BELOW_MINIMUM_PREFIX_TOKENS:
      return {"below minimumPrefixTokens", Tone::kWarning};
    case ops::BELOW_MINIMUM_MATCHED_TOKENS:
      return {"below minimumMatchedTokens", Tone::kWarning};
    case ops::BELOW_ROUTING_FLOOR_SCORE:
      return {"below routingFloorScore", Tone::kWarning};
    case ops::BEYOND_MAX_REPLICAS:
      return {"beyond max_replicas", Tone::kFaint};
    case ops::DISABLED:
      return {"disabled by policy", Tone::kWarning};
    case ops::TIMED_OUT:
      return {"timed out", Tone::kBad};
    default:
      return {"-"};
  }
}

std::string InputText(const ops::Input& input) {
  switch (input.kind()) {
    case ops::Input::CHAIN:
      return fmt::format("a chain of {}, {}", Counted(input.blocks(), "block"), Counted(input.tokens(), "token"));
    case ops::Input::TOKEN_CHAIN:
      return fmt::format("token ids, as a chain of {}, {}", Counted(input.blocks(), "block"),
                         Counted(input.tokens(), "token"));
    case ops::Input::HASH:
      return input.tokens() == 0 ? std::string("one hash, matched exactly")
                                 : fmt::format("one hash for {}, matched exactly", Counted(input.tokens(), "token"));
    case ops::Input::TOKEN_HASH:
      return fmt::format("token ids, as the hash of their last block ({}), matched exactly",
                         Counted(input.tokens(), "token"));
    case ops::Input::NOTHING:
      return "none";
    case ops::Input::UNUSABLE:
      return "cannot be used: " + Visible(input.problem());
    default:
      return "not looked at";
  }
}

std::string NamesText(const google::protobuf::RepeatedPtrField<std::string>& names, int64_t omitted) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + Visible(name);
  if (omitted > 0) text += fmt::format(" and {} more", WithCommas(omitted));
  return text.empty() ? "none" : text;
}

std::string ScopeText(const ops::ExplainRouteResponse& explanation) {
  const ops::Scope& scope = explanation.scope();
  if (!scope.tenant_known()) return "tenant unknown; known: " + NamesText(scope.tenants(), scope.names_omitted());
  if (!scope.model_known()) return "model unknown; known: " + NamesText(scope.models(), scope.names_omitted());
  if (!scope.hash_scheme_known()) {
    return "hash scheme unknown; known: " + NamesText(scope.hash_schemes(), scope.names_omitted());
  }
  std::string text = Counted(scope.replicas_present(), "replica") + " present";
  if (scope.last_observation_us() > 0) {
    text += fmt::format(", last update of the model {} ago",
                        AgeText(absl::Microseconds(explanation.daemon().time_us() - scope.last_observation_us())));
  }
  return text;
}

std::string AgeWithSource(const ops::Match& match) {
  return AgeText(absl::Microseconds(match.age_us())) + (match.age_source() == ops::Match::LEASE ? " (lease)" : "");
}

// What became of the block at which the replica dropped out.
std::string NextBlockText(const ops::Match& match, const ops::Input& input) {
  if (match.matched_blocks() >= input.blocks()) return "-";
  return match.blocks_ignoring_age() > match.matched_blocks() ? "expired" : "missing";
}

std::string MatchTables(const ops::ExplainRouteResponse& explanation, const Style& style) {
  if (explanation.matches().empty()) return "";
  Table rows(
      {{"REPLICA"}, {"BLOCKS", Align::kRight}, {"NEXT"}, {"TOKENS", Align::kRight}, {"AGE"}, {"TIER"}, {"OUTCOME"}});
  Table factors({{"REPLICA"},
                 {"TOKENS", Align::kRight},
                 {"× FRESH", Align::kRight},
                 {"× PRESSURE", Align::kRight},
                 {"× SLO", Align::kRight},
                 {"× POWER"},
                 {"= SCORE", Align::kRight}});
  for (const ops::Match& match : explanation.matches()) {
    rows.AddRow({Visible(match.replica_id()),
                 fmt::format("{}/{}", match.matched_blocks(), explanation.input().blocks()),
                 NextBlockText(match, explanation.input()), WithCommas(match.matched_tokens()), AgeWithSource(match),
                 TierText(match.tier()), OutcomeCell(match.outcome())});
    if (match.k() == 0) continue;
    factors.AddRow({Visible(match.replica_id()), WithCommas(match.matched_tokens()),
                    fmt::format("{:.3f}", match.freshness()), fmt::format("{:.3f}", match.pressure_factor()),
                    fmt::format("{:.2f}", match.slo_bias()),
                    fmt::format("{:.3f} ({} of {})", match.distinguishing_power(), match.k(), match.n()),
                    fmt::format("{:.3f}", match.score())});
  }
  std::string text = "\n" + rows.Render(style);
  if (explanation.matches_omitted() > 0) {
    text += fmt::format("and {} more\n", WithCommas(explanation.matches_omitted()));
  }
  if (!factors.empty()) text += "\n" + factors.Render(style);
  return text;
}

std::string WarmTable(const ops::TenantHot& hot, const Style& style) {
  if (hot.replicas().empty()) return "";
  Table table({{"REPLICA"},
               {"HIT RATE", Align::kRight},
               {"× RECENCY", Align::kRight},
               {"× PRESSURE", Align::kRight},
               {"× SLO", Align::kRight},
               {"= SCORE", Align::kRight},
               {"OUTCOME"}});
  for (const ops::WarmReplica& row : hot.replicas()) {
    table.AddRow({Visible(row.replica_id()), fmt::format("{:.3f}", row.hit_rate()),
                  fmt::format("{:.3f}", row.recency()), fmt::format("{:.3f}", row.pressure_factor()),
                  fmt::format("{:.2f}", row.slo_bias()), fmt::format("{:.3f}", row.score()),
                  row.warm() ? OutcomeCell(row.outcome()) : Table::Cell("not warm", Tone::kFaint)});
  }
  std::string text = "\n" + table.Render(style);
  if (hot.replicas_omitted() > 0) text += fmt::format("and {} more\n", WithCommas(hot.replicas_omitted()));
  return text;
}

std::string ExplanationText(const ops::ExplainRouteResponse& explanation, const Style& style) {
  const wire::LookupRouteResponse& answer = explanation.answer();
  std::string text = fmt::format("{}: {}\n\n", Painted(Visible(answer.reason_code()), ToneOf(answer), style),
                                 Visible(explanation.because()));
  const auto line = [&](const char* name, const std::string& what) { text += fmt::format("{:<12}{}\n", name, what); };
  line("input", InputText(explanation.input()));
  line("scope", ScopeText(explanation));
  if (!explanation.index_consulted()) line("index", "not consulted");
  line("policy", explanation.policy().source().empty() ? "the defaults: no manifest names the tenant"
                                                       : Visible(explanation.policy().source()));
  line("", PolicySummary(explanation.policy()));
  if (explanation.has_tenant_hot()) {
    line("TENANT_HOT",
         (explanation.tenant_hot().tried() ? "" : "not tried: ") + Visible(explanation.tenant_hot().because()));
  }
  if (explanation.has_affinity()) {
    const ops::Affinity& affinity = explanation.affinity();
    std::string what = (affinity.tried() ? "" : "not tried: ") + Visible(affinity.because());
    if (!affinity.replica_id().empty()) what += ": " + Visible(affinity.replica_id());
    line("AFFINITY", what);
  }
  return text + MatchTables(explanation, style) + WarmTable(explanation.tenant_hot(), style);
}

}  // namespace

absl::StatusOr<wire::LookupRouteRequest> RequestOf(const Settings& settings, const Question& question) {
  wire::LookupRouteRequest request;
  request.set_tenant_id(settings.tenant);
  request.set_model_id(settings.model);
  request.set_hash_scheme(settings.scheme);
  request.set_adapter_id(settings.adapter);
  for (const std::string& candidate : question.candidates) request.add_candidate_replica_ids(candidate);
  request.set_max_replicas(question.max_replicas);
  if (question.ttft_ms > 0) request.mutable_slo()->set_ttft_ms(question.ttft_ms);
  if (!question.hashes.empty()) {
    RETURN_IF_ERROR(AddHashes(question.hashes, question.block_size, &request));
  } else if (!question.hash.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadArgument(question.hash));
    ASSIGN_OR_RETURN(const std::vector<std::string> hashes, ParseHashes(text));
    if (hashes.size() != 1) return absl::InvalidArgumentError("--hash: takes one hash; --hashes takes a chain");
    request.set_prefix_hash(hashes[0]);
    request.set_prefix_token_count(question.prefix_tokens);
  } else if (!question.tokens.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadArgument(question.tokens));
    ASSIGN_OR_RETURN(const std::vector<uint32_t> token_ids, ParseTokenIds(text));
    request.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
  } else if (!question.text.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_prompt_text(), ReadArgument(question.text));
  }
  return request;
}

absl::StatusOr<bool> RunLookup(const Settings& settings, const Question& question) {
  ASSIGN_OR_RETURN(const wire::LookupRouteRequest request, RequestOf(settings, question));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const wire::LookupRouteResponse answer, client->Lookup(request));
  RETURN_IF_ERROR(
      Print(settings.Output(), ToJson(answer), [&](const Style& style) { return AnswerTable(answer, style); }));
  return !answer.replica_scores().empty();
}

absl::StatusOr<bool> RunExplain(const Settings& settings, const Question& question) {
  ASSIGN_OR_RETURN(const wire::LookupRouteRequest request, RequestOf(settings, question));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const ops::ExplainRouteResponse explanation, client->Explain(request));
  RETURN_IF_ERROR(Print(settings.Output(), ToJson(explanation),
                        [&](const Style& style) { return ExplanationText(explanation, style); }));
  return !explanation.answer().replica_scores().empty();
}

}  // namespace icache
