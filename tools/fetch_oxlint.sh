#!/usr/bin/env bash
# Prints the path of Oxlint, and fetches it if it is not in the cache.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

dir=$HASTEN_CACHE/oxlint-1.89.0
fetch_wheels "$HASTEN_ROOT/tools/lock/oxlint.txt" "$dir"
echo "$dir/bin/oxlint"
