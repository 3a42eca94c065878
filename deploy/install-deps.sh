#!/usr/bin/env bash
# Installs the Debian 12 packages that the project needs. The only place that names them.
#
#   deploy/install-deps.sh [build|test|ci]...     default: build
#
#   build   compiles everything: compiler, CMake, libraries
#   test    what the tests run beside it: python3 with gRPC, openssl, curl
#   ci      what .ci/run adds: clang, clang-tidy, clang-format, libFuzzer's runtime
#
# Takes no time when all of it is there. Else needs root, or sudo.
set -euo pipefail

declare -A packages=(
  [build]="
    g++ cmake ninja-build pkg-config
    libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
    libabsl-dev libxxhash-dev libssl-dev
    prometheus-cpp-dev libspdlog-dev libfmt-dev
    libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libmicrohttpd-dev libgnutls28-dev libcpp-httplib-dev
    libzmq3-dev cppzmq-dev libmsgpack-cxx-dev libcurl4-openssl-dev
    libgtest-dev libgmock-dev libbenchmark-dev"
  [test]="python3 python3-grpcio python3-protobuf openssl curl"
  [ci]="clang clang-tidy clang-format libclang-rt-14-dev"
)

wanted=()
for set in "${@:-build}"; do
  [[ -n ${packages[$set]:-} ]] || { echo "usage: ${0##*/} [build|test|ci]..." >&2; exit 2; }
  read -ra names -d '' <<<"${packages[$set]}" || true  # read ends at the end of the text, which it calls a failure
  wanted+=("${names[@]}")
done

declare -A installed=()
while read -r name status; do
  [[ $status == installed ]] && installed[$name]=yes
done < <(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null)

missing=()
for name in "${wanted[@]}"; do
  [[ -n ${installed[$name]:-} ]] || missing+=("$name")
done
if ((${#missing[@]} == 0)); then
  echo "Packages: all ${#wanted[@]} installed."
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "Neither root nor sudo. Run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# Waits for another apt rather than failing, asks nothing, and speaks only of problems.
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -qq -y "$@" >/dev/null
}

echo "Packages: installing ${missing[*]}"
apt_get update
apt_get install --no-install-recommends "${missing[@]}"
echo "Packages: installed ${#missing[@]}."
