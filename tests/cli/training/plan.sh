# Predictions for a GPU are equal on all machines; none is needed.
model=$data/models/sequence_single_label
hasten plan --device cuda:t4 "$model" --batch 4 --seq 16 --avoid fp16 --yaml chosen.yaml | tail -n +3
cat chosen.yaml
hasten train --config_file chosen.yaml --model "$model" --data dummy --print_config | grep -E '^(per_device_train_batch_size|gradient_accumulation_steps)'
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
