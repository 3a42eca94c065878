#!/usr/bin/env bash
# What takes longer than .ci/run may; to be run before an issue is called done. Random lives of the index from fresh seeds,
# the daemon under load, for its memory and with sanitizers, long fuzzing, clang-tidy over everything.
#
#   ICACHE_LONG_SECONDS   how long each of the random runs, the loads and the fuzzers lasts; default: 600
#   ICACHE_SOAK_SECONDS   how long the soak lasts; default: 1200
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/lib.sh"

readonly seconds=${ICACHE_LONG_SECONDS:-600}

# Seed after seed until the time is over. A failure names its seed and step.
random_index() {
  local end=$((SECONDS + seconds)) runs=0
  while ((SECONDS < end)); do
    ICACHE_RANDOM_SEED=$SRANDOM ICACHE_RANDOM_STEPS=100000 "build/$1/tests/prefix_index_random_test" --gtest_brief=1
    runs=$((runs + 1))
  done
  echo "$runs seeds."
}

# Lookups and observations at once against a daemon that is full, so that it evicts all the time.
load() {
  start_daemon "$1" --max-entries 50000 --sweep-interval 100ms --default-ttl 30s
  build/release/bin/icache-load bench --address "$grpc" --duration "${seconds}s" --ingest-blocks-per-s 20000
  stop_daemon
}

step "packages" deploy/install-deps.sh build test ci
step "build (release)" build release
step "random index (release)" random_index release
step "long life of the index" build/release/bin/long_life
step "soak (release)" tests/soak.py --bin build/release/bin --seconds "${ICACHE_SOAK_SECONDS:-1200}"
for sanitizer in asan tsan; do
  step "build ($sanitizer)" build "$sanitizer" icached prefix_index_random_test
  step "load ($sanitizer)" load "$sanitizer"
done
step "random index (asan)" random_index asan
step "build (asan, all)" build asan
step "ctest (asan)" run_ctest asan
step "build (tsan, all)" build tsan
step "ctest (tsan)" run_ctest tsan --exclude-regex "$not_for_tsan"
step "build (clang)" build clang
step "fuzz" tests/fuzz/run.sh "$seconds"
step "clang-tidy" check_tidy include src tests bench
