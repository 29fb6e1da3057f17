# The output of hasten env, without the lines that differ between machines. The script that replaces hasten-torch is not an ELF file, so hasten
# reports the LibTorch of the build.
shape() {
  awk '/^- /{part = $2} /^    - / && part ~ /^(numa|gpus|tpus|network|launchers):/ {next} {print}' |
    sed -E 's/^(- (hasten|compiler|memory):) .*/\1 X/; s/^(- (numa|gpus|tpus|network|launchers):).*/\1 X/; s/^(    - [a-z_]+:) .*/\1 X/'
}
unset $(compgen -e | grep -E '^(SLURM|OMPI|PMIX?|NCCL|GLOO|TORCH|PYTORCH|ACCELERATE|KMP|TPU|LIBTPU|XLA|CLOUD_TPU|MEGASCALE)_|^(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|LD_LIBRARY_PATH|LD_PRELOAD)$')
hasten env | shape
echo '-- another LibTorch is found first'
mkdir -p other/lib; touch other/lib/libtorch_cpu.so; echo "__version__ = '9.8.7+test'" >other/version.py
LD_LIBRARY_PATH=$PWD/other/lib hasten env | sed -n '/^- libtorch/,/^- platform/p' | grep -v platform
rm other/version.py; echo 9.8.6 >other/build-version
LD_LIBRARY_PATH=$PWD/other/lib hasten env | sed -n '/^- libtorch/,/^- platform/p' | grep version
echo '-- a launcher in a folder with a space'
mkdir 'a b'; printf '#!/bin/sh\necho "mpirun $# $1"\n' >'a b/mpirun'; chmod +x 'a b/mpirun'
PATH="$PWD/a b:$PATH" hasten env | grep mpirun
echo '-- variables without secrets'
RANK=3 NCCL_DEBUG=INFO OMP_NUM_THREADS=2 SLURM_JWT=no HASTEN_HUB_TOKEN=no OMPI_API_KEY=no hasten env | sed -n '/^- environment:/,/^- configuration:/p' | grep -v configuration
echo '-- configuration files'
printf 'num_processes: 4\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2}\n' >launch.yaml
hasten env --config_file launch.yaml | sed -n '/^- configuration:/,$p'
mkdir -p "$HOME/.cache/hasten"
printf 'debug: true\n' >"$HOME/.cache/hasten/default_config.yaml"
hasten env | sed -n '/^- configuration:/,$p'
printf 'debug: [\n' >"$HOME/.cache/hasten/default_config.yaml"
hasten env | sed -n '/^- configuration:/,$p'
hasten env --config_file missing.yaml
echo '-- JSON'
hasten env --json --config_file launch.yaml | python3 -c '
import json, sys
facts = json.load(sys.stdin)
print(list(facts))
print(list(facts["libtorch"]), list(facts["cpu"]), facts["configuration"])
print(isinstance(facts["cpu"]["cores"], int), all(isinstance(a, list) for a in facts["network"].values()))'
hasten env --help | head -n 1
hasten env --jsn
hasten env now
