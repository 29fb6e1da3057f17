# A model that Python has exported: training, evaluation, files, resuming, an estimate, and refusals. It takes batches of 2 to 64 rows.
cp "$data/exported/transformer.pt2" "$data/exported/mlp.pt2" .
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n' >vocab.txt
python3 - <<'PYTHON'
words = "abcdef"
with open("rows.tsv", "w") as rows:
    rows.write("text\tlabel\n")
    for row in range(24):
        rows.write(" ".join(words[(row * step) % 6] for step in (1, 2, 3)) + f"\t{('no', 'maybe', 'yes')[row % 3]}\n")
PYTHON
numbers() { sed -E 's/[0-9]+\.[0-9]+/N/g; s/ +/ /g'; }
train() { hasten train --use_cpu --disable_tqdm --model transformer.pt2 --data rows.tsv --per_device_train_batch_size 4 --logging_strategy no "$@"; }

echo "## training and evaluation"
train --eval_data rows.tsv --max_steps 12 --save_steps 6 --output_dir out 2>&1 | grep -E '^transformer|eval_accuracy|eval_loss|^Saved|error' | numbers
ls out out/checkpoint-6
echo "## resuming gives the same weights"
train --max_steps 12 --save_steps 6 --output_dir again --resume_from_checkpoint out/checkpoint-6 >/dev/null 2>&1
cmp out/model.safetensors again/model.safetensors && echo same
echo "## the saved program, and its weights alone"
cp vocab.txt out
hasten train --use_cpu --disable_tqdm --do_eval --model out/trained.pt2 --eval_data rows.tsv --output_dir scored --logging_strategy no 2>&1 | grep eval_loss >scored.txt
train --do_eval --weights out/model.safetensors --eval_data rows.tsv --output_dir weights 2>&1 | grep eval_loss | cmp - scored.txt && echo same
echo "## an estimate"
hasten estimate mlp.pt2 --batch 4 --json | grep -o '"peak": [0-9]*' | head -1 >predicted
hasten estimate mlp.pt2 --batch 4 --json --measure | grep -o '"peak": [0-9]*' | head -1 | cmp - predicted && echo "as measured"
echo "## refusals"
hasten train --model none.pt2 --data rows.tsv
hasten train --model mlp.pt2 --data rows.tsv --num_labels 3
hasten train --use_cpu --model mlp.pt2 --data rows.tsv --output_dir no
train --per_device_train_batch_size 23 --output_dir no 2>&1 | tail -1
hasten estimate mlp.pt2 --batch 100 2>&1 | tail -1
ls no 2>&1
