# check.sh PROGRAM CASE.sh [HASTEN-TORCH]: runs a case in an empty folder and compares its output with CASE.expected. In a case, `hasten` runs the
# program and prints an exit code other than 0. The folder of the program also contains hasten-torch, or a script that replaces it and prints its
# arguments. $data is the folder of the oracle's models; write_rows writes rows.safetensors. The case does not see the caller's HASTEN_* variables and
# configuration files. The library for matrix products depends on the CPU, so its name becomes ENGINE.
set -u
program=$(readlink -f "$1") case=$(readlink -f "$2") torch=${3:+$(readlink -f "$3")}
data=$(readlink -f "$(dirname "$case")/../../oracle/data")
here=$(readlink -f "$(dirname "$0")")
accept=${HASTEN_ACCEPT:-}
for name in "${!HASTEN_@}" "${!SLURM_@}" XDG_CACHE_HOME HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE; do unset "$name"; done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/work"
export HOME=$folder/home
cp "$program" "$folder/bin/hasten" || exit 1
if [ -n "$torch" ]; then
  ln -s "$torch" "$folder/bin/hasten-torch"
else
  printf '#!/bin/sh\necho "hasten-torch got: $*"\nexit "${FAKE_TORCH_EXIT:-0}"\n' >"$folder/bin/hasten-torch"
  chmod +x "$folder/bin/hasten-torch"
fi

hasten() {
  "$folder/bin/hasten" "$@"
  local code=$?
  [ $code -eq 0 ] || echo "exit code $code"
}

write_rows() { python3 "$here/write_rows.py"; }

cd "$folder/work" || exit 1
output=$(. "$case" 2>&1)
output=${output//$folder/FOLDER} output=${output//$data/DATA}
output=$(sed -E 's/^(  Matrix products by )(oneDNN|BLAS)$/\1ENGINE/' <<<"$output")
cd / || exit 1
if [ -n "$accept" ]; then
  printf '%s\n' "$output" >"${case%.sh}.expected"
  exit 0
fi
diff -u "${case%.sh}.expected" <(printf '%s\n' "$output") && echo ok
