# Wrong arguments: each line ends with code 2 and does not start the program, which would create a file. The columns are
# `environment | options | a part of the message`.
printf 'num_proceses: 2\n' >misspelt.yaml
printf 'num_processes: two\n' >number.yaml
printf '{"max_restarts": -1}\n' >negative.json
printf 'num_processes: [\n' >broken.yaml
printf 'num_machines: 2\nmachine_rank: 2\nmain_process_ip: h\n' >rank.yaml
export HASTEN_JOB_TOKEN=0123456789abcdef0123456789abcdef
lines=0
while IFS='|' read -r variables options message; do
  rm -f FILE
  lines=$((lines + 1))
  # The shell splits the words; none contains a space.
  # shellcheck disable=SC2086
  output=$(env $variables "$folder/bin/hasten" launch $options touch FILE 2>&1)
  code=$?
  if [ "$code" != 2 ] || [ -e FILE ] || [[ $output != *$message* ]]; then
    echo "line $lines: $variables $options: code $code, $output"
    [ ! -e FILE ] || echo "the program was started"
  fi
done <<'END_OF_LINES'
|-n two|num_processes
|-n 0|num_processes
|-n|num_processes
|--num_proceses 2|num_processes
|-n 2 --num-processes|num_processes
|--nproc_per_node tpu|nproc_per_node
|--nproc_per_node 0|nproc_per_node
|--tee 4 --log_dir l|tee
|--tee 3|log_dir
|-t 0:1,0:2 --log_dir l|each local rank once
|-t stdout --log_dir l|tee
|-r 1:|redirects
|-r 0:3|log_dir
|--redirects=-1 --log_dir l|redirects
|--standalone --nnodes 2|standalone
|--standalone --num_machines 3|standalone
|--nnodes 2|at which the machines meet
|--nnodes 2:1 --rdzv_endpoint h|nnodes
|--nnodes x|nnodes
|--nnodes 2 --rdzv-endpoint h:http|HOST:PORT
|--nnodes 2 --master-addr h|machine_rank
|--nnodes 2 --node-rank 2 --master-addr h|machine_rank is 2
|--node_rank=-1|machine_rank
|--master-port 65536|main_process_port
|--num_machines 2 --machine_rank 0|at which the machines meet
|-n 3 --num_machines 2 --machine_rank 0 --main_process_ip h|a multiple of 2
|--rdzv_backend etcd|rdzv_backend
|--rdzv_conf join_timeout=-1|join_timeout
|--rdzv_conf join_timeot=5|join_timeout
|--max_restarts -1|max_restarts
|--grace_period x|grace_period
|--grace_period 1e10|grace_period
|--gpu_ids 0,0|each number once
|--gpu_ids 0,00|leading zeros
|--gpu_ids 0 --use_cpu|gpu_ids
|--local_ranks_filter a|local_ranks_filter
|--local_ranks_filter 01|leading zeros
|--mixed_precision fp17|mixed_precision
|--mixed_precision fp8|not supported
|--use_fsdp|not supported
|--tpu --cpu|--tpu and --use_cpu
|--tpu --multi_gpu|--multi_gpu
|--tpu --gpu_ids 0|--gpu_ids
|--tpu --downcast_bf16|--mixed_precision bf16
|--tpu --env A|NAME=value
|--tpu --tpu_cluster|each machine
|--tpu --vm a|each machine
TPU_LIBRARY_PATH=/p.so TPU_VISIBLE_CHIPS=0|--tpu -n 2|at most 1
TPU_LIBRARY_PATH=/p.so TPU_VISIBLE_CHIPS=a|--tpu|TPU_VISIBLE_CHIPS
|--enable_cpu_affinity=maybe|enable_cpu_affinity
|--config_file misspelt.yaml|misspelt.yaml:1
|--config_file number.yaml|number.yaml:1
|--config_file negative.json|max_restarts
|--config_file broken.yaml|broken.yaml
|--config_file rank.yaml|machine_rank is 2 with 2
PET_NNODES=two||nnodes
PET_NODE_RANK=1||machine_rank is 1
PET_NPROC_PER_NODE=many||PET_NPROC_PER_NODE
PET_MASTER_PORT=http||PET_MASTER_PORT
PET_MAX_RESTARTS=-1||PET_MAX_RESTARTS
HASTEN_NUM_PROCESSES=x||HASTEN_NUM_PROCESSES
HASTEN_NUM_PROCESES=2||HASTEN_NUM_PROCESSES
HASTEN_TEE=9|--log_dir l|tee
HASTEN_JOB_TOKEN=short||token
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1||Open MPI
JOB_COMPLETION_INDEX=1 WORLD_SIZE=2|-n 2|Kubernetes
END_OF_LINES
echo "$lines lines are refused; a correct one starts:"
hasten launch touch FILE && ls FILE
