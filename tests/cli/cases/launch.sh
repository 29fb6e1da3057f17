# Tests several processes of one program: their environment, the labels of their output, the first failure, and arguments that are refused before a
# process starts. (`stripped` removes text that differs between runs.)
cat >program <<'END'
#!/bin/sh
case $1 in
  print) echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR, attempt $TORCHELASTIC_RESTART_COUNT, threads $OMP_NUM_THREADS, $ACCELERATE_MIXED_PRECISION" ;;
  fail) [ "$RANK" = 1 ] || exec sleep 60; echo "a line before"; echo "what(): no such file" >&2; exit 7 ;;
  die) [ "$RANK" = 0 ] || exec sleep 60; kill -SEGV $$ ;;
  once) [ "$TORCHELASTIC_RESTART_COUNT" = 1 ] && echo "the restart succeeds" && exit 0; exit 3 ;;
  name) echo "job $TORCHELASTIC_RUN_ID, attempt $TORCHELASTIC_RESTART_COUNT" ;;
  half) printf 'no end of line' ;;
esac
END
chmod +x program
stripped() { sed -E 's/ on [^ ]+ \(pid [0-9]+\)/ on HOST (pid N)/; s/after [0-9.]+ s/after T s/' | sort; }
unset OMP_NUM_THREADS
hasten launch -n 3 --num_cpu_threads_per_process 2 --mixed_precision bf16 ./program print 2>&1 | stripped
hasten launch ./program print 2>&1 | sed 's/threads [0-9]*/threads T/'
hasten launch -n 3 ./program fail 2>&1 | stripped
hasten launch -n 2 ./program die 2>&1 | stripped
hasten launch -n 2 --max_restarts 2 ./program once 2>&1 | grep -c 'the restart succeeds'
hasten launch -n 1 --max_restarts 0 ./program once 2>&1 | stripped
# A job of Slurm has the same name when Slurm starts it again, and counts these starts. A name that the user gives comes first.
SLURM_JOB_ID=4711 SLURM_RESTART_COUNT=2 hasten launch -n 1 ./program name
SLURM_JOB_ID=4711 hasten launch -n 1 --rdzv_id mine ./program name
hasten launch -n 2 ./program half | sort
hasten launch -n 2 --log_dir logs --local_ranks_filter 1 -q ./program print | cut -d, -f1
head -c 11 logs/attempt_0/rank_0.log; echo
# A configuration file of Accelerate, with keys that hasten uses and keys that it ignores.
printf "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: 'no'\nnum_machines: 1\nmachine_rank: 0\nnum_processes: 2\nuse_cpu: true\nmain_training_function: main\nrdzv_backend: static\nsame_network: true\ntpu_env: []\nenable_cpu_affinity: true\n" >accelerate.yaml
hasten launch --config_file accelerate.yaml ./program print 2>&1 | sed 's/threads [0-9]*/threads T/' | sort
hasten launch --config_file accelerate.yaml --dry_run ./program print 2>/dev/null | sed -n '/^num_processes/p;/^enable_cpu/p;/^# rank 1/,/^LOCAL_RANK/p'
printf "num_proceses: 2\n" >wrong.yaml
hasten launch --config_file wrong.yaml ./program
hasten launch --config_file missing.yaml ./program
hasten launch --num_machines 2 ./program
hasten launch --use_fsdp ./program
hasten launch --distributed_type FSDP ./program
hasten launch -n two ./program
hasten launch -n 0 ./program
hasten launch --num_proceses 2 ./program
hasten launch --gpu_ids 0,0 ./program
hasten launch --gpu_ids 0, ./program
hasten launch --use_cpu --gpu_ids 0 ./program
hasten launch --mixed_precision fp8 ./program
hasten launch -n 2
hasten launch -n 2 ./missing
hasten launch -n 2 missing-program
touch plain; hasten launch -n 2 ./plain
hasten launch -n 2 program
hasten launch -n 2 train --epochs 3
hasten launch -n 2 --log_dir plain/logs ./program print
printf 'not a program' >broken; chmod +x broken; hasten launch -n 2 ./broken
# Writes a script for Slurm without starting anything. The program need not exist. Values that would break the lines of the script are refused.
hasten launch --slurm -n 4 --mixed_precision bf16 --slurm_time 01:00:00 --slurm_gpus_per_node 4 --slurm_cpus_per_task 8 ./train 'costs $5' >train.sbatch
bash -n train.sbatch && cat train.sbatch
hasten launch --slurm --slurm_partition 'a b' ./train
hasten launch --slurm --slurm_gpus_per_node 0 ./train
