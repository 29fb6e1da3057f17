# Functions and variables that ./dev and the scripts in tools/ share: messages, whether CI is set, the cache folder, and fetching wheels.
# shellcheck shell=bash disable=SC2034  # scripts that source this file use the variables

HASTEN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
HASTEN_CACHE=${HASTEN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hasten}

case ${CI:-} in 0 | false | no) unset CI ;; esac

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'hasten: %s\n' "$*" >&2; exit 1; }
# require_new COMMAND FOLDER
require_new() { [ ! -e "$2" ] || die "$1: got $2, which exists, expected a new folder"; }

# Prints the version of the Python that the module for TPUs embeds. This is /usr/bin/python3, even if another python3 comes first in PATH, or
# the python3 in PATH if /usr/bin has none.
system_python() {
  local python=/usr/bin/python3
  [ -x $python ] || python=python3
  "$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# wheel_python LOCK: prints the version of Python for which wheels are fetched. A lock file lists the versions that it has hashes for
# ("# python: ..."). The result is the system's version if the file lists it or lists no version. Otherwise it is the first listed version,
# because its C++ libraries work as well.
wheel_python() {
  local system listed
  system=$(system_python)
  listed=$(sed -n 's/^# python: //p' "$1")
  case " $listed " in
    "  " | *" $system "*) echo "$system" ;;
    *) echo "${listed%% *}" ;;
  esac
}

# fetch_wheels LOCK DIR: unpacks the wheels of a requirements file into DIR, unless DIR exists. pip checks the hashes in the file. DIR is
# created by a rename at the end, so an interrupted download leaves no incomplete DIR.
fetch_wheels() {
  local lock=$1 dir=$2 partial=$2.partial.$$ hashes=(--require-hashes) machine glibc platforms=()
  [ -d "$dir" ] && return 0
  grep -q -- '--hash' "$lock" || { hashes=(); say "no checksum is recorded for $(basename "$lock")"; }
  mkdir -p "$(dirname "$dir")"
  say "fetching $(sed -n 's/^\([a-z][^ ]*\).*/\1/p' "$lock" | paste -sd' ') into $dir"
  machine=$(uname -m)
  for glibc in 2_31 2_28 2_27 2_26 2_25 2_24 2_18 2_17; do platforms+=(--platform "manylinux_${glibc}_$machine"); done
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --no-cache-dir \
    --only-binary=:all: --python-version "$(wheel_python "$lock")" --implementation cp "${platforms[@]}" \
    --platform "manylinux2014_$machine" --platform any "${hashes[@]}" --target "$partial" -r "$lock" >&2 ||
    { rm -rf "$partial"; die "could not fetch $(basename "$lock"): check that PyPI or a configured pip index can be reached"; }
  mv -T "$partial" "$dir" 2>/dev/null || { rm -rf "$partial"; [ -d "$dir" ]; }
}
