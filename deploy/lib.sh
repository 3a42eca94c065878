# Sourced by deploy/quickstart.sh, tests/run.sh, tests/long.sh and .ci/run: named steps, builds, test runs with their
# tallies, and a daemon to talk to.
#
# Sets `root`, the top of the source tree, and goes there. Whatever fails ends the script, and the step that it happened
# in is named. What was started is stopped at the end, whatever happened.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

jobs=$(nproc)
# Not for the thread sanitizer: it changes the layout of protobuf's messages, which Debian's library does not know, and
# their stand-in servers and map fields, and icachectl's JSON, go through that library's reflection.
readonly not_for_tsan='^(hostile_wire_test|bridge_life_test|ctl_test|icachectl_test|survival_test)$'

step_name=""
passed=0  # tests and scenarios so far
failed=0
daemon=""  # process id of the daemon that start_daemon started
grpc=""    # its addresses
http=""
scratch=$(mktemp -d)  # gone at the end

if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # it keeps nothing of precompiled headers otherwise
fi

finish() {
  local status=$1
  stop_daemon || true
  rm -rf "$scratch"
  if ((status != 0)); then printf '\nFAILED%s (exit status %d)\n' "${step_name:+: $step_name}" "$status"; fi
  if ((passed + failed > 0)); then
    printf '\nAfter %d s:\n%d passed, %d failed\n' "$SECONDS" "$passed" "$failed"
  fi
  exit "$status"
}
trap 'finish $?' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME COMMAND...: runs the command between a line that names it and a line that says how long it took.
step() {
  local start=$SECONDS
  step_name=$1
  printf '\n==> %s\n' "$step_name"
  "${@:2}"
  printf '<== %s: %d s\n' "$step_name" "$((SECONDS - start))"
  step_name=""
}

# build PRESET [TARGET...]: configures and compiles; all targets when none is named.
build() {
  cmake --preset "$1" --log-level=WARNING >/dev/null
  cmake --build --preset "$1" ${2:+--target "${@:2}"}
}

# tally LOG COMMAND...: runs the command, keeps its output in build/LOG too, and adds what it says it passed and failed.
tally() {
  local log=build/$1 status=0 text
  mkdir -p build
  "${@:2}" | tee "$log" || status=$?
  text=$(<"$log")
  if [[ $text =~ (^|.*[^0-9])([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
    passed=$((passed + BASH_REMATCH[2]))
    failed=$((failed + BASH_REMATCH[3]))
  elif [[ $text =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    passed=$((passed + BASH_REMATCH[2] - BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[1]))
  fi
  return "$status"
}

# run_ctest PRESET [OPTION...]: the tests of a build.
run_ctest() {
  tally "ctest-$1.log" ctest --preset "$1" --parallel "$jobs" "${@:2}"
}

# run_conformance PRESET FOLDER: plays FOLDER/scenarios against a build's daemon with FOLDER/run.py.
run_conformance() {
  tally "conformance-$1.log" \
    /usr/bin/python3 -B "$2/run.py" --server "build/$1/bin/icached" --proto proto --jobs "$jobs"
}

# check_format: whether clang-format would change anything.
check_format() {
  find include src tests bench \( -name '*.h' -o -name '*.cc' \) -print0 | xargs -0 clang-format --dry-run --Werror
}

# check_tidy FOLDER...: clang-tidy on the sources below, with the headers that they include; needs `build clang`.
check_tidy() {
  local folders
  folders=$(IFS='|' && echo "$*")
  run-clang-tidy -quiet -p build/clang -j "$jobs" "^$root/($folders)/.*\\.cc$"
}

# start_daemon PRESET [FLAG...]: a build's daemon with the sample config on free loopback ports; returns when it is
# ready. The daemon logs the ports that it got before it says so.
start_daemon() {
  local log=$scratch/icached.log patience=300
  : >"$log"
  "build/$1/bin/icached" --config config/icached.yaml --grpc-address 127.0.0.1:0 --http-address 127.0.0.1:0 \
    --log-format text "${@:2}" >"$log" 2>&1 &
  daemon=$!
  until [[ $(<"$log") == *" ready"* ]]; do
    if ((patience-- == 0)) || ! kill -0 "$daemon" 2>/dev/null; then
      echo "icached did not become ready. Its log:"
      cat "$log"
      return 1
    fi
    sleep 0.1
  done
  [[ $(<"$log") =~ grpc_listening\ address=([^[:space:]]+) ]] && grpc=${BASH_REMATCH[1]}
  [[ $(<"$log") =~ http_port=([0-9]+) ]] && http=127.0.0.1:${BASH_REMATCH[1]}
  echo "icached (process $daemon) serves gRPC on $grpc and HTTP on $http."
}

# stop_daemon: ends it and shows its log if it did not end well. Nothing to do without one.
stop_daemon() {
  [[ -n $daemon ]] || return 0
  local process=$daemon status=0
  daemon=""
  kill "$process" 2>/dev/null || true
  wait "$process" || status=$?
  if ((status != 0)); then cat "$scratch/icached.log"; fi
  return "$status"
}
