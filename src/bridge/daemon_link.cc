#include "bridge/daemon_link.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bridge/daemon_secrets.h"
#include "bridge/queue_waker.h"
#include "icache/base/block_hash.h"
#include "icache/base/moment.h"
#include "icache/base/status_macros.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {

namespace wire = ::inferencecache::v1alpha1;

namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kReasonTimeout = absl::Seconds(1);  // for why there is none
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr absl::Duration kLook = absl::Milliseconds(100);  // how often the connection's state is looked at
// For the daemon to say that it listens, so that it speaks of the first clears, too. Once it has not, it is waited for
// no more.
constexpr absl::Duration kWatchPatience = absl::Seconds(2);
constexpr absl::Duration kFirstWatchPause = absl::Seconds(1);  // before it is asked to listen again
constexpr absl::Duration kLongestWatchPause = absl::Minutes(1);
constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// Tags of the completion queue.
enum Tag : intptr_t { kStart = 1, kWrite, kRead, kHalfClose, kFinish, kWake };
void* TagOf(Tag tag) { return reinterpret_cast<void*>(tag); }

std::chrono::system_clock::time_point Deadline(absl::Duration timeout) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
}

}  // namespace

// One connection, used by the sender's thread alone.
class DaemonConnection {
 public:
  // `giving_up` and, once it is open, `stopping` say when to wait no longer. Errors: whatever files cannot be used;
  // PermissionDenied when the daemon refuses who we are; Unavailable when nobody answers in time.
  static absl::StatusOr<std::unique_ptr<DaemonConnection>> Open(const std::string& address, const std::string& host,
                                                                const ReportOptions& options, QueueWaker* waker,
                                                                std::function<bool()> giving_up,
                                                                std::function<bool()> stopping) {
    std::unique_ptr<DaemonConnection> connection(new DaemonConnection(options, waker));
    connection->stopping_ = std::move(giving_up);
    ASSIGN_OR_RETURN(const DaemonSecrets secrets, ReadDaemonSecrets(options));
    if (!secrets.token.empty()) connection->authorization_ = absl::StrCat("Bearer ", secrets.token);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    const std::string name = options.tls_server_name.empty() ? host : options.tls_server_name;
    if (options.tls && !name.empty()) arguments.SetSslTargetNameOverride(name);
    connection->channel_ = grpc::CreateCustomChannel(address, CredentialsOf(options, secrets), arguments);
    connection->stub_ = wire::InferenceCache::NewStub(connection->channel_);
    const absl::Time give_up_at = SteadyNow() + kConnectTimeout;
    while (!connection->channel_->WaitForConnected(Deadline(kLook))) {
      if (connection->stopping_()) return absl::UnavailableError("told to stop");
      if (SteadyNow() > give_up_at) return connection->WhyUnconnected();
    }
    ASSIGN_OR_RETURN(connection->base_wire_, connection->HasBaseWire());
    RETURN_IF_ERROR(connection->AskLeave());
    if (!connection->base_wire_) RETURN_IF_ERROR(connection->StartStream());
    connection->stopping_ = std::move(stopping);
    return connection;
  }

  ~DaemonConnection() {
    waker_->Detach();
    for (const auto& [scope, watch] : watches_) {
      if (watch.stream != nullptr) watch.stream->context.TryCancel();
    }
    if (stream_ != nullptr && !finished_) {
      context_->TryCancel();
      stream_->Finish(&status_, TagOf(kFinish));
      Drain(kFinish);
    }
    queue_.Shutdown();
    Drain(std::nullopt);
  }

  bool base_wire() const { return base_wire_; }
  bool writing() const { return writing_; }
  bool IsUp() const { return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY; }

  // Asks the daemon to say what is cleared of a tenant's model, unless it has been asked already. True while its answer
  // is worth to be waited for: a clear that is sent then may stay unheard.
  bool AwaitsWatch(const std::string& tenant, const std::string& model, absl::Time now) {
    if (base_wire_) return false;
    Watch& watch = watches_[{tenant, model}];
    if (watch.stream == nullptr && watch.ask_at == absl::InfinitePast()) Ask({tenant, model}, &watch);
    if (watch.stream != nullptr && watch.stream->step == ClearStream::kReading) return false;
    if (patient_ && watch.stream != nullptr) patient_ = now < watch.asked_at + kWatchPatience;
    watch.has_gap |= !patient_;
    return patient_ && watch.stream != nullptr;
  }
  // Asks those again who have ended, when it is time to, and sees whether others have begun.
  void TendWatches(absl::Time now) {
    for (auto& [scope, watch] : watches_) {
      if (watch.stream == nullptr) {
        if (now >= watch.ask_at) Ask(scope, &watch);
      } else if (watch.stream->step == ClearStream::kReading && now >= watch.answered_at + kLook) {
        CloseGap(scope, &watch);
      }
    }
  }

