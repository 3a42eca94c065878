// What the sanitizers' runtimes are told in every sanitized program of the project, however it is started. The variables
// ASAN_OPTIONS, TSAN_OPTIONS and UBSAN_OPTIONS add to this.

extern "C" const char* __asan_default_options() {
  return "check_initialization_order=1:detect_stack_use_after_return=1:strict_string_checks=1";
}

extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// Debian's gRPC is not instrumented: what it synchronises with looks like races, unless its calls are ignored.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:ignore_noninstrumented_modules=1"; }

// The reflection service is gRPC's own and synchronous: its calls' objects are made by inline code in our programs and
// freed in the library, which synchronises the two unseen.
extern "C" const char* __tsan_default_suppressions() { return "race:grpc::Server::SyncRequest\n"; }
