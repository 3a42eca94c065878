// What the sanitizers' runtimes are told in every sanitized program of the project, however it is started. The
// variables ASAN_OPTIONS, TSAN_OPTIONS and UBSAN_OPTIONS add to this.

extern "C" const char* __asan_default_options() {
  return "check_initialization_order=1:detect_stack_use_after_return=1:strict_string_checks=1";
}

extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// Debian's gRPC is not instrumented: what it synchronises with looks like races, unless its calls are ignored.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:ignore_noninstrumented_modules=1"; }

// Where a call's objects pass between two threads through the library, by way of its inline code in our programs, which
// the library synchronises unseen: the reflection service's own calls, and calls that one thread starts and another
// sees the end of. And the library's own threads, which it may leave to the end of the process to join.
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::Server::SyncRequest\n"
         "race:grpc::internal::CallOpSet<*>::FinalizeResult\n"
         "thread:grpc_core::Thread::Thread\n";
}
