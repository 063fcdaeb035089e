#!/bin/sh
# run.sh <source dir> <work dir>: the tests of the CPU backend's products and ops, built for aarch64 and run under qemu. Leaves
# with 77 (skipped) and a line where the cross compiler, qemu or the sources of GoogleTest are not installed.
set -eu
src=$1 work=$2
cxx=aarch64-linux-gnu-g++ gtest=/usr/src/googletest/googletest
for tool in $cxx qemu-aarch64-static; do
  command -v $tool >/dev/null || { echo "SKIPPED: no $tool; the NEON kernels were not run"; exit 77; }
done
[ -d $gtest ] || { echo "SKIPPED: no $gtest; the NEON kernels were not run"; exit 77; }
mkdir -p "$work/include"
ln -sfn /usr/include/fmt "$work/include/fmt"  # headers only: the library there is for another processor
flags="-std=c++20 -O1 -ffp-contract=off -fno-math-errno -DFMT_HEADER_ONLY -I$src/src -I$src/tests -isystem $work/include
       -isystem $gtest/include -I$gtest -Wall -Wextra -Werror"
objects=
for file in "$src"/src/base/*.cpp "$src"/src/gguf/*.cpp "$src"/src/quant/*.cpp "$src"/src/plan/plan.cpp \
            "$src"/src/backend/*.cpp "$src"/src/backend/ref/*.cpp "$src"/src/backend/cpu/*.cpp \
            "$src"/tests/backend/cpu_ops_test.cpp "$src"/tests/backend/matrix_*.cpp $gtest/src/gtest-all.cc $gtest/src/gtest_main.cc; do
  arch=
  case $file in
    */log.cpp | */transcode.cpp | *_avx*.cpp) continue ;;
    *_neondot.cpp) arch=-march=armv8.2-a+dotprod ;;
    *_neoni8mm.cpp) arch=-march=armv8.2-a+dotprod+i8mm ;;
  esac
  object=$work/$(basename "$file").o
  # shellcheck disable=SC2086
  $(command -v ccache) $cxx $flags $arch -c "$file" -o "$object"
  objects="$objects $object"
done
# shellcheck disable=SC2086
$cxx -static -o "$work/check" $objects

run() {  # PROCESSOR, ITS BEST TIER, TESTS
  qemu-aarch64-static -cpu "$1" "$work/check" --gtest_list_tests --gtest_filter="$3" | grep -q "/$2" ||
    { echo "none of the tests $3 is of $2"; exit 1; }
  TEST_TMPDIR=$work TERN_BEST_ISA=$2 qemu-aarch64-static -cpu "$1" "$work/check" --gtest_brief=1 --gtest_filter="$3"
}
run cortex-a76 neondot 'CpuIsa.*:*/neondot:CpuOps.*'
run max neoni8mm 'CpuIsa.*:*/neoni8mm'
