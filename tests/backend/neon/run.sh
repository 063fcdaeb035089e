#!/bin/sh
# run.sh <source dir> <work dir>: the matrix kernels built for aarch64 and run under qemu. Leaves with 77 (skipped) and a
# line where the cross compiler or qemu is not installed.
set -eu
src=$1 work=$2
cxx=aarch64-linux-gnu-g++
for tool in $cxx qemu-aarch64-static; do
  command -v $tool >/dev/null || { echo "SKIPPED: no $tool; the NEON kernels were not run"; exit 77; }
done
mkdir -p "$work/include"
ln -sfn /usr/include/fmt "$work/include/fmt"  # headers only: the library there is for another processor
flags="-std=c++20 -O1 -ffp-contract=off -DFMT_HEADER_ONLY -I$src/src -I$src/tests -isystem $work/include -Wall -Wextra -Werror"
objects=
for file in src/backend/cpu/kernels_neondot.cpp src/backend/cpu/kernels_neoni8mm.cpp src/backend/cpu/kernels_scalar.cpp src/backend/cpu/matrix.cpp \
            src/quant/format.cpp src/quant/activation.cpp src/gguf/types.cpp src/base/error.cpp \
            tests/backend/matrix_weights.cpp tests/backend/neon/check.cpp; do
  object=$work/$(basename "$file" .cpp).o
  arch=
  case $file in
    *_neondot.cpp) arch=-march=armv8.2-a+dotprod ;;
    *_neoni8mm.cpp) arch=-march=armv8.2-a+dotprod+i8mm ;;
  esac
  if [ ! -f "$object" ] || [ -n "$(find "$src/src/backend/cpu" "$src/src/quant" "$src/src/gguf" "$src/src/base" "$src/tests/backend" -newer "$object" -name '*.*' | head -n 1)" ]; then
    $cxx $flags $arch -c "$src/$file" -o "$object"
  fi
  objects="$objects $object"
done
$cxx -static -o "$work/check" $objects
# Each processor must get its best tier.
qemu-aarch64-static -cpu cortex-a76 "$work/check" neondot
qemu-aarch64-static -cpu max "$work/check" neoni8mm
