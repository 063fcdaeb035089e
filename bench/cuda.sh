#!/bin/sh
# Builds the CUDA backend, tests it and measures it on this machine's GPU, from a bare checkout: bench/cuda.sh [FORMAT...]
# Random models of the 27B shape are written to $TMPDIR (14 GB for the two default formats) and removed. Receipts, one
# JSON line a model, go to bench/results/cuda-<GPU>.jsonl.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build/cuda}
formats=${*:-PQ2_0 PTQ1_0}
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr ' ' '-')
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
if [ "$arch" = 90 ]; then arch=90a; fi  # with the instructions of that chip alone
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --preset release -B "$build" -DTERN_CUDA=ON -DTERN_BENCH=ON -DCMAKE_CUDA_ARCHITECTURES="$arch-real"
cmake --build "$build" --target tern test_cuda bench_cuda
"$build"/tests/cuda/test_cuda --gtest_brief=1

mkdir -p bench/results
receipt=bench/results/cuda-$gpu.jsonl
: > "$work/receipt"
for format in $formats; do
  "$build/tern" synth --shape bonsai-27b --type "$format" -o "$work/model.gguf"
  "$build"/bench/bench_cuda "$work/model.gguf" --json "$work/receipt"
done
"$build/tern" synth --shape bitnet-2b --type I2_S -o "$work/model.gguf"
"$build"/bench/bench_cuda "$work/model.gguf" --depths 128,2048 --json "$work/receipt"
cp "$work/receipt" "$receipt"
echo "receipts: $receipt"
