#!/usr/bin/env bash
# Packs the build tree $1 for a machine with a GPU. The launchers use the torch of the Python that PYTHON names. $2 is a LibTorch folder that replaces
# the torch of that Python.
set -euo pipefail
build=$1 torch=$2 root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
"$root/tools/gpu_pack.sh" "$build" "$work/kit" 2>"$work/log" || fail "$(cat "$work/log")"
"$root/tools/gpu_pack.sh" "$build" "$work/kit" 2>"$work/log" && fail "an existing folder was overwritten"
grep -q 'expected a new folder' "$work/log" || fail "$(cat "$work/log")"
"$root/tools/gpu_pack.sh" "$build" "$work/other" no_such_program 2>"$work/log" && fail "a missing program was packed"
if compgen -G "$work/other*" >/dev/null; then fail "a failed run left something behind"; fi
while read -r program; do
  [ -x "$work/kit/$program" ] || fail "the kit lacks $program"
done <"$root/tools/gpu/programs.txt"

# A module that the build tree lacks is named. With CI=1 it is an error if nvcc is installed.
mkdir "$work/bin"
cat >"$work/bin/cmake" <<END
#!/bin/sh
$(command -v cmake) "\$@" && rm -f "\$4/lib/libhasten_nccl.so"  # --install BUILD --prefix FOLDER
END
printf '#!/bin/sh\n' >"$work/bin/nvcc"
chmod +x "$work/bin"/*
CI=1 PATH=$work/bin:$PATH "$root/tools/gpu_pack.sh" "$build" "$work/other" 2>"$work/log" && fail "a kit without NCCL was packed with CI=1"
grep -q 'without .*libhasten_nccl.so.*nvcc is installed' "$work/log" || fail "$(cat "$work/log")"
env -u CI PATH="$work/bin:$PATH" "$root/tools/gpu_pack.sh" "$build" "$work/other" 2>"$work/log" || fail "$(cat "$work/log")"
grep -q 'the kit lacks them: .*libhasten_nccl.so' "$work/log" || fail "the missing module is not named: $(cat "$work/log")"

# The row kernels contain machine code for Ampere and Hopper, and code that the driver compiles for Turing and for newer GPUs. The header of a
# part says whether it is code for the driver (1) or machine code (2), how long header and code are, and its architecture.
if [ -e "$work/kit/lib/libhasten_row_kernels.so" ]; then
  objcopy -O binary --only-section=.nv_fatbin "$work/kit/lib/libhasten_row_kernels.so" "$work/fatbin"
  python3 - "$work/fatbin" <<'END' || fail "the row kernels are not compiled for the GPUs of docs/gpu.md"
import struct
import sys
data = open(sys.argv[1], "rb").read()
magic, _, at, size = struct.unpack_from("<IHHQ", data)
assert magic == 0xBA55ED50, hex(magic)
parts, end = set(), at + size
while at < end:
    kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
    parts.add(({1: "compute", 2: "sm"}[kind], *struct.unpack_from("<I", data, at + 28)))
    at += header + size
assert parts == {("compute", 75), ("sm", 80), ("sm", 90), ("compute", 90)}, parts
END
fi

# A Python whose torch is in a folder of this test.
mkdir "$work/site"
ln -s "$torch" "$work/site/torch"
PYTHONPATH=$work/site "$work/kit/hasten" --version >/dev/null || fail "the launcher does not run hasten"
PYTHONPATH=$work/site "$work/kit/hasten" --help >"$work/log" || fail "the launcher does not print hasten's help"
grep -q '^usage: hasten COMMAND' "$work/log" || fail "$(cat "$work/log")"
PYTHONPATH=$work/site "$work/kit/hasten" estimate bert-base --batch 1 --seq 8 --device cuda:t4 >"$work/log" || fail "$(cat "$work/log")"
grep -q '^Expected for a step' "$work/log" || fail "$(cat "$work/log")"

mkdir -p "$work/old/torch"
touch "$work/old/torch/__init__.py"
echo "__version__ = '1.13.0'" >"$work/old/torch/version.py"
PYTHONPATH=$work/old "$work/kit/hasten" --version 2>"$work/log" && fail "torch 1.13 was accepted"
grep -q 'expected torch' "$work/log" || fail "$(cat "$work/log")"
