#!/bin/bash
# Checks that every C++ file is formatted as .clang-format says.
#
#     tests/docs/check_format.sh
#
# Versions of clang-format differ in what they write, so only version 14 (Debian 12) counts. To format a file: clang-format -i FILE.
cd "$(dirname "$0")/../.." || exit 1
for program in clang-format-14 clang-format ""; do
  [ -n "$program" ] || { echo "skipped: clang-format 14 is missing (Debian 12: clang-format)"; exit 1; }
  "$program" --version 2>/dev/null | grep -q 'version 14\.' && break
done
find include src cli examples benchmarks tests \( -name '*.h' -o -name '*.cpp' \) -print0 |
  xargs -0 -n 40 -P 2 "$program" --dry-run --Werror && echo ok