  // What the daemon spoke of.
  struct News {
    std::string tenant;
    std::string model;
    std::optional<wire::CacheEvent> cleared;  // nullopt: clears may have been missed up to here
  };
  std::optional<News> TakeNews() {
    if (news_.empty()) return std::nullopt;
    News news = std::move(news_.front());
    news_.pop_front();
    return news;
  }
  // Why the daemon does not speak of clears, as it last said; "" while none has ended.
  const std::string& unheard() const { return unheard_; }

  // Ends the stream, and says what the daemon, or what became of the connection to it, had to say of that.
  std::string End() {
    if (stream_ != nullptr && !std::exchange(finished_, true)) {
      stream_->Finish(&status_, TagOf(kFinish));
      Complete(kFinish, context_.get(), SteadyNow() + kReasonTimeout);
    }
    if (status_.ok()) return "closed";
    if (status_.error_code() == grpc::StatusCode::CANCELLED) return "cut off";  // by us, as nobody said anything
    return status_.error_message();
  }

  // Begins to send; on the base wire it also ends. False when the connection is lost.
  bool Send(const CacheStateUpdate& update) {
    if (base_wire_) return SendBase(update);
    stream_->Write(update, TagOf(kWrite));
    writing_ = true;
    return true;
  }

  // Waits for a write to end, a wake-up, or the time to look again. False when the connection is lost.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, Deadline(kLook)) != grpc::CompletionQueue::GOT_EVENT) return true;
    if (TakeAside(tag, ok)) return true;
    if (tag == TagOf(kWrite)) writing_ = false;
    return ok;
  }

  // Ends the stream and waits for the daemon to have taken all of it.
  void Finish() {
    if (base_wire_ || writing_) return;
    stream_->WritesDone(TagOf(kHalfClose));
    if (!Complete(kHalfClose, context_.get())) return;
    stream_->Finish(&status_, TagOf(kFinish));
    finished_ = true;
    Complete(kFinish, context_.get());
  }

 private:
  DaemonConnection(const ReportOptions& options, QueueWaker* waker) : options_(options), waker_(waker) {
    waker_->Attach(&queue_);
  }

  static std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const ReportOptions& options,
                                                                 const DaemonSecrets& secrets) {
    if (!options.tls) return grpc::InsecureChannelCredentials();
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = secrets.ca;
    ssl.pem_cert_chain = secrets.certificate;
    ssl.pem_private_key = secrets.key;
    return grpc::SslCredentials(ssl);
  }

  void Prepare(grpc::ClientContext* context) const {
    if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
  }

  // A call that says what is cleared. Its own address is the tag of all its operations, of which one at a time goes on.
  struct ClearStream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReader<wire::CacheEvent>> reader;
    wire::CacheEvent event;
    grpc::Status status;
    enum { kStarting, kAwaiting, kReading, kEnding } step = kStarting;
  };
  struct Watch {
    std::unique_ptr<ClearStream> stream;       // null: it has ended
    absl::Time ask_at = absl::InfinitePast();  // then: when to ask again
    absl::Time asked_at = absl::InfinitePast();
    absl::Time answered_at = absl::InfinitePast();
    bool has_gap = false;  // something may have been cleared unheard
    absl::Duration pause = kFirstWatchPause;
  };
  using Scope = std::pair<std::string, std::string>;  // tenant, model

  void Ask(const Scope& scope, Watch* watch) {
    watch->stream = std::make_unique<ClearStream>();
    watch->asked_at = SteadyNow();
    ClearStream* stream = watch->stream.get();
    Prepare(&stream->context);
    wire::StreamEventsRequest request;
    request.set_tenant_id(scope.first);
    request.set_model_id(scope.second);
    request.add_types(wire::CacheEvent::ALL_CLEARED);
    stream->reader = stub_->PrepareAsyncStreamCacheEvents(&stream->context, request, &queue_);
    stream->reader->StartCall(stream);
  }

  // An operation of the watch's stream has ended.
  void Advance(const Scope& scope, Watch* watch, bool ok) {
    ClearStream* stream = watch->stream.get();
    if (stream->step == ClearStream::kEnding) return EndWatch(watch);
    if (!ok) {
      stream->step = ClearStream::kEnding;
      stream->reader->Finish(&stream->status, stream);
      return;
    }
    switch (stream->step) {
      case ClearStream::kStarting:
        stream->step = ClearStream::kAwaiting;
        return stream->reader->ReadInitialMetadata(stream);  // comes once the daemon listens
      case ClearStream::kAwaiting:
        stream->step = ClearStream::kReading;
        watch->answered_at = SteadyNow();
        break;
      default:
        CloseGap(scope, watch);
        news_.push_back({scope.first, scope.second, std::nullopt});
        // Another type says that events are missing here.
        if (stream->event.type() == wire::CacheEvent::ALL_CLEARED) news_.back().cleared = stream->event;
    }
    stream->reader->Read(&stream->event, stream);
  }

  // The daemon listens. An answer alone does not show it: that of a stream that is refused looks the same until it
  // ends, which is at once.
  void CloseGap(const Scope& scope, Watch* watch) {
    if (std::exchange(watch->has_gap, false)) news_.push_back({scope.first, scope.second, std::nullopt});
  }

  void EndWatch(Watch* watch) {
    const ClearStream& stream = *watch->stream;
    const grpc::StatusCode code = stream.status.error_code();
    // Exhausted are the streams that the daemon has for observers.
    const bool refused = code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::PERMISSION_DENIED ||
                         code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::RESOURCE_EXHAUSTED;
    const absl::Time now = SteadyNow();
    if (now - watch->asked_at > kLongestWatchPause) watch->pause = kFirstWatchPause;
    watch->ask_at = now + (refused ? kLongestWatchPause : watch->pause);
    watch->pause = std::min(2 * watch->pause, kLongestWatchPause);
    unheard_ = absl::StrCat(refused ? "refused: " : "ended: ", stream.status.error_message());
    watch->has_gap = true;
    watch->stream.reset();
  }

  // Takes the end of an operation that nobody waits for: a wake-up, or one of a ClearStream. False for others.
  bool TakeAside(void* tag, bool ok) {
    if (tag == TagOf(kWake)) {
      waker_->OnWoken();
      return true;
    }
    for (auto& [scope, watch] : watches_) {
      if (tag != watch.stream.get()) continue;
      Advance(scope, &watch, ok);
      return true;
    }
    return false;
  }

  // Waits for an operation of the call to end, and says whether it went well. At `deadline`, or when it is time to
  // stop, the call is cancelled.
  bool Complete(Tag tag, grpc::ClientContext* context, absl::Time deadline = absl::InfiniteFuture()) {
    void* got = nullptr;
    bool ok = false;
    while (true) {
      const bool has_event = queue_.AsyncNext(&got, &ok, Deadline(kLook)) == grpc::CompletionQueue::GOT_EVENT;
      if (has_event && got == TagOf(tag)) return ok;
      if (has_event) TakeAside(got, ok);
      if (stopping_() || SteadyNow() > deadline) context->TryCancel();
    }
  }

  // Takes events until `last`, or the end of the queue.
  void Drain(std::optional<Tag> last) {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      if (last.has_value() && tag == TagOf(*last)) return;
    }
  }

  // Shows whether the daemon takes reports from us: an empty stream of them is answered at once.
  absl::Status AskLeave() {
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(Deadline(kConnectTimeout));
    wire::Ack ack;
    const auto stream = stub_->PrepareAsyncReportCacheState(&context, &ack, &queue_);
    stream->StartCall(TagOf(kStart));
    if (Complete(kStart, &context)) {
      stream->WritesDone(TagOf(kHalfClose));
      Complete(kHalfClose, &context);
    }
    grpc::Status status;
    stream->Finish(&status, TagOf(kFinish));
    Complete(kFinish, &context);
    // One that finds fault with what is in it has taken it.
    const bool taken = status.ok() || status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
    return taken ? absl::OkStatus() : ErrorOf(status, "takes no reports");
  }

  absl::Status StartStream() {
    context_ = std::make_unique<grpc::ClientContext>();
    Prepare(context_.get());
    stream_ = stub_->PrepareAsyncReportCacheState(context_.get(), &ack_, &queue_);
    stream_->StartCall(TagOf(kStart));
    const bool started = Complete(kStart, context_.get(), SteadyNow() + kConnectTimeout);
    return started ? absl::OkStatus() : absl::UnavailableError("the stream does not start");
  }

  // What went wrong, from what a call ended with.
  static absl::Status ErrorOf(const grpc::Status& status, std::string_view what) {
    const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
                         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
    if (refused) return absl::PermissionDeniedError(status.error_message());
    return absl::UnavailableError(absl::StrCat(std::string(what), ": ", status.error_message()));
  }

  // Why there is no connection, which only a call is told.
  absl::Status WhyUnconnected() {
    grpc::ClientContext context;
    context.set_deadline(Deadline(kReasonTimeout));
    grpc::GenericStub generic(channel_);
    const auto call = generic.PrepareCall(&context, kReflection, &queue_);
    call->StartCall(TagOf(kStart));
    Complete(kStart, &context);
    grpc::Status status;
    call->Finish(&status, TagOf(kFinish));
    Complete(kFinish, &context);
    const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return ErrorOf(silent ? grpc::Status(status.error_code(), "nobody answers") : status, "cannot connect");
  }

  // Whether the daemon lacks the extension fields, as far as it tells: one without reflection is taken for an old one.
  absl::StatusOr<bool> HasBaseWire() {
    if (options_.wire != WireChoice::kAuto) return options_.wire == WireChoice::kBase;
    // A ServerReflectionRequest with file_containing_symbol.
    google::protobuf::UnknownFieldSet request;
    request.AddLengthDelimited(4, wire::CacheStateUpdate::descriptor()->full_name());
    std::string bytes;
    request.SerializeToString(&bytes);
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer message(&slice, 1);

    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(Deadline(kConnectTimeout));
    grpc::GenericStub generic(channel_);
    const auto call = generic.PrepareCall(&context, kReflection, &queue_);
    call->StartCall(TagOf(kStart));
    bool answered = Complete(kStart, &context);
    if (answered) {
      call->Write(message, TagOf(kWrite));
      answered = Complete(kWrite, &context);
    }
    grpc::ByteBuffer answer;
    if (answered) {
      call->Read(&answer, TagOf(kRead));
      answered = Complete(kRead, &context);
    }
    if (answered) context.TryCancel();
    grpc::Status status;
    call->Finish(&status, TagOf(kFinish));
    Complete(kFinish, &context);
    if (answered) return !DescribesExtensions(answer);
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return true;
    return ErrorOf(status, "cannot tell its wire");
  }

  // Whether a ServerReflectionResponse has a CacheStateUpdate with a field `clear`.
  static bool DescribesExtensions(const grpc::ByteBuffer& answer) {
    grpc::Slice bytes;
    google::protobuf::UnknownFieldSet response;
    if (!answer.DumpToSingleSlice(&bytes).ok() ||
        !response.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()))) {
      return false;
    }
    const auto for_each = [](const google::protobuf::UnknownFieldSet& set, int number, auto visit) {
      for (int i = 0; i < set.field_count(); ++i) {
        const google::protobuf::UnknownField& field = set.field(i);
        const bool is_bytes = field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED;
        if (is_bytes && field.number() == number) visit(field.length_delimited());
      }
    };
    bool found = false;
    for_each(response, 4, [&](const std::string& descriptors) {  // file_descriptor_response
      google::protobuf::UnknownFieldSet files;
      if (!files.ParseFromString(descriptors)) return;
      for_each(files, 1, [&](const std::string& text) {  // file_descriptor_proto
        google::protobuf::FileDescriptorProto file;
        if (!file.ParseFromString(text)) return;
        for (const auto& message : file.message_type()) {
          if (message.name() != wire::CacheStateUpdate::descriptor()->name()) continue;
          for (const auto& field : message.field()) {
            found |= field.number() == wire::CacheStateUpdate::kClearFieldNumber;
          }
        }
      });
    });
    return found;
  }

  // ---- The base wire ----

  bool SendBase(const CacheStateUpdate& update) {
    if (update.clear() && !Publish(update, wire::CacheEvent::ALL_CLEARED, "")) return false;
    char bytes[kPackedHashBytes];
    for (const uint64_t hash : update.evicted_hashes_u64()) {
      StoreBigEndian64(hash, bytes);
      if (!Publish(update, wire::CacheEvent::PREFIX_EVICTED, std::string(bytes, sizeof(bytes)))) return false;
    }
    CacheStateUpdate base = update;
    base.clear_clear();
    base.clear_retains_all();
    base.clear_evicted_hashes_u64();
    for (wire::PrefixEntry& entry : *base.mutable_prefixes()) {
      for (const uint64_t hash : entry.block_hashes_u64()) {
        StoreBigEndian64(hash, bytes);
        entry.add_block_hashes(bytes, sizeof(bytes));
        entry.add_block_token_counts(entry.tokens_per_block());
      }
      entry.clear_block_hashes_u64();
      entry.clear_tokens_per_block();
    }
    if (base.prefixes().empty() && !base.has_stats()) return true;
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(Deadline(options_.write_timeout));
    wire::Ack ack;
    const auto stream = stub_->PrepareAsyncReportCacheState(&context, &ack, &queue_);
    stream->StartCall(TagOf(kStart));
    if (Complete(kStart, &context)) {
      stream->WriteLast(base, grpc::WriteOptions(), TagOf(kWrite));
      Complete(kWrite, &context);
    }
    stream->Finish(&status_, TagOf(kFinish));
    Complete(kFinish, &context);
    return status_.ok();
  }

  bool Publish(const CacheStateUpdate& update, wire::CacheEvent::Type type, const std::string& hash) {
    wire::CacheEvent event;
    event.set_type(type);
    event.set_replica_id(update.replica_id());
    event.set_model_id(update.model_id());
    event.set_tenant_id(update.tenant_id());
    event.set_adapter_id(update.adapter_id());
    event.set_timestamp_us(update.timestamp_us());
    event.set_prefix_hash(hash);
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(Deadline(options_.write_timeout));
    wire::Ack ack;
    const auto call = stub_->PrepareAsyncPublishEvent(&context, event, &queue_);
    call->StartCall();
    call->Finish(&ack, &status_, TagOf(kFinish));
    Complete(kFinish, &context);
    return status_.ok();
  }

  const ReportOptions& options_;
  QueueWaker* const waker_;
  std::function<bool()> stopping_;
  std::string authorization_;  // "" = none
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::InferenceCache::Stub> stub_;
  grpc::CompletionQueue queue_;
  bool base_wire_ = false;
  std::unique_ptr<grpc::ClientContext> context_;
  wire::Ack ack_;
  std::unique_ptr<grpc::ClientAsyncWriter<CacheStateUpdate>> stream_;
  bool writing_ = false;
  bool finished_ = false;
  grpc::Status status_;  // of the stream, or of the last call on the base wire
  std::map<Scope, Watch> watches_;
  bool patient_ = true;    // no answer to a watch has come too late
  std::deque<News> news_;  // not taken yet
  std::string unheard_;
};

