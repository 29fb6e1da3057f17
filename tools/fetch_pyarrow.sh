#!/usr/bin/env bash
# Prints the folder of the pyarrow wheel, with the C++ libraries of Arrow and Parquet, and fetches it if it is not in the cache.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

dir=$HASTEN_CACHE/pyarrow-26.0.1
fetch_wheels "$HASTEN_ROOT/tools/lock/pyarrow.txt" "$dir"
echo "$dir/pyarrow"
