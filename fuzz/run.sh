#!/bin/sh
# run.sh BUILD_DIR NAME SECONDS [libFuzzer options] - runs fuzz_NAME from its committed seeds. What it finds stays out of the
# source tree: new inputs in BUILD_DIR/corpus/NAME, a crash in BUILD_DIR/crashes (run the target on that file to repeat it).
# The seed of the random numbers is fixed so that two runs of one tree try the same things; `-seed=0` at the end draws one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 name=$2 seconds=$3
shift 3
rm -rf "$build/corpus/$name"
mkdir -p "$build/corpus/$name" "$build/crashes"
exec "$build/fuzz/fuzz_$name" -seed=1 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=16384 \
  -artifact_prefix="$build/crashes/$name-" -print_final_stats=1 "$@" "$build/corpus/$name" "$here/corpus/$name"
