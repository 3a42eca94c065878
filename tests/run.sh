#!/usr/bin/env bash
# The tests: installs what is missing, builds the release preset, runs every ctest test, then plays the conformance
# scenarios against the daemon just built. A second run builds nothing. Ends with "N passed, N failed", and exits 0 only
# when nothing failed.
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/lib.sh"

step "packages" deploy/install-deps.sh build test
step "build (release)" build release
step "ctest (release)" run_ctest release --label-exclude conformance
step "conformance (release)" run_conformance release tests/conformance
