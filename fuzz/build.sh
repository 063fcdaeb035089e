#!/bin/sh
# build.sh BUILD_DIR - configures the preset fuzz there and builds every libFuzzer target.
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang++ >/dev/null; then
  echo "clang++ is missing, so no fuzz target can be built; install it: apt-get install clang" >&2
  exit 1
fi
cmake --preset fuzz -B "$1" -DTERN_TESTS=OFF -DTERN_BENCH=OFF
cmake --build "$1" --target fuzzers
