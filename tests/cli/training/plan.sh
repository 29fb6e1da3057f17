# Predictions for a GPU are equal on all machines, and no GPU is needed.
model=$data/models/sequence_single_label
hasten plan --device cuda:t4 "$model" --batch 4 --seq 16 --avoid fp16 --yaml chosen.yaml | tail -n +3
cat chosen.yaml
hasten train --config_file chosen.yaml --model "$model" --data dummy --dummy_length 16 --print_config | grep -E '^(per_device_train_batch_size|gradient_accumulation_steps)'
hasten plan --techniques | cut -c 1-54
# Mistakes are reported before the search.
hasten plan "$model"
hasten plan --memory 16potatoes "$model"
hasten plan --memory 1GiB
hasten plan --memory 1GiB "$model" --measure
hasten plan --memory 1GiB "$model" --exactness rough
hasten plan --memory 1GiB "$model" --use magic
hasten plan --memory 16GiB "$model" --seq 16 --use adafactor,sgd
hasten plan --memory 16GiB "$model" --seq 16 --use sgd --avoid sgd
hasten plan --device cuda:t4 "$model" --seq 16 --use bf16
hasten plan --memory 1MiB "$model" 2>&1 | sed "s/[0-9.]* MB/N MB/g"
hasten plan --memory 500MiB --device cuda:a100-40gb "$model" --batch 2 --seq 16 --exactness exact
hasten plan --memory 1GiB --
# The table shows the effect of each change alone.
hasten plan --what_if --device cuda:t4 "$model" --batch 4 --seq 16 | tail -n +3
hasten plan --what_if --device cuda:t4 "$model" --batch 4 --seq 16 --json | python3 -c '
import json, sys
comparison = json.load(sys.stdin)
print(comparison["rows"], comparison["bytes"], [each["name"] for each in comparison["changes"] if "rejection_reason" in each])'
hasten plan --what_if "$model" --use bf16
hasten plan --what_if --device cuda:t4 "$model" --batch 4 --seq 16 --mode inference --precision fp16 | tail -n +3 | head -6
# Moving the optimizer states to host memory frees memory on a GPU. The CPU has no second memory for them.
hasten plan --device cuda:h200 bert-base --batch 2 --seq 128 --memory 2GiB --exactness exact --yaml offload.yaml | tail -n +3
grep -v '^#' offload.yaml
hasten plan --memory 1GiB "$model" --seq 16 --use offload_states
# The file contains the options that define the model.
hasten plan --device cuda:t4 "$model" --seq 16 --lora_r 4 --attn_implementation eager --avoid sdpa --yaml adapter.yaml >/dev/null
grep -v '^#' adapter.yaml
# These options have no meaning for a plan.
hasten plan --device cuda:t4 "$model" --mode generate
hasten plan --device cuda:t4 "$model" --memory 16GiB
hasten plan --memory 1GiB --batch 4 -- ./train
# Plans for programs: an unchanged program with a Trainer, hasten train, a program with only an Accelerator, and a program that fails.
examples=$(dirname "$torch")
hasten plan --device cuda:t4 --yaml program.yaml -- "$examples/example_11_train_your_own_model" | sed "s|$examples|EXAMPLES|"
grep -E '^(per_device|gradient|bf16|fp16|optim)' program.yaml
hasten plan --device cuda:a100-40gb --memory 600MiB --use bf16 -- "$folder/bin/hasten" train --model "$model" --data dummy --dummy_rows 64 --dummy_length 16 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 3 2>&1 | tail -n +3
hasten plan --device cuda:t4 --what_if -- "$examples/example_11_train_your_own_model" | tail -n +3 | sed "s|$examples|EXAMPLES|"
hasten plan --memory 4GiB -- "$examples/example_01_accelerated" 2>&1 | sed "s|$examples|EXAMPLES|"
hasten plan --memory 4GiB -- false
