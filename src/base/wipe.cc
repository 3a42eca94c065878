#include "icache/base/wipe.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace icache {
namespace {

thread_local int wiping_depth = 0;

}  // namespace

void Wipe(std::string* text) {
  text->resize(text->capacity());
  explicit_bzero(text->data(), text->size());
  text->clear();
}

WipeFreedMemory::WipeFreedMemory() { ++wiping_depth; }
WipeFreedMemory::~WipeFreedMemory() { --wiping_depth; }

}  // namespace icache

#ifdef __has_feature
#define ICACHE_HAS_FEATURE(feature) __has_feature(feature)
#else
#define ICACHE_HAS_FEATURE(feature) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !ICACHE_HAS_FEATURE(address_sanitizer) && \
    !ICACHE_HAS_FEATURE(thread_sanitizer)

// The standard library's own other forms end in these.
void* operator new(size_t size) {
  for (;;) {
    if (void* const memory = malloc(size > 0 ? size : 1)) return memory;
    const std::new_handler make_room = std::get_new_handler();
    if (make_room == nullptr) throw std::bad_alloc();
    make_room();
  }
}

void operator delete(void* memory) noexcept {
  if (icache::wiping_depth > 0 && memory != nullptr) explicit_bzero(memory, malloc_usable_size(memory));
  free(memory);
}
void operator delete(void* memory, size_t /*size*/) noexcept { operator delete(memory); }

#endif
