# icache_room(NAME <room> SRCS <files...> [DEPS <targets...>] [PRIVATE_DEPS <targets...>] [PRECOMPILE <headers...>])
#
# PRECOMPILE names foreign headers that most of the room's files include and that cost more than the files themselves.
#
# One room of the source tree: the library target icache_<room> (alias icache::<room>), built from src/<room>/, whose
# public headers are include/icache/<room>/. DEPS are the only rooms and libraries that it may use.
function(icache_room)
  cmake_parse_arguments(ROOM "" "NAME" "SRCS;DEPS;PRIVATE_DEPS;PRECOMPILE" ${ARGN})
  set(target icache_${ROOM_NAME})
  if(ROOM_SRCS)
    add_library(${target} STATIC ${ROOM_SRCS})
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PUBLIC ${ROOM_DEPS} PRIVATE ${ROOM_PRIVATE_DEPS} icache_compile)
    if(ROOM_PRECOMPILE)
      target_precompile_headers(${target} PRIVATE ${ROOM_PRECOMPILE})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${target} INTERFACE ${ROOM_DEPS})
  endif()
  add_library(icache::${ROOM_NAME} ALIAS ${target})
endfunction()

# icache_test(NAME <name> SRCS <files...> DEPS <targets...> [LABEL unit|concurrency|integration|bench-smoke]
#             [TIMEOUT seconds])
#
# One googletest program, run by ctest as one test named <name>. The target `threaded_tests` builds those of the labels
# concurrency and integration, which are what the thread sanitizer is for.
add_custom_target(threaded_tests)

function(icache_test)
  cmake_parse_arguments(TEST "" "NAME;LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT TEST_LABEL)
    set(TEST_LABEL unit)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  add_executable(${TEST_NAME} ${TEST_SRCS})
  set_target_properties(${TEST_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${TEST_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${TEST_NAME} PRIVATE ${TEST_DEPS} GTest::gmock GTest::gtest_main icache_compile)
  target_compile_definitions(${TEST_NAME} PRIVATE
    ICACHE_TEST_DATA_DIR="${CMAKE_SOURCE_DIR}/tests/data" ICACHE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    ICACHE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(TEST_LABEL MATCHES "^(concurrency|integration)$")
    add_dependencies(threaded_tests ${TEST_NAME})
  endif()
  add_test(NAME ${TEST_NAME} COMMAND ${TEST_NAME})
  set_tests_properties(${TEST_NAME} PROPERTIES LABELS ${TEST_LABEL} TIMEOUT ${TEST_TIMEOUT})
endfunction()
