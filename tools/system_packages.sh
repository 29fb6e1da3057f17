#!/usr/bin/env bash
# Installs what tools/packages/LIST.txt lists and this machine lacks: system_packages.sh [--optional] LIST...
# A line of a list is one package, or alternatives of which the first that exists is installed: "a | b". With --optional the script goes
# on without what it cannot install and prints one line for each. Without it, that is an error, which says what to type.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

optional=
if [ "${1:-}" = --optional ]; then optional=yes; shift; fi

# shellcheck disable=SC2317  # first calls these two
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# shellcheck disable=SC2317
is_available() { [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) = *"Candidate: "[!\(]* ]]; }

# first IS LINE: prints the first alternative of the line for which the function IS answers yes.
first() {
  local package
  for package in ${2//|/ }; do
    if "$1" "$package"; then echo "$package"; return; fi
  done
  return 1
}

# absent LIST...: the lines of these lists of which nothing is installed.
absent() {
  local list line
  for list in "$@"; do
    while IFS= read -r line; do
      [[ $line = '#'* ]] || first is_installed "$line" >/dev/null || printf '%s\n' "$line"
    done <"$HASTEN_ROOT/tools/packages/$list.txt"
  done
}

# is_root, or as_root is set to what makes a command run as root.
as_root=()
can_be_root() {
  [ "$(id -u)" -ne 0 ] || return 0
  as_root=(sudo)
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }
}

apt_install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Slurm's and munge's services are of no use here, as the tests run daemons of their own: Debian asks this file before it starts one.
keep_services_stopped() {
  local policy=/usr/sbin/policy-rc.d
  [ ! -e $policy ] || return 0
  trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod +x $policy
}

# worth_a_look LINE...: fails where apt's lists are there and have none of these. ./dev test would fetch the lists each time otherwise.
worth_a_look() {
  local line
  [ -n "$optional" ] && compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || return 0
  for line in "$@"; do
    if first is_available "$line" >/dev/null; then return 0; fi
  done
  return 1
}

# install LINE...: what can be installed of these lines.
install() {
  local line package packages=()
  "${as_root[@]}" apt-get update -qq || [ -n "$optional" ]
  for line in "$@"; do
    if package=$(first is_available "$line"); then packages+=("$package"); fi
  done
  [ ${#packages[@]} -gt 0 ] || return 0
  say "installing ${#packages[@]} system packages: ${packages[*]}"
  keep_services_stopped
  apt_install "${packages[@]}" && return
  # One of them cannot be installed: the others can.
  for package in "${packages[@]}"; do apt_install "$package" || true; done
}

for list in "$@"; do
  [ -f "$HASTEN_ROOT/tools/packages/$list.txt" ] || die "there is no list tools/packages/$list.txt"
done
if ! command -v dpkg-query >/dev/null; then
  say "not a Debian-like system: install the counterparts of what tools/packages/{$(IFS=,; echo "$*")}.txt list yourself"
  exit 0
fi
mapfile -t wanted < <(absent "$@")
[ ${#wanted[@]} -gt 0 ] || exit 0
if worth_a_look "${wanted[@]}" && can_be_root; then install "${wanted[@]}"; fi
mapfile -t wanted < <(absent "$@")
[ ${#wanted[@]} -gt 0 ] || exit 0
if [ -n "$optional" ]; then printf '%s\n' "${wanted[@]}"; exit 0; fi
die "these packages are missing; as root, type:
  apt-get update && apt-get install -y --no-install-recommends ${wanted[*]%% |*}"
