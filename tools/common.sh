# Shared by ./dev and the scripts in tools/: messages, the cache, and one way to fetch wheels.
# shellcheck shell=bash

HASTEN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
HASTEN_CACHE=${HASTEN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hasten}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'hasten: %s\n' "$*" >&2; exit 1; }

# fetch_wheels LOCK DIR: unpacks the wheels of a requirements file into DIR, once. pip checks the hashes that the
# file carries; DIR appears by one rename, so an interrupted download leaves nothing that looks complete.
fetch_wheels() {
  local lock=$1 dir=$2 partial=$2.partial.$$ hashes=(--require-hashes)
  [ -d "$dir" ] && return 0
  grep -q -- '--hash' "$lock" || { hashes=(); say "no checksum is recorded for $(basename "$lock")"; }
  mkdir -p "$(dirname "$dir")"
  say "fetching $(sed -n 's/^\([a-z][^ ]*\).*/\1/p' "$lock" | paste -sd' ') into $dir"
  # One interpreter tag for everyone: Debian 12's, which device tpu embeds; of other wheels only the C++ libraries are used.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --no-cache-dir \
    --only-binary=:all: --python-version 3.11 --implementation cp --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_26_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_24_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
    "${hashes[@]}" --target "$partial" -r "$lock" >&2 ||
    { rm -rf "$partial"; die "could not fetch $(basename "$lock"): is PyPI reachable (or a pip index configured)?"; }
  mv -T "$partial" "$dir" 2>/dev/null || { rm -rf "$partial"; [ -d "$dir" ]; }
}
