#!/usr/bin/env bash
# Measures the rows of bench/rows.tsv, all or those named, into one receipt each under bench/results/. Models of random
# weights are written to bench/models/ on demand. Wants an otherwise idle machine for about ten minutes a row and says
# so when it is not. Environment: TERN (the binary), BENCH_WORK (what is measured, as flags of `tern bench`).
set -euo pipefail
cd "$(dirname "$0")/.."

tern=${TERN:-build/release/tern}
libllama=tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
mkdir -p bench/models bench/results

# model SHAPE TYPE EMBD_TYPE: prints the path, after writing the file if it is not there.
model() {
  local path=bench/models/${1//\//-}-$2-$3.gguf
  if [ ! -e "$path" ]; then
    "$tern" synth --shape "$1" --type "$2" --embd-type "$3" -o "$path.part" >&2
    mv "$path.part" "$path"
  fi
  echo "$path"
}

failed=()
while IFS=$'\t' read -r name shape type embd compared _; do
  case $name in '#'*) continue ;; esac
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  echo "== $name" >&2
  # shellcheck disable=SC2206
  args=(-m "$(model "$shape" "$type" "$embd")" ${BENCH_WORK:--p 512 -n 128 -d 0,4096 -t 1,2 -r 5 --busy 0,1})
  if [ "$compared" != - ]; then
    args+=(--compare "$libllama")
    [ "$compared" = "$type" ] || args+=(--compare-model "$(model "$shape" "$compared" "$embd")")
  fi
  "$tern" bench "${args[@]}" --receipt "bench/results/$name.json" || failed+=("$name")
done < bench/rows.tsv

scripts/bench_table.py
[ ${#failed[@]} = 0 ] || { echo "no receipt for: ${failed[*]}" >&2; exit 1; }
