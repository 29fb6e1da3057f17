#!/usr/bin/env bash
# on_cpu.sh "FLAG ..." COMMAND...: runs the command where the CPU has these flags of /proc/cpuinfo; elsewhere the test is skipped.
set -euo pipefail
has=" $(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -1) "
for flag in $1; do
  [[ $has = *" $flag "* ]] || { echo "skipped: this CPU has no $flag"; exit 0; }
done
exec "${@:2}"
