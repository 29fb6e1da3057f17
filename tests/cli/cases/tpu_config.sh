# hasten tpu-config prints the line for gcloud, and runs it with a gcloud that records its arguments.
mkdir bin
printf '#!/bin/sh\nfor word in "$@"; do printf "<%%s>\\n" "$word"; done >words\nexit "${GCLOUD_EXIT:-0}"\n' >bin/gcloud
chmod +x bin/gcloud
empty=$PWD/empty; mkdir "$empty"
hasten tpu-config --help | head -n 4
place='--tpu_name mine --tpu_zone us-central2-b'
hasten tpu-config $place --command 'echo "it'"'"'s $HOME"' 'ls *' --dry_run
hasten tpu-config $place --use_alpha --command pwd --debug
echo '-- run'
hasten tpu-config $place --command 'echo "it'"'"'s $HOME"' 'ls *' --dry_run >line.sh
PATH=$PWD/bin:$PATH hasten tpu-config $place --command 'echo "it'"'"'s $HOME"' 'ls *'; cat words
mv words before; PATH=$PWD/bin:$PATH sh line.sh; cmp before words && echo 'the printed line gives the same arguments'
printf '#!/bin/bash\n# one\nif true; then\n  echo "a  b"\nfi\n' >setup.sh
PATH=$PWD/bin:$PATH hasten tpu-config $place --command_file setup.sh; cat words
PATH=$PWD/bin:$PATH GCLOUD_EXIT=7 hasten tpu-config $place --command pwd
PATH=$empty hasten tpu-config $place --command pwd
echo '-- a file'
printf "distributed_type: XLA\ntpu_name: filed\ntpu_zone: z\ncommands:\n- echo 'a, b'\n- pwd\nnum_processes: 8\n" >tpu.yaml
hasten tpu-config --config_file tpu.yaml --dry_run
HASTEN_CONFIG_FILE=tpu.yaml hasten tpu-config --tpu_name other --command_file setup.sh --dry_run
mkdir -p "$HOME/.cache/hasten"; cp tpu.yaml "$HOME/.cache/hasten/default_config.yaml"
hasten tpu-config --dry_run
rm "$HOME/.cache/hasten/default_config.yaml"
echo '-- refused'
rm words
export PATH=$PWD/bin:$PATH
hasten tpu-config
hasten tpu-config $place
hasten tpu-config --tpu_name mine --command pwd
hasten tpu-config $place --command
hasten tpu-config $place --command_file missing.sh
hasten tpu-config $place --command_file .
hasten tpu-config $place --command pwd --command_file setup.sh
hasten tpu-config --tpu_name 'a;b' --tpu_zone z --command pwd
hasten tpu-config $place --command pwd --install_accelerate
hasten tpu-config $place --command pwd --accelerate_version 1.0
hasten tpu-config $place --comand pwd
hasten tpu-config --config_file missing.yaml --command pwd
[ -e words ] || echo 'gcloud is not called'
