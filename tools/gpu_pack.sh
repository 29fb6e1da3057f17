#!/usr/bin/env bash
# gpu_pack.sh BUILD FOLDER [PROGRAM ...]: copies an installation of the build tree BUILD, the programs of tools/gpu/programs.txt, which `run`
# starts, and further programs of the build tree into FOLDER. They can run on a machine with a GPU that has only Python with the same version
# of LibTorch. The script also copies the libraries of the distribution that hasten needs, and `run`, which checks and measures hasten on the
# GPU, with its data. Each program has a launcher in FOLDER, which finds LibTorch in the machine's Python. The script fails if the folder
# exceeds 60 MiB or if a symbol is missing. It names the modules for CUDA that the build tree lacks, and fails if it lacks one although nvcc is
# installed and CI=1.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
build=${1:?a build tree} folder=${2:?a new folder}; shift 2
limit=$((60 << 20))
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
require_new "gpu pack" "$folder"
mapfile -t programs <tools/gpu/programs.txt
programs+=("$@")

torch=$(sed -n 's/^HASTEN_LIBTORCH_FOUND:[A-Z]*=//p' "$build/CMakeCache.txt")
[ -n "$torch" ] || torch=$(sed -n 's/^HASTEN_LIBTORCH:[A-Z]*=//p' "$build/CMakeCache.txt")
[ -f "$torch/lib/libtorch_cpu.so" ] || die "gpu pack: got a LibTorch '$torch' without lib/libtorch_cpu.so in $build/CMakeCache.txt"
version=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/version.py" 2>/dev/null || true)
[ -n "$version" ] || version=$(sed 's/+.*//' "$torch/build-version")

partial=$folder.partial.$$
trap 'rm -rf "$partial"' EXIT
cmake --install "$build" --prefix "$partial" --strip >/dev/null
rm -rf "$partial/include" "$partial/lib/cmake"
# These modules load when a run asks for them. Arrow's libraries alone are 50 MB, and a TPU's module needs a Python library.
rm -f "$partial"/lib/libhasten_{arrow,tpu,dry_tpu}.so
mkdir -p "$partial/programs"
for program in "${programs[@]}"; do
  [ -x "$build/bin/$program" ] || die "gpu pack: got $program, which $build/bin does not have"
  strip -o "$partial/programs/$program" "$build/bin/$program"
done

# A program that contains hasten looks for its modules in its own folder.
missing=()
for module in libhasten_{cuda_graphs,nccl,row_kernels}.so; do
  if [ -e "$partial/lib/$module" ]; then ln -s "../lib/$module" "$partial/programs/"; else missing+=("$module"); fi
done
# CMake looks for nvcc in the same places (row_kernels.cmake).
has_nvcc() { (PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin; command -v nvcc) >/dev/null; }
if [ ${#missing[@]} -gt 0 ] && [ -n "${CI:-}" ] && has_nvcc; then
  die "gpu pack: got $build without ${missing[*]}, expected all modules for CUDA, since nvcc is installed and CI=1 is strict." \
    "Hint: the output of CMake says which files it did not find"
fi

# `run` needs its own files, the recorded numbers of the tests that run on a GPU, and two exported models.
mkdir -p "$partial/gpu" "$partial/models" "$partial/tests/oracle/data"
cp tools/gpu/*.py benchmarks/python/{gpu_step,token_rows}.py "$partial/gpu"
# The machine's record names the commit, and whether files differ from it.
commit=unknown
[ ! -e .git ] || commit=$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo unknown)
echo "$commit" >"$partial/gpu/commit"
data=tests/oracle/data
cp $data/architectures/torchvision_resnet.pt2 $data/exported/lstm.pt2 "$partial/models"
find $data -maxdepth 1 -type f -exec cp {} "$partial/$data" \;
cp -r $data/{base,decoders,exported,generation,lora,models,optimizers,scaling} "$partial/$data"
cat >"$partial/run" <<'EOF'
#!/bin/sh
# Checks and measures hasten on this machine's GPU: run --help.
here=$(cd "$(dirname "$0")" && pwd)
exec "${PYTHON:-python3}" "$here/gpu/run.py" --kit "$here" "$@"
EOF
chmod 755 "$partial/run"

# elf_files: prints every program and library of the folder.
elf_files() { find "$partial" -type f \( -perm -u+x -o -name '*.so*' \) -exec sh -c 'head -c4 "$1" | grep -q ELF && echo "$1"' _ {} \;; }

# Copies the libraries that are not in LibTorch or in the C and C++ runtime, which Python's LibTorch needs itself.
elf_files | xargs -r -n1 ldd 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
  while read -r name path; do
    case $name in
      libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libgcc_s.so* | libstdc++.so* | libutil.so* | ld-linux*) continue ;;
    esac
    case $path in "$torch"/* | "$PWD"/*) continue ;; esac
    [ -e "$partial/lib/$name" ] || install -s -m 755 "$path" "$partial/lib/$name"
  done

# launcher NAME PROGRAM: writes a script that runs PROGRAM with the LibTorch of the machine's Python.
launcher() {
  cat >"$partial/$1" <<EOF
#!/bin/sh
# Runs $1 with the LibTorch of this machine's Python (\$PYTHON, else python3).
here=\$(cd "\$(dirname "\$0")" && pwd)
torch=\$("\${PYTHON:-python3}" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")') || exit 1
[ -n "\$torch" ] || { echo "$1: this Python has no torch. Hint: install torch $version, or set PYTHON" >&2; exit 1; }
grep -q "'$version" "\$torch/version.py" ||
  { echo "$1: got \$(grep __version__ "\$torch/version.py" | tail -1), expected torch $version" >&2; exit 1; }
LD_LIBRARY_PATH="\$here/lib:\$torch/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
exec "\$here/$2" "\$@"
EOF
  chmod 755 "$partial/$1"
}
launcher hasten bin/hasten
for program in "${programs[@]}"; do launcher "$program" "programs/$program"; done

# Reports symbols that a file of the folder uses and no library defines, and libraries that are not found. NVIDIA's libraries are only on the
# machine with the GPU, so symbols that LibTorch lacks without them are not reported.
unresolved=$(elf_files | while read -r file; do
  LD_LIBRARY_PATH="$partial/lib:$torch/lib" ldd -r "$file" 2>&1 |
    awk -v folder="$partial/" '/undefined symbol/ && index($0, folder) || /=> not found/ && $1 !~ /^lib(cu|nv|nccl)/' |
    sed "s|^|${file#"$partial"/}: |"
done)
[ -z "$unresolved" ] || die "gpu pack: symbols or libraries are missing:
$unresolved"
size=$(du -sb "$partial" | cut -f1)
[ "$size" -le "$limit" ] || die "gpu pack: got $((size >> 20)) MiB, expected at most $((limit >> 20)) MiB. Hint: leave out a program"
# The newest versions of the C and C++ runtime that a symbol requires.
runtime=$(elf_files | xargs -r -n1 objdump -T 2>/dev/null | grep -oE '(GLIBC|GLIBCXX)_[0-9.]+' | sort -Vu |
  awk -F_ '{ newest[$1] = $2 } END { print "GLIBC " newest["GLIBC"] ", GLIBCXX " newest["GLIBCXX"] }')
mv -T "$partial" "$folder"
[ ${#missing[@]} -eq 0 ] || say "these were not built, so the kit lacks them: ${missing[*]}"
say "$folder: $((size >> 20)) MiB, for torch $version, $runtime"
