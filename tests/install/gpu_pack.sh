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

# A Python whose torch is in a folder of this test.
mkdir "$work/site"
ln -s "$torch" "$work/site/torch"
PYTHONPATH=$work/site "$work/kit/hasten" --version >/dev/null || fail "the launcher does not run hasten"
PYTHONPATH=$work/site "$work/kit/hasten" estimate bert-base --batch 1 --seq 8 --device cuda:t4 >"$work/log" || fail "$(cat "$work/log")"
grep -q '^Expected for a step' "$work/log" || fail "$(cat "$work/log")"

mkdir -p "$work/old/torch"
touch "$work/old/torch/__init__.py"
echo "__version__ = '1.13.0'" >"$work/old/torch/version.py"
PYTHONPATH=$work/old "$work/kit/hasten" --version 2>"$work/log" && fail "torch 1.13 was accepted"
grep -q 'expected torch' "$work/log" || fail "$(cat "$work/log")"
