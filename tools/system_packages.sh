#!/usr/bin/env bash
# system_packages.sh [--optional] LIST...: installs the packages of tools/packages/LIST.txt that this machine lacks.
# A line of a list is one package or several alternatives ("a | b"); the script installs the first alternative that exists. With --optional,
# the script continues without packages that it cannot install and prints their lines. Without it, such a package is an error, and the error
# shows the command to type.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

optional=
if [ "${1:-}" = --optional ]; then optional=yes; shift; fi

# shellcheck disable=SC2317  # `first` calls these two
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# shellcheck disable=SC2317
is_available() { [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) = *"Candidate: "[!\(]* ]]; }

# first IS LINE: prints the first alternative of the line for which the function IS succeeds.
first() {
  local package
  for package in ${2//|/ }; do
    if "$1" "$package"; then echo "$package"; return; fi
  done
  return 1
}

# absent LIST...: prints the lines of these lists that have no installed alternative.
absent() {
  local list line
  for list in "$@"; do
    while IFS= read -r line; do
      [[ $line = '#'* ]] || first is_installed "$line" >/dev/null || printf '%s\n' "$line"
    done <"$HASTEN_ROOT/tools/packages/$list.txt"
  done
}

# can_be_root: succeeds if commands can run as root, and sets as_root to the prefix that makes them do so.
as_root=()
can_be_root() {
  [ "$(id -u)" -ne 0 ] || return 0
  as_root=(sudo)
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }
}

apt_install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Keeps Debian from starting the services of the installed packages (Slurm, munge), since the tests run their own daemons. Debian calls
# policy-rc.d before it starts a service.
keep_services_stopped() {
  local policy=/usr/sbin/policy-rc.d
  [ ! -e $policy ] || return 0
  trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod +x $policy
}

# can_find LINE...: with --optional, fails if apt's package lists are present and contain none of these packages. So ./dev test does not fetch
# the lists each time.
can_find() {
  local line
  [ -n "$optional" ] && compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || return 0
  for line in "$@"; do
    if first is_available "$line" >/dev/null; then return 0; fi
  done
  return 1
}

# install LINE...: installs the first available alternative of each line, if there is one.
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
  # One of them cannot be installed; install the others one by one.
  for package in "${packages[@]}"; do apt_install "$package" || true; done
}

for list in "$@"; do
  [ -f "$HASTEN_ROOT/tools/packages/$list.txt" ] || die "there is no list tools/packages/$list.txt"
done
if ! command -v dpkg-query >/dev/null; then
  say "this is not a Debian-like system: install the equivalents of the packages in tools/packages/{$(IFS=,; echo "$*")}.txt yourself"
  exit 0
fi
mapfile -t missing < <(absent "$@")
[ ${#missing[@]} -gt 0 ] || exit 0
if can_find "${missing[@]}" && can_be_root; then install "${missing[@]}"; fi
mapfile -t missing < <(absent "$@")
[ ${#missing[@]} -gt 0 ] || exit 0
if [ -n "$optional" ]; then printf '%s\n' "${missing[@]}"; exit 0; fi
die "these packages are missing; install them as root:
  apt-get update && apt-get install -y --no-install-recommends ${missing[*]%% |*}"