DaemonLink::DaemonLink(std::string address, std::string host, const ReportOptions* options, Logger* logger)
    : address_(std::move(address)),
      host_(std::move(host)),
      options_(options),
      logger_(logger),
      waker_(std::make_unique<QueueWaker>(TagOf(kWake))),
      outbox_(std::make_unique<Outbox>(options->max_queued_blocks, [this] { waker_->Wake(); })),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "daemon-link");
}

DaemonLink::~DaemonLink() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void DaemonLink::Stop() {
  stop_at_us_ = 0;
  waker_->Wake();
}

void DaemonLink::BeginFlush(absl::Time deadline) {
  stop_at_us_ = absl::ToUnixMicros(deadline);
  flushing_ = true;
  waker_->Wake();
}

void DaemonLink::WaitForFlush() {
  if (thread_.joinable()) thread_.join();
}

DaemonLink::Counts DaemonLink::counts() const {
  return {.updates = updates_,
          .blocks = blocks_,
          .connections = connections_,
          .write_timeouts = write_timeouts_,
          .foreign_clears = foreign_clears_,
          .base_wire = base_wire_};
}

void DaemonLink::Pause(absl::Duration time) {
  const absl::Time until = SteadyNow() + time;
  while (SteadyNow() < until && !stopping() && !flushing_) absl::SleepFor(std::min(kLook, until - SteadyNow()));
}

