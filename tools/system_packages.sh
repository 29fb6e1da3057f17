#!/usr/bin/env bash
# Installs what tools/packages.txt (or the names given) lists and this machine lacks. Without root or sudo it prints the line to type.
set -euo pipefail
. "$(dirname "$0")/common.sh"

command -v dpkg-query >/dev/null || { say "not a Debian-like system: install the counterparts of tools/packages.txt yourself"; exit 0; }
if [ $# -gt 0 ]; then wanted=$*; else wanted=$(sed '/^#/d' "$HASTEN_ROOT/tools/packages.txt"); fi
missing=()
for package in $wanted; do
  dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo)
  elif command -v sudo >/dev/null && [ -t 0 ]; then as_root=(sudo)
  else die "these packages are missing; as root, type:
  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  fi
fi
say "installing ${#missing[@]} system packages: ${missing[*]}"
# Slurm's and munge's services are of no use here: tests run daemons of their own. Debian asks this file before it starts one.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap '"${as_root[@]}" rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod +x $policy
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
