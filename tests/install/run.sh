#!/usr/bin/env bash
# Installs the build tree $1 into a new prefix and builds a project against it with find_package(hasten).
set -euo pipefail
build=$1 here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
for file in LICENSE THIRD-PARTY-NOTICES; do
  [ -s "$work/prefix/share/doc/hasten/$file" ] || { echo "$file is not installed"; exit 1; }
done
# Hides an installed CUDA toolkit, because the build must work without one.
cmake -S "$here/project" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDA=ON >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/build/uses_core"
"$work/prefix/bin/hasten" --version
"$work/prefix/bin/hasten" train --help >/dev/null
if ldd "$work/build/uses_core" | grep -q torch; then echo "hasten::core loads LibTorch"; exit 1; fi
# The installed hasten finds the installed hasten-torch, which trains.
"$work/prefix/bin/hasten" train --model bert-base --data dummy --dummy_rows 8 --dummy_length 8 --max_steps 1 --output_dir "$work/out" \
  --per_device_train_batch_size 4 --save_strategy no --disable_tqdm >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep -q train_runtime "$work/log"