void DaemonLink::Run() {
  absl::Duration pause = kFirstPause;
  std::string failure;  // logged
  while (!stopping() && !flushing_) {
    auto connection = DaemonConnection::Open(
        address_, host_, *options_, waker_.get(), [this] { return stopping() || flushing_; },
        [this] { return stopping(); });
    if (!connection.ok()) {
      if (stopping() || flushing_) return;  // which is no fault of the daemon's
      const std::string reason(connection.status().message());
      if (std::exchange(failure, reason) != reason) {
        const bool refused = absl::IsPermissionDenied(connection.status());
        logger_->Warn(refused ? "daemon_refuses" : "daemon_unreachable", {{"address", address_}, {"reason", reason}});
      }
      Pause(pause);
      pause = std::min(pause * 2, kLongestPause);
      continue;
    }
    failure.clear();
    const absl::Time connected_at = SteadyNow();
    ++connections_;
    base_wire_ = (*connection)->base_wire();
    logger_->Info("daemon_connected", {{"address", address_}, {"wire", base_wire_ ? "base" : "extended"}});
    if (base_wire_) {
      logger_->Warn("daemon_without_extensions",
                    {{"address", address_}, {"effect", "no leases; evictions are sent one by one"}});
    }
    outbox_->OnConnected(base_wire_);
    Serve(connection->get());
    outbox_->OnDisconnected();
    if (!stopping() && !flushing_) {
      logger_->Warn("daemon_lost", {{"address", address_}, {"reason", (*connection)->End()}});
    }
    connection->reset();
    // One that takes the connection and drops it again is no reason to hurry either.
    if (SteadyNow() - connected_at > kLongestPause) pause = kFirstPause;
    Pause(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

void DaemonLink::Serve(DaemonConnection* connection) {
  absl::Time write_deadline = absl::InfiniteFuture();
  ClearWatch watch;
  std::optional<Outbox::Next> next;
  while (!stopping()) {
    if (!connection->writing()) {
      if (!next.has_value()) next = outbox_->Pop();
      if (next.has_value()) {
        const CacheStateUpdate& update = *next->report.update;
        if (flushing_ || !connection->AwaitsWatch(update.tenant_id(), update.model_id(), SteadyNow())) {
          if (!connection->Send(update)) return;
          watch.OnSent(next->replica, update, SteadyNow());
          ++updates_;
          blocks_ += static_cast<int64_t>(next->report.blocks);
          next.reset();
          write_deadline = SteadyNow() + options_->write_timeout;
          if (!connection->writing()) continue;
        }
      } else if (flushing_) {
        connection->Finish();
        return;
      }
    } else if (SteadyNow() > write_deadline) {
      ++write_timeouts_;
      logger_->Warn("daemon_stalled", {{"address", address_}});
      return;
    }
    if (!connection->Wait() || !connection->IsUp()) return;
    HearClears(connection, &watch);
  }
}

void DaemonLink::HearClears(DaemonConnection* connection, ClearWatch* watch) {
  const absl::Time now = SteadyNow();
  while (const std::optional<DaemonConnection::News> news = connection->TakeNews()) {
    if (!news->cleared.has_value()) {
      if (watch->OnMissed(news->tenant, news->model, now) == 0) continue;
      logger_->Info("clears_missed", {{"address", address_}, {"tenant", news->tenant}, {"model", news->model}});
      continue;
    }
    const ClearWatch::Verdict verdict = watch->OnCleared(*news->cleared, now);
    if (verdict == ClearWatch::Verdict::kExpected) continue;
    const bool foreign = verdict == ClearWatch::Verdict::kForeign;
    if (foreign) ++foreign_clears_;
    logger_->Warn(foreign ? "replica_cleared" : "replica_fenced",
                  {{"address", address_}, {"replica", news->cleared->replica_id()}});
  }
  for (const ClearWatch::Due& due : watch->TakeDue(now)) outbox_->Owe(due.replica, due.fence);
  connection->TendWatches(now);
  if (!connection->unheard().empty() && unheard_ != connection->unheard()) {
    unheard_ = connection->unheard();
    logger_->Info("clears_unheard", {{"address", address_}, {"reason", unheard_}});
  }
}

}  // namespace icache
