#!/usr/bin/env bash
# on_cpu.sh "FLAG ..." COMMAND...: runs the command if the CPU has these flags of /proc/cpuinfo. Otherwise exits with code 77, which
# CMakeLists.txt gives to ctest as the code of a skipped test.
set -euo pipefail
flags=" $(sed -n '/^flags/{s/^[^:]*: //p;q}' /proc/cpuinfo) "
for flag in $1; do
  [[ $flags = *" $flag "* ]] || { echo "skipped: this CPU has no $flag"; exit 77; }
done
exec "${@:2}"
