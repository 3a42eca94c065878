#include "load/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "icache/base/status_macros.h"
#include "load/format.h"
#include "load/output.h"
#include "load/prompt.h"
#include "load/trace_file.h"

namespace icache {
namespace {

constexpr int64_t kNovelId = kMaxTraceNumber;  // traces count their ids from 0, so this end is free
constexpr size_t kFewestIds = 4;
constexpr std::string_view kUnknown = "unheard-of";  // a tenant, a model and a scheme that nobody reports for

struct Question {
  std::string asked;  // in words
  wire::LookupRouteRequest request;
};

// The first `ids` pieces of `request`, whole.
TraceRequest Head(const TraceRequest& request, size_t ids) {
  TraceRequest head = request;
  head.hash_ids.resize(ids);
  head.input_tokens = std::min(request.input_tokens, static_cast<int32_t>(ids) * kTraceIdTokens);
  return head;
}

// `head` continued by two pieces that nobody has ever seen; `which` tells such tails apart.
TraceRequest WithNovelTail(TraceRequest head, int64_t which) {
  head.hash_ids.push_back(kNovelId - 2 * which);
  head.hash_ids.push_back(kNovelId - 2 * which - 1);
  head.input_tokens = static_cast<int32_t>(head.hash_ids.size()) * kTraceIdTokens;
  return head;
}

class Demo {
 public:
  explicit Demo(const DemoOptions& options) : options_(options), expander_(options.block_size) {}

  wire::CacheStateUpdate Holds(std::string_view replica, const TraceRequest& request) {
    wire::CacheStateUpdate update = Cleared(replica);
    const absl::Span<const uint64_t> chain = expander_.Chain(request);
    wire::PrefixEntry* prefix = update.add_prefixes();
    prefix->mutable_block_hashes_u64()->Assign(chain.begin(), chain.end());
    prefix->set_tokens_per_block(options_.block_size);
    prefix->set_tier(wire::CACHE_TIER_T1);
    return update;
  }

  wire::CacheStateUpdate Cleared(std::string_view replica) const {
    wire::CacheStateUpdate update;
    update.set_replica_id(std::string(replica));
    update.set_tenant_id(options_.target.tenant);
    update.set_model_id(options_.target.model);
    update.set_hash_scheme(options_.target.scheme);
    update.set_clear(true);
    return update;
  }

  Question Ask(std::string asked, const TraceRequest& request) {
    Question question{.asked = std::move(asked), .request = {}};
    question.request.set_tenant_id(options_.target.tenant);
    question.request.set_model_id(options_.target.model);
    question.request.set_hash_scheme(options_.target.scheme);
    const absl::Span<const uint64_t> chain = expander_.Chain(request);
    question.request.mutable_block_hashes_u64()->Assign(chain.begin(), chain.end());
    question.request.set_tokens_per_block(options_.block_size);
    return question;
  }

  Question AskWithTokens(std::string asked, const TraceRequest& request) {
    Question question = Ask(std::move(asked), request);
    question.request.clear_block_hashes_u64();
    question.request.clear_tokens_per_block();
    std::vector<uint32_t> tokens;
    ExpandTokens(request, &tokens);
    question.request.mutable_token_ids()->Assign(tokens.begin(), tokens.end());
    return question;
  }

  // The tour's questions about the prompts of `first` and `second`.
  std::vector<Question> Questions(const TraceRequest& first, const TraceRequest& second) {
    std::vector<Question> questions;
    questions.push_back(Ask("prompt A, word for word", first));
    questions.push_back(AskWithTokens("prompt A as token ids", first));
    questions.push_back(
        Ask("three quarters of A, then new text", WithNovelTail(Head(first, first.hash_ids.size() * 3 / 4), 0)));
    questions.push_back(Ask("a follow-up to prompt B", WithNovelTail(Head(second, second.hash_ids.size() - 1), 1)));
    questions.push_back(Ask("a prompt that nobody holds", WithNovelTail({.timestamp_ms = 0}, 2)));
    questions.push_back(Ask("another one", WithNovelTail({.timestamp_ms = 0}, 3)));
    questions.push_back(Ask("prompt A in an unknown hash scheme", first));
    questions.back().request.set_hash_scheme(std::string(kUnknown));
    questions.push_back(Ask("prompt A for an unknown model", first));
    questions.back().request.set_model_id(std::string(kUnknown));
    questions.push_back(Ask("prompt A of an unknown tenant", first));
    questions.back().request.set_tenant_id(std::string(kUnknown));
    return questions;
  }

 private:
  const DemoOptions& options_;
  PromptExpander expander_;
};

std::string AnswerRows(const Question& question, const wire::LookupRouteResponse& response) {
  std::string text;
  std::string lead = fmt::format("{:<36} {:<21}", question.asked, response.reason_code());
  const std::string latency = fmt::format(" {:>7} µs", WithCommas(response.lookup_latency_us()));
  if (response.replica_scores().empty()) return fmt::format("{} {:<10} {:>8} {:>9}{}\n", lead, "-", "", "", latency);
  for (int i = 0; i < response.replica_scores_size(); ++i) {
    const wire::ReplicaScore& row = response.replica_scores(i);
    text += fmt::format("{:<58} {:<10} {:>8} {:>9.1f}{}\n", i == 0 ? lead : "", row.replica_id(),
                        WithCommas(row.matched_tokens()), row.score(), i == 0 ? latency : "");
  }
  return text;
}

}  // namespace

absl::Status RunDemo(const DemoOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<TraceRequest> trace, ReadTrace(options.trace_path, 2));
  if (trace.size() < 2 || trace[0].hash_ids.size() < kFewestIds || trace[1].hash_ids.size() < kFewestIds) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the demo needs two requests of {} hash_ids at least", options.trace_path, kFewestIds));
  }
  const TraceRequest& first = trace[0];
  const TraceRequest& second = trace[1];
  const TraceRequest half = Head(first, first.hash_ids.size() / 2);

  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(options.target, kCallTimeout));
  Demo demo(options);
  RETURN_IF_ERROR(connection->Report({demo.Holds("replica-a", first)}));
  RETURN_IF_ERROR(connection->Report({demo.Holds("replica-b", half)}));
  RETURN_IF_ERROR(connection->Report({demo.Holds("replica-c", second)}));

  std::string text = fmt::format(
      "replica-a holds prompt A ({} tokens), replica-b its first {} tokens, replica-c prompt B ({} tokens)\n\n",
      WithCommas(first.input_tokens), WithCommas(half.input_tokens), WithCommas(second.input_tokens));
  text += fmt::format("{:<36} {:<21} {:<10} {:>8} {:>9} {:>10}\n", "question", "answer", "replica", "matched", "score",
                      "latency");
  size_t matches = 0;
  for (const Question& question : demo.Questions(first, second)) {
    wire::LookupRouteResponse response;
    RETURN_IF_ERROR(connection->Lookup(question.request, &response));
    if (response.reason_code() == "PREFIX_MATCH") ++matches;
    text += AnswerRows(question, response);
  }
  RETURN_IF_ERROR(WriteText("-", text));
  for (const std::string_view replica : {"replica-a", "replica-b", "replica-c"}) {
    RETURN_IF_ERROR(connection->Report({demo.Cleared(replica)}));
  }
  return matches > 0 ? absl::OkStatus() : absl::FailedPreconditionError("no question was answered by a PREFIX_MATCH");
}

}  // namespace icache
