#!/usr/bin/env bash
# without_doctest.sh LIBTORCH: without doctest, a plain `cmake -S .` succeeds, builds no tests and prints the reason. With -DHASTEN_TESTS=ON it fails
# and names the package to install.
set -euo pipefail
libtorch=$1 source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { cat "$work/log"; echo "without_doctest: $*"; exit 1; }

configure() { cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_DISABLE_FIND_PACKAGE_doctest=ON -DHASTEN_LIBTORCH="$libtorch" "$@" >"$work/log" 2>&1; }
configure || fail "configuring failed"
grep -q -- '-- Tests: not built, without doctest' "$work/log" || fail "the output does not report that no tests are built"
[ ! -e "$work/build/tests" ] || fail "tests are built"
[ -d "$work/build/examples" ] || fail "no examples are built"
configure -DHASTEN_TESTS=ON && fail "tests without doctest are not an error"
grep -q 'HASTEN_TESTS: doctest was not found' "$work/log" || fail "the error does not name doctest"
echo ok
