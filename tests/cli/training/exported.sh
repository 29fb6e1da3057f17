# Tests a model that Python has exported: training, files, resuming, evaluation, an adapter, an estimate, and refusals. The model takes batches of 2 to 64 rows.
cp "$data/exported/transformer.pt2" "$data/exported/mlp.pt2" .
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n' >vocab.txt
python3 - <<'PYTHON'
words = "abcdef"
with open("rows.tsv", "w") as rows:
    rows.write("text\tlabel\n")
    for row in range(24):
        rows.write(" ".join(words[(row * step) % 6] for step in (1, 2, 3)) + f"\t{('no', 'maybe', 'yes')[row % 3]}\n")
PYTHON
train() { hasten train --use_cpu --disable_tqdm --model transformer.pt2 --data rows.tsv --per_device_train_batch_size 4 --logging_strategy no "$@"; }
code() { "$@" 2>&1 | grep -oE 'error\[[a-z.-]*\]|exit code [0-9]+'; }

echo "## training and evaluation"
train --eval_data rows.tsv --max_steps 12 --save_steps 6 --output_dir out 2>/dev/null | grep -oE '^(eval_accuracy|eval_loss|Saved in out)'
for name in trained.pt2 model.safetensors vocab.txt checkpoint-6/trained.pt2 checkpoint-6/model.safetensors; do [ -s "out/$name" ] && echo "$name"; done
echo "## resuming"
train --max_steps 12 --save_steps 6 --output_dir again --resume_from_checkpoint out/checkpoint-6 >/dev/null 2>&1
cmp out/model.safetensors again/model.safetensors && echo "the same weights"
echo "## evaluation of the saved program, and of its weights alone"
hasten train --use_cpu --disable_tqdm --do_eval --model out/trained.pt2 --eval_data rows.tsv --output_dir scored 2>/dev/null | grep '^eval_loss' | tr -s ' ' >scored.txt
[ -s scored.txt ] && train --do_eval --weights out/model.safetensors --eval_data rows.tsv --output_dir weights 2>/dev/null | grep '^eval_loss' | tr -s ' ' | cmp - scored.txt && echo "the same score"
echo "## the seed determines the weights of a new adapter"
for seed in 1 2; do
  train --lora_r 2 --lora_target_modules up,down --max_steps 1 --seed $seed --output_dir seed-$seed >/dev/null 2>&1
done
# A step does not change the factor A, because B is 0.
python3 - <<'PYTHON'
import json
import struct


def factors(seed):
    with open(f"seed-{seed}/adapter_model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        values = file.read()
    return {name: values[slice(*entry["data_offsets"])] for name, entry in header.items() if "lora_A" in name}


one, two = factors(1), factors(2)
print(sum(one[name] != two[name] for name in one), "of", len(one), "differ")
PYTHON
echo "## an estimate"
hasten estimate mlp.pt2 --batch 4 --json | grep -oE '"peak": ?[0-9]+' | head -1 >predicted
[ -s predicted ] && hasten estimate mlp.pt2 --batch 4 --json --measure | grep -oE '"peak": ?[0-9]+' | head -1 | cmp - predicted && echo "as measured"
echo "## refusals"
code hasten train --model none.pt2 --data rows.tsv
code hasten train --model mlp.pt2 --data rows.tsv --num_labels 3
code hasten train --use_cpu --model mlp.pt2 --data rows.tsv --output_dir no
code train --per_device_train_batch_size 23 --output_dir no
code hasten estimate mlp.pt2 --batch 100
[ -e no ] || echo "nothing was written"
