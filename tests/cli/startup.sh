# startup.sh PROGRAM: checks that the median of 20 starts is below 30 ms, for `hasten --help` and for `hasten train --help`.
set -eu
for name in "${!HASTEN_@}"; do unset "$name"; done

median_us() {
  local start times=()
  for _ in {1..20}; do
    start=${EPOCHREALTIME/[.,]/}
    "$@" >/dev/null
    times+=($((${EPOCHREALTIME/[.,]/} - start)))
  done
  printf '%s\n' "${times[@]}" | sort -n | sed -n 10p
}

for arguments in "--help" "train --help"; do
  # shellcheck disable=SC2086
  "$1" $arguments >/dev/null
  # shellcheck disable=SC2086
  us=$(median_us "$1" $arguments)
  echo "hasten $arguments: $us us, median of 20"
  [ "$us" -lt 30000 ] || { echo "too slow: at most 30000 us are allowed"; exit 1; }
done
