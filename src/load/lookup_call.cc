#include "load/lookup_call.h"

#include <optional>

#include "absl/time/clock.h"

namespace icache {
namespace {

class UnaryLookup final : public LookupCall {
 public:
  using LookupCall::LookupCall;

  void Start(const wire::LookupRouteRequest& request) override {
    context_.emplace();
    connection_->Prepare(&*context_);
    context_->set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    reader_ = connection_->stub()->AsyncLookupRoute(&*context_, request, queue_);
    reader_->Finish(&response_, &status_, static_cast<LookupCall*>(this));
  }
  bool OnCompletion(bool /*ok*/) override { return true; }

 private:
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<wire::LookupRouteResponse>> reader_;
};

class StreamLookup final : public LookupCall {
 public:
  using LookupCall::LookupCall;
  ~StreamLookup() override {
    if (context_.has_value()) context_->TryCancel();
  }

  void Start(const wire::LookupRouteRequest& request) override {
    request_ = &request;
    if (stream_ != nullptr) {
      Exchange();
      return;
    }
    state_ = State::kOpening;
    connection_->Prepare(&context_.emplace());
    stream_ = connection_->stub()->AsyncLookupRouteStream(&*context_, queue_, Begin());
  }

  bool OnCompletion(bool ok) override {
    --operations_;
    broken_ = broken_ || !ok;
    if (operations_ > 0) return false;
    if (state_ == State::kEnding) {
      stream_.reset();
      context_.reset();
      broken_ = false;
      return true;
    }
    if (broken_) {
      state_ = State::kEnding;
      stream_->Finish(&status_, Begin());
      return false;
    }
    if (state_ == State::kOpening) {
      Exchange();
      return false;
    }
    status_ = grpc::Status::OK;
    return true;
  }

 private:
  enum class State { kOpening, kExchanging, kEnding };

  void Exchange() {
    state_ = State::kExchanging;
    stream_->Write(*request_, Begin());
    stream_->Read(&response_, Begin());
  }
  // The tag for an operation.
  void* Begin() {
    ++operations_;
    return static_cast<LookupCall*>(this);
  }

  State state_ = State::kOpening;
  int operations_ = 0;   // started and not completed
  bool broken_ = false;  // an operation of the stream has failed
  const wire::LookupRouteRequest* request_ = nullptr;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<wire::LookupRouteRequest, wire::LookupRouteResponse>> stream_;
};

}  // namespace

std::unique_ptr<LookupCall> LookupCall::Make(LookupMode mode, const Connection* connection,
                                             grpc::CompletionQueue* queue) {
  if (mode == LookupMode::kStream) return std::make_unique<StreamLookup>(connection, queue);
  return std::make_unique<UnaryLookup>(connection, queue);
}

}  // namespace icache
