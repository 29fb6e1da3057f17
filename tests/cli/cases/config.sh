# Tests the configuration file of hasten launch: it is created, refused, found in its default places, updated, and created from answers.
: "${HOME:?}"
own=$HOME/.cache/hasten/default_config.yaml accelerate=$HOME/.cache/huggingface/accelerate/default_config.yaml
printf '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE, $ACCELERATE_MIXED_PRECISION"\n' >program
chmod +x program
hasten config --help | head -n 3
hasten config default --config_file made.yaml --mixed_precision bf16
sed 's/^num_processes: [0-9]*/num_processes: N/; s/^use_cpu: .*/use_cpu: FLAG/; s/^distributed_type: .*/distributed_type: KIND/; /^gpu_ids/d; /^tpu_/d; /^main_training/d' made.yaml
hasten config default --config_file made.yaml
hasten config default --config_file made.yaml --overwrite
hasten config default --config_file made.json
head -n 2 made.json
echo '-- default places'
hasten launch -n 2 ./program | sort
mkdir -p "${accelerate%/*}"
printf "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: 'no'\nnum_processes: 3\nuse_cpu: true\n" >"$accelerate"
hasten launch ./program 2>&1 | sort
hasten config default --mixed_precision bf16
hasten launch -n 1 ./program
hasten launch -n 1 --no_config_file ./program
hasten launch --config_file "$accelerate" -n 1 ./program
HASTEN_NO_CONFIG_FILE=1 hasten launch -n 1 ./program
HASTEN_NO_CONFIG_FILE=1 hasten train --model bert-base --data dummy --print_config | grep "^model:"
HASTEN_CONFIG_FILE=$accelerate hasten launch -n 1 ./program
hasten launch -n 1 --dry_run ./program 2>/dev/null | grep '^mixed_precision'
printf 'distributed_type: FSDP\n' >"$own"
hasten launch ./program
echo '-- sections'
printf "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\ndeepspeed_config: {}\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: false\ndynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_mode: default\nfp16: true\ndowncast_bf16: 'no'\nmain_training_function: main\ntpu_name: mine\nnum_processes: 1\nuse_cpu: 'yes'\n" >old.yaml
hasten launch --config_file old.yaml ./program
printf 'fsdp_config:\n  fsdp_ofload_params: true\n' >wrong.yaml; hasten launch --config_file wrong.yaml ./program
printf 'debug: false\nzero_stage: 2\n' >wrong.yaml; hasten launch --config_file wrong.yaml ./program
printf 'parallelism_config:\n  parallelism_config_tp_size: 2\n' >wrong.yaml; hasten launch --config_file wrong.yaml ./program
printf 'mpirun_config:\n  mpirun_hostfile: ~/hosts\n' >wrong.yaml; hasten launch --config_file wrong.yaml ./program
printf 'compute_environment: AMAZON_SAGEMAKER\n' >wrong.yaml; hasten launch --config_file wrong.yaml ./program
echo '-- update'
cp old.yaml kept.yaml
hasten config update --config_file old.yaml
cat old.yaml
cmp kept.yaml old.yaml.bak && echo 'the backup equals the old file'
hasten config update --config_file old.yaml
hasten config update --config_file missing.yaml
hasten config update --config_file wrong.yaml
printf 'num_proceses: 1\n' >wrong.yaml; hasten config update --config_file wrong.yaml
head -c 131073 /dev/zero >large.yaml; hasten config update --config_file large.yaml
ls *.bak
echo '-- questions'
hasten config --config_file asked.yaml </dev/null; [ -e asked.yaml ] || echo 'no file is written'
printf '2\n5\n1\nmain-host\n\n\n\nyes\n3\n4\n\nfp8\nbf16\n\n2\nlogs\n' | hasten config --config_file asked.yaml | sed 's/only? (yes, no) \[[a-z]*\]/only? (yes, no) [X]/'
printf '\nyes\n\n\n\n\n\n\nno\n' | hasten config --config_file asked.yaml | tail -n 1 | sed 's/.*yes\] //'
grep num_machines asked.yaml
printf '\nyes\n\n\n\n\n\n\n\n' | hasten config --config_file asked.yaml | tail -n 2 | sed 's/.*yes\] //'
cat asked.yaml
echo '-- errors'
hasten config defalt
hasten config default --mixed_precision fp8
hasten config update --overwrite
HOME= hasten config default
