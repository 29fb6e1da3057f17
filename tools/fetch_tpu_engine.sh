#!/usr/bin/env bash
# Prints the folder with the packages for the tests of device tpu: torch_tpu, a CPU engine that replaces a TPU, and the header of the plugin
# interface between them. Use the folder as PYTHONPATH. Fetches it if it is not in the cache: 250 MB of wheels, 630 MB unpacked.
# Exits with 3 if there are no wheels for this machine or its Python.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

dir=$HASTEN_CACHE/tpu-engine-0.2.0
lock=$HASTEN_ROOT/tools/lock/tpu-engine-0.2.0.txt
if [ ! -d "$dir" ]; then
  none() { say "$1"; exit 3; }
  [ "$(uname -m)" = x86_64 ] || none "torch_tpu has no wheels for $(uname -m)"
  [ "$(wheel_python "$lock")" = "$(system_python)" ] || none "no wheels of torch_tpu for Python $(system_python) are recorded in $lock"
fi
fetch_wheels "$lock" "$dir"
rm -f "$dir/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"  # 259 MB that nothing uses
echo "$dir"
