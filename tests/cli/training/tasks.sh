# Tests hasten train --task: the scores and the saved model of each task, and the rows that are refused before training.
tasks=$data/tasks
train() { hasten train --use_cpu --disable_tqdm --save_strategy no --max_length 24 --per_device_train_batch_size 8 --learning_rate 1e-3 "$@" --output_dir out 2>&1; }
# Prints the names of the scores and the values that identify the saved model.
result() {
  grep -E 'parameters|error|^exit|^eval_' | sed -E 's/ +[0-9.]+$//; s/ from .*//'
  python3 -c '
import json, os
config = json.load(open("out/config.json"))
print(config["architectures"], config.get("id2label"), sorted(os.listdir("out")))'
  rm -rf out
}

echo "## token classification"
train --task token-classification --model "$tasks/token_classification" --data "$tasks/token_classification/train.jsonl" \
  --eval_data "$tasks/token_classification/eval.jsonl" | result
sed 's/"tags"/"ner_tags"/' "$tasks/token_classification/train.jsonl" >ner.jsonl
train --task token-classification --model "$tasks/token_classification" --data ner.jsonl --max_steps 1 | grep error
train --task token-classification --model "$tasks/token_classification" --data ner.jsonl --label_column ner_tags --max_steps 1 | result

echo "## masked language modelling"
train --task masked-lm --model "$tasks/masked_lm" --data "$tasks/masked_lm/corpus.txt" --eval_data "$tasks/masked_lm/corpus.txt" --line_by_line | result
train --task masked-lm --model "$tasks/masked_lm" --data "$tasks/masked_lm/train.safetensors" --eval_data "$tasks/masked_lm/corpus.txt" --max_steps 2 | result
train --task masked-lm --model "$tasks/masked_lm" --data dummy --dummy_rows 8 --dummy_length 16 --max_steps 1 | result

echo "## language modelling"
train --task causal-lm --model "$data/decoders/gpt2" --data dummy --eval_data dummy --dummy_rows 8 --dummy_length 16 --max_steps 1 | result
train --task causal-lm --model "$data/decoders/llama3" --data "$data/decoders/llama3/rows.safetensors" --max_steps 2 | result

echo "## regression"
train --model "$tasks/regression" --data "$tasks/regression/train.jsonl" --eval_data "$tasks/regression/eval.jsonl" | result

echo "## refused"
refused() { train "$@" | grep -E 'error|exit'; [ ! -e out ] || echo "left behind"; }
printf '{"tokens": ["an", "bela"], "tags": ["O", "B-PER"]}\n{"tokens": ["cor"], "tags": ["O", "O"]}\n' >uneven.jsonl
refused --task token-classification --model "$tasks/token_classification" --data uneven.jsonl
printf '{"tokens": ["an", "bela"], "tags": ["O", "B-PER"]}\n{"tokens": ["cor", 5], "tags": ["O", "O"]}\n' >number.jsonl
refused --task token-classification --model "$tasks/token_classification" --data number.jsonl
printf '{"tokens": ["an"], "tags": ["B-ORG"]}\n' >unknown.jsonl
refused --task token-classification --model "$tasks/token_classification" --data ner.jsonl --label_column ner_tags --eval_data unknown.jsonl
refused --task token-classification --model "$tasks/token_classification" --data "$tasks/token_classification/train.jsonl" --eval_data unknown.jsonl
refused --task token-classification --model "$tasks/token_classification" --data words.tsv
refused --task causal-lm --model "$tasks/masked_lm" --data dummy --dummy_length 16
refused --task masked-lm --model "$tasks/masked_lm/config.json" --data "$tasks/masked_lm/corpus.txt"
printf 'an\n' >short.txt
refused --task masked-lm --model "$tasks/masked_lm" --data short.txt
refused --task image-clasification --model "$tasks/masked_lm" --data short.txt
