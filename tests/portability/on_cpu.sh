#!/usr/bin/env bash
# on_cpu.sh "FLAG ..." COMMAND...: runs the command if the CPU has these flags of /proc/cpuinfo. Otherwise skips the test with the exit
# code 77, as CMakeLists.txt tells ctest.
set -euo pipefail
flags=" $(sed -n '/^flags/{s/^[^:]*: //p;q}' /proc/cpuinfo) "
for flag in $1; do
  [[ $flags = *" $flag "* ]] || { echo "skipped: this CPU has no $flag"; exit 77; }
done
exec "${@:2}"
