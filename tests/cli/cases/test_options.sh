# Errors are reported before a process starts. hasten test takes the options of hasten launch, but no program.
hasten test --help | head -n 6
hasten test ./train
hasten test --timeout 0
hasten test --timout 3
hasten test -n two
hasten test --config_file missing.yaml
printf 'num_proceses: 2\n' >wrong.yaml
hasten test --config_file wrong.yaml
hasten test --num_machines 2 --machine_rank 0 --main_process_ip 127.0.0.1
HASTEN_JOB_TOKEN=short hasten test --num_machines 2 --machine_rank 0 --main_process_ip 127.0.0.1
hasten test --slurm
hasten test --dry_run --use_cpu --timeout 5 | grep -E '^num_processes|^# rank|test-rank'
printf 'num_processes: 3\n' >three.yaml
hasten test --dry_run --config_file three.yaml | grep -cE '^# rank'
# The replaced ranks print nothing. They end with code 0, and then with another code.
hasten test -n 2 --timeout 20 2>/dev/null | sed -E 's/ +[0-9]+\.[0-9]{2} s$//; s/[0-9]+ ms/T ms/; s/\[[01]\]/[RANK]/'
FAKE_TORCH_EXIT=9 hasten test -n 2 --timeout 20 2>/dev/null | grep FAIL |
  sed -E 's/ +[0-9]+\.[0-9]{2} s$//; s/rank [01] on [^ ]+ \(pid [0-9]+\)/RANK/; s/after [0-9.]+ s/after T s/'
rm "$folder/bin/hasten-torch"
hasten test -n 2
