# Compile and link options of the project's own targets, carried by one interface target.
add_library(icache_compile INTERFACE)
target_compile_options(icache_compile INTERFACE -Wall -Wextra -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(icache_compile INTERFACE -Wthread-safety -Werror=thread-safety)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Optimising, g++ 12 sees overlaps in "literal" + std::string that are not there (GCC bug 105651).
  target_compile_options(icache_compile INTERFACE $<$<CONFIG:RelWithDebInfo>:-Wno-restrict>)
endif()

if(ICACHE_SANITIZE)
  # Of debug information what a report's stack needs; the rest costs a fifth of the build.
  add_compile_options(-fsanitize=${ICACHE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=${ICACHE_SANITIZE})
  add_library(icache_sanitizer_options OBJECT ${CMAKE_SOURCE_DIR}/cmake/sanitizer_options.cc)
  target_sources(icache_compile INTERFACE $<TARGET_OBJECTS:icache_sanitizer_options>)
endif()

# "Optimised, symbols kept": CMake's own RelWithDebInfo stops at -O2 and keeps assertions off, as wanted.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g -DNDEBUG")

if(ICACHE_FUZZERS)
  # Everything is instrumented, so that the fuzzers see their way through the rooms; only they link libFuzzer.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
