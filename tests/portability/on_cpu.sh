#!/usr/bin/env bash
# on_cpu.sh "FLAG ..." COMMAND...: runs the command where the CPU has these flags of /proc/cpuinfo; elsewhere the test is skipped,
# with the code that CMakeLists.txt names to ctest.
set -euo pipefail
has=" $(sed -n '/^flags/{s/^[^:]*: //p;q}' /proc/cpuinfo) "
for flag in $1; do
  [[ $has = *" $flag "* ]] || { echo "skipped: this CPU has no $flag"; exit 77; }
done
exec "${@:2}"
