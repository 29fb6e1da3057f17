# Tests hasten launch on TPUs: the environment of each process with a plugin that replaces the TPU, and the arguments that are refused.
export LC_ALL=C
unset $(compgen -e | grep -E '^(TORCH_TPU|TPU|XLA|ACCELERATE)_')
cat >program <<'END'
#!/bin/sh
env | grep -E '^(ACCELERATE|TORCH_TPU|TPU_V|XLA|A_|B_)' | sort | sed "s/^/rank $RANK: /; s/localhost:[0-9]*/localhost:PORT/g"
touch started
END
chmod +x program
if ! grep -q 0x1ae0 /sys/bus/pci/devices/*/vendor 2>/dev/null; then
  hasten launch --tpu ./program
  hasten launch --tpu -n 2 --dry_run ./program
  TPU_LIBRARY_PATH=/nowhere/libtpu.so hasten launch --tpu -n 2 ./program
else
  for _ in 1 2 3; do
    echo "hasten launch: error[device.tpu-missing]: processes on TPUs: got no TPU among this machine's PCI devices. Hint: run on a TPU machine, or with --cpu"
    echo 'exit code 4'
  done
fi
[ -e started ] || echo 'nothing is started'
export TPU_LIBRARY_PATH=$PWD/plugin.so
hasten launch --tpu -n 2 -q ./program | sed 's/^\[.\] //' | sort
echo '-- bf16 and other variables'
hasten launch --tpu -n 1 --mixed_precision bf16 --env 'A_=1,B_=x=y' ./program | grep -E 'BF16|PRECISION|: [AB]_'
hasten launch --tpu -n 1 --mixed_precision bf16 --downcast_bf16 ./program | grep BF16
hasten launch --tpu -n 1 --mixed_precision fp16 ./program | grep -E 'BF16|PRECISION'
echo '-- variables that are already set'
TPU_VISIBLE_CHIPS=5,7 TORCH_TPU_TOPOLOGY=1,2,1 TORCH_TPU_SLICEBUILDER_ADDRESSES=a:1,b:2 hasten launch --tpu ./program |
  sed 's/^\[.\] //' | sort | grep TPU_
echo '-- a file, and a flag that overrides it'
printf "compute_environment: LOCAL_MACHINE\ndistributed_type: XLA\ndowncast_bf16: true\nmixed_precision: bf16\nnum_processes: 2\ntpu_name: mine\ntpu_zone: z\ncommands: [pwd]\ntpu_env: [A_=1]\ntpu_use_cluster: false\nuse_cpu: false\nmain_training_function: main\n" >tpu.yaml
hasten launch --config_file tpu.yaml ./program | sed 's/^\[.\] //' | sort | grep -E 'A_|USE_TPU|DOWN'
hasten launch --config_file tpu.yaml --cpu -n 1 ./program
hasten launch --config_file tpu.yaml --dry_run ./program | sed -n '/^tpu/p;/^downcast/p;/^# rank 1/,$p' | grep -E '^(tpu|downcast|TORCH_TPU|TPU_V)'
echo '-- refused'
rm started
hasten launch --tpu --cpu ./program
hasten launch --tpu --multi_gpu ./program
hasten launch --tpu --downcast_bf16 ./program
hasten launch --tpu --env A ./program
hasten launch --tpu --tpu_cluster ./program
TPU_VISIBLE_CHIPS=0,0 hasten launch --tpu ./program
TPU_VISIBLE_CHIPS=0,1 hasten launch --tpu -n 4 ./program
HASTEN_JOB_TOKEN=0123456789abcdef0123456789abcdef hasten launch --tpu -n 4 --num_machines 2 --machine_rank 0 --main_process_ip 127.0.0.1 ./program
[ -e started ] || echo 'nothing is started'
