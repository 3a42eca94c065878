# Compile and link options of the project's own targets, carried by one interface target.
add_library(icache_compile INTERFACE)
target_compile_options(icache_compile INTERFACE -Wall -Wextra -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(icache_compile INTERFACE -Wthread-safety -Werror=thread-safety)
endif()

if(ICACHE_SANITIZE)
  add_compile_options(-fsanitize=${ICACHE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1)
  add_link_options(-fsanitize=${ICACHE_SANITIZE})
endif()

# "Optimised, symbols kept": CMake's own RelWithDebInfo stops at -O2 and keeps assertions off, as wanted.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g -DNDEBUG")
