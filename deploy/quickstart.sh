#!/usr/bin/env bash
# From a bare Debian 12 to real answers: installs what is missing, builds the release daemon, starts it with the sample
# config on free loopback ports, reports a few chains of a real trace and asks for them, replays a slice of that trace,
# and stops what it started. Run it as often as you like; it installs and builds only what is missing.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

load() {
  build/release/bin/icache-load "$1" --address "$grpc" --trace tests/data/trace-slice.jsonl
}

step "packages" deploy/install-deps.sh build
step "build (release)" build release icached icache-load
step "start icached" start_daemon release
step "a few chains, and what LookupRoute answers" load demo
step "a slice of a real trace, routed with hints and without" load replay
step "stop icached" stop_daemon

echo
echo "Next: README.md tells how to run icached with your own config; ./tests/run.sh runs the tests."
