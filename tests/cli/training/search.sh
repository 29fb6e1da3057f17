# Tests hasten search: proposals, pruning, the table, resuming, and search spaces that are refused before anything runs.
model=$data/models/sequence_single_label # 61 ids, 3 labels, 32 positions
runs="train --use_cpu --disable_tqdm --model $model --data dummy --eval_data dummy --dummy_length 8 --dummy_rows 16 --max_steps 4 --eval_strategy steps --eval_steps 2 --save_strategy no --logging_strategy no"
# Seconds differ between runs, and losses differ between CPUs.
search() { hasten search "$@" 2>&1 | sed -E 's/eval_loss +[0-9.]+/eval_loss LOSS/; s/^( +[0-9]+  [a-z]+ +)[0-9.]+( +[0-9]+ +)[0-9.]+/\1LOSS\2SECONDS/'; }

echo "## a grid"
printf 'learning_rate: {choice: [1e-2, 1e-7]}\nper_device_train_batch_size: {int: [4, 8], step: 4}\n' >grid.yaml
search grid.yaml --method grid --output_dir grid -- $runs | sed -E '/^ +[0-9]/d' # the order of the table depends on losses
ls grid
python3 - <<'PYTHON'
import json
results = json.load(open("grid/results.json"))
print([(trial["trial"], trial["state"], trial["parameters"]) for trial in results["trials"]])
best = min(results["trials"], key=lambda trial: trial["value"])
print("the best is", results["best"] == best, best["parameters"]["learning_rate"])
for trial in results["trials"]:
    arguments = json.load(open(f"grid/run-{trial['trial']}/training_args.json"))
    print(arguments["learning_rate"], arguments["per_device_train_batch_size"], trial["reports"][-1][1] == trial["value"])
PYTHON

echo "## nothing is left to do"
cp grid/journal.jsonl before
search grid.yaml --method grid --output_dir grid -- $runs | sed -E '/^ +[0-9]/d'
cmp before grid/journal.jsonl && echo "no trial ran again"

echo "## a half-written line"
head -c -30 before >grid/journal.jsonl
search grid.yaml --method grid --output_dir grid -- $runs 2>&1 | grep '^hasten' | sed -E 's/\([0-9]+ bytes\)/(N bytes)/'

echo "## other arguments"
search grid.yaml --method grid --output_dir grid --seed 7 -- $runs
search grid.yaml --method grid --output_dir grid -- $runs --seed 7 | sed -E "s/'metric .*' *, as/'...', as/; s/'metric [^']*'/'...'/g"

echo "## a run whose learning rate stays near 0 for hours is stopped early"
printf 'max_steps: {choice: [4, 1000000]}\n' >pruned.yaml
search pruned.yaml --method grid --n_startup_trials 1 --output_dir pruned -- ${runs/--max_steps 4/} --learning_rate 1e-2 --warmup_steps 0.5 | sed -E 's/(pruned +2 +)[0-9.]+/\1SECONDS/'
tail -n 1 pruned/journal.jsonl | grep -o '"state":"[a-z]*"'

echo "## runs that fail"
printf 'max_grad_norm: {choice: [1, 2]}\n' >failing.yaml
hasten search failing.yaml --method grid --output_dir failing -- train --use_cpu --model "$model" --data missing.tsv --eval_data dummy
printf 'not safetensors' >bad.safetensors
hasten search failing.yaml --method grid --output_dir failing -- train --use_cpu --disable_tqdm --model "$model" --data bad.safetensors --eval_data dummy
ls failing
hasten search failing.yaml --method grid --output_dir unknown --metric eval_f2 -- $runs 2>&1 | sed -E 's/expected .* Hint/expected NAMES. Hint/'

echo "## refused before anything runs"
refused() { printf "$1" >space.yaml && shift && hasten search space.yaml --output_dir refused "$@" -- $runs; }
refused 'lerning_rate: {uniform: [0, 1]}\n'
refused 'seed: {choice: [1, 2]}\nlearning_rate: {uniform: [-1, 1]}\n'
refused 'log_level: {choice: [info, infos]}\n'
refused 'learning_rate: [1, 2]\n'
refused 'learning_rate: {log_uniform: [1e-3, 1e-5]}\n'
refused 'learning_rate: {log_uniform: [1e-5, 1e-3]}\n' --method grid
refused 'per_device_train_batch_size: {uniform: [4, 8]}\n'
refused 'max_steps: {int: [1, 4]}\n'
refused 'output_dir: {choice: [a, b]}\n'
refused 'learning_rate: {choice: [1e-5]}\n' --n_jobs 0
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 hasten search space.yaml --output_dir refused -- $runs
ls refused 2>&1
hasten search
hasten search space.yaml
hasten search space.yaml -- launch -n 2 train
hasten search nowhere.yaml -- $runs
hasten search space.yaml -- $runs --output_dir out
hasten search space.yaml -- $runs --n_trials 3
hasten search space.yaml -- train --use_cpu --model "$model" --data dummy
mkdir -p used/run-0 && hasten search space.yaml --output_dir used -- $runs
