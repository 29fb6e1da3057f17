#!/usr/bin/env bash
# without_doctest.sh LIBTORCH: a plain `cmake -S .` on a machine without doctest configures, builds no tests, and says why. Asked for the
# tests, it fails and says what to install.
set -euo pipefail
libtorch=$1 source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { cat "$work/log"; echo "without_doctest: $*"; exit 1; }

configure() { cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_DISABLE_FIND_PACKAGE_doctest=ON -DHASTEN_LIBTORCH="$libtorch" "$@" >"$work/log" 2>&1; }
configure || fail "configuring failed"
grep -q -- '-- Tests: not built, without doctest' "$work/log" || fail "there is no word of the tests that are not built"
[ ! -e "$work/build/tests" ] || fail "there are tests"
[ -d "$work/build/examples" ] || fail "there are no examples"
configure -DHASTEN_TESTS=ON && fail "tests without doctest are no error"
grep -q 'HASTEN_TESTS: doctest was not found' "$work/log" || fail "the error does not name doctest"
echo ok
