#!/usr/bin/env bash
# Runs every fuzz target of build/clang (made by `cmake --build --preset clang --target fuzzers`) for a number of seconds, two at a time,
# from its kept corpus. Fails on the first crash, leak, hang or runaway allocation and leaves the input that caused it in
# build/fuzz/<target>/. To keep what a run has found: tests/fuzz/run.sh SECONDS --merge.
#
#   tests/fuzz/run.sh [SECONDS] [--merge]      default: 60
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly seconds=${1:-60}
readonly mode=${2:-}
targets=(build/clang/fuzz/*_fuzz)
[[ -x ${targets[0]} ]] || { echo "No fuzz targets in build/clang/fuzz: build the clang preset's target fuzzers first." >&2; exit 1; }

# fuzz BINARY: one target for its time; prints its last lines.
fuzz() {
  local name=${1##*/}
  name=${name%_fuzz}
  local work=build/fuzz/$name
  mkdir -p "$work/found" "tests/fuzz/corpus/$name"
  if ! "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 -artifact_prefix="$work/" \
    "$work/found" "tests/fuzz/corpus/$name" >"$work/log" 2>&1; then
    echo "FAILED: fuzz $name; its input is in $work"
    tail -n 40 "$work/log"
    return 1
  fi
  echo "fuzz $name: $(grep -E '^Done' "$work/log")"
  if [[ $mode == --merge ]]; then
    "$1" -set_cover_merge=1 -max_len=4096 "tests/fuzz/corpus/$name" "$work/found" >"$work/merge.log" 2>&1
  fi
}

running=()
status=0
for target in "${targets[@]}"; do
  if ((${#running[@]} == 2)); then
    wait "${running[0]}" || status=1
    running=("${running[@]:1}")
  fi
  fuzz "$target" &
  running+=($!)
done
for process in "${running[@]}"; do wait "$process" || status=1; done
exit "$status"
