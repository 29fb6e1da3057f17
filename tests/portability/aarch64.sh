#!/usr/bin/env bash
# aarch64.sh CXX QEMU DOCTEST-FOLDER: builds the kernels' tests and the replacements for CUDA's libraries (src/tpu/module/cuda_names.py)
# for aarch64 and runs them in qemu. Neither needs a LibTorch for aarch64.
set -euo pipefail
cxx=$1 qemu=$2 doctest=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The folder of doctest can be /usr/include, but its other headers are for this machine's processor.
mkdir include && ln -s "$doctest/doctest" include/doctest
compile() { "$cxx" -std=c++20 -Wall -Wextra -Werror -isystem include -I"$source/src" -I"$source/include" "$@"; }

kernels() { compile -O3 -fno-math-errno -fno-trapping-math -fopenmp-simd -DHASTEN_ISA=baseline "$@"; }
kernels -c "$source/src/ops/kernels/table.cpp"
# The results of these kernels have the same bits everywhere (src/ops/kernels/CMakeLists.txt).
kernels -ffp-contract=off -c "$source/src/ops/kernels/rounded_adamw.cpp" "$source/src/ops/kernels/block_moments.cpp"
compile -O0 -c "$source/tests/main.cpp" "$source/tests/portability/kernels_test.cpp" "$source/src/ops/kernels.cpp" "$source/src/base/error.cpp"
"$cxx" -static ./*.o -o kernels_tests
HASTEN_CPU_KERNELS=baseline "$qemu" ./kernels_tests --no-intro

tpu=$source/src/tpu/module
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$tpu python3 -c 'import cuda_names
print(cuda_names.assembly(["a_function_of_cuda", "_ZTI4Type", "_ZTV5Table"], "aarch64"))' >names.S
compile -fPIC -shared names.S "$tpu/no_cuda.cpp" -o libnames.so
cat >program.cpp <<'CPP'
#include <typeinfo>
extern "C" void a_function_of_cuda();
extern const std::type_info type asm("_ZTI4Type");
int main() {
  if (type.name() == nullptr || *type.name() != '4') return 1;
  a_function_of_cuda();
}
CPP
compile program.cpp -L. -lnames -Wl,-rpath,"$work" -o program
"$qemu" -L /usr/aarch64-linux-gnu ./program 2>errors && { echo "the stand-in returned"; exit 1; }
grep -q "LibTorch called the CUDA function a_function_of_cuda" errors || { cat errors; exit 1; }
echo ok
