#!/usr/bin/env bash
# fetch_libtorch.sh [VERSION]: prints the folder of a LibTorch, and fetches it if it is not in the cache. A version with a lock file has
# checksums. For other versions, the metadata of the torch wheel gives the versions of cudart and cupti.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

version=${1:-2.11.0}
lock=$HASTEN_ROOT/tools/lock/libtorch-$version.txt
dir=$HASTEN_CACHE/libtorch-$version

if [ ! -f "$lock" ] && [ ! -d "$dir" ]; then
  mkdir -p "$HASTEN_CACHE"
  only=$(mktemp) lock=$(mktemp)
  trap 'rm -f "$only" "$lock"' EXIT
  echo "torch==$version" >"$only"
  fetch_wheels "$only" "$dir.torch"
  cuda=$(sed -n 's/^Requires-Dist: cuda-toolkit.*==\([0-9]*\.[0-9]*\).*/\1/p' "$dir.torch"/torch-*.dist-info/METADATA | head -1)
  [ -n "$cuda" ] || die "the metadata of torch $version has no cuda-toolkit: set -DHASTEN_LIBTORCH to the folder of your own LibTorch"
  printf 'nvidia-cuda-runtime==%s.*\nnvidia-cuda-cupti==%s.*\n' "$cuda" "$cuda" >"$lock"
  fetch_wheels "$lock" "$dir.cuda"
  cp -r "$dir.cuda/." "$dir.torch/" && rm -rf "$dir.cuda" && mv -T "$dir.torch" "$dir"
fi
fetch_wheels "$lock" "$dir"
echo "$dir/torch"
