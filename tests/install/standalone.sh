#!/usr/bin/env bash
# standalone.sh BUILD: copies examples/standalone out of the tree and builds it against an installation of the build tree BUILD. The program must
# learn in one process and in two.
set -euo pipefail
build=$1 source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { cat "$work/log"; echo "standalone: $*"; exit 1; }

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp -r "$source/examples/standalone" "$work/copy"
# Hides an installed CUDA toolkit, because the build must work without one.
cmake -G Ninja -S "$work/copy" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDA=ON >"$work/log" 2>&1 || fail "configuring failed"
cmake --build "$work/build" >"$work/log" 2>&1 || fail "building failed"

# learns COMMAND...: runs the program, and checks that it counts each row once and that it learns.
learns() {
  "$@" >"$work/log" 2>&1 || fail "$*: exit code $?"
  grep -Eq 'epoch 5: accuracy 0[.]9[0-9]* of 4000 rows' "$work/log" || fail "$*: the accuracy is missing, or below 0.9"
}
learns "$work/build/train"
learns "$work/prefix/bin/hasten" launch -n 2 --use_cpu "$work/build/train"
# The installed command finds the libraries that it injects into programs.
"$work/prefix/bin/hasten" anatomy --steps 1 "$work/build/train" >"$work/log" 2>&1 || fail "hasten anatomy"
grep -q 'Measured on cpu: 1 step' "$work/log" || fail "hasten anatomy measured no step"
echo ok
