#!/usr/bin/env bash
# Prints the folder of the Python package safetensors, and fetches it if it is not in the cache. Use the folder as PYTHONPATH.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

dir=$HASTEN_CACHE/safetensors-0.8.0
fetch_wheels "$HASTEN_ROOT/tools/lock/safetensors.txt" "$dir"
echo "$dir"
