# Tests custom operators of a library ($CUSTOM_OPERATORS) in an exported model, and rows without labels.
cp "$data/exported/custom.pt2" "$data/exported/transformer.pt2" "$data/exported/mlp.pt2" .
python3 - <<'PYTHON'
import json
with open("rows.jsonl", "w") as rows:
    for row in range(16):
        rows.write(json.dumps({"x": [row % 3, 1, -row % 5, 0.5, row / 16], "labels": row % 3}) + "\n")
with open("unlabelled.jsonl", "w") as rows:
    for row in range(8):
        rows.write(json.dumps({"x": [row % 3, 1, -row % 5, 0.5, row / 16]}) + "\n")
with open("ids.jsonl", "w") as rows:
    for row in range(8):
        rows.write(json.dumps({"input_ids": [row, 1, 2, 3, 4, 5], "attention_mask": [1] * 6}) + "\n")
PYTHON
code() { "$@" 2>&1 | grep -oE 'error\[[a-z.-]*\]|exit code [0-9]+'; }
run() { hasten train --use_cpu --disable_tqdm --logging_strategy no --per_device_train_batch_size 4 --per_device_eval_batch_size 4 "$@"; }

echo "## a library of operators"
hasten inspect custom.pt2 | tail -1 | grep -oE 'refuses it \[.*\]|namespace hasten_test is not among the allowed ones'
hasten inspect custom.pt2 --library "$CUSTOM_OPERATORS" | tail -1
run --model custom.pt2 --library "$CUSTOM_OPERATORS" --data rows.jsonl --max_steps 3 --output_dir out 2>/dev/null | grep -o 'Saved in out'
hasten estimate custom.pt2 --library "$CUSTOM_OPERATORS" --batch 4 --json | grep -oE '"peak": ?[0-9]+' | head -1 >predicted
[ -s predicted ] && hasten estimate custom.pt2 --library "$CUSTOM_OPERATORS" --batch 4 --json --measure | grep -oE '"peak": ?[0-9]+' | head -1 | cmp - predicted && echo "as measured"
echo text >text.so
code run --model custom.pt2 --data rows.jsonl --output_dir no
code run --model custom.pt2 --library missing.so --data rows.jsonl --output_dir no
code run --model custom.pt2 --library text.so --data rows.jsonl --output_dir no
code run --model bert-base --library text.so --data dummy --output_dir no
code hasten inspect custom.pt2 --library missing.so
[ -e no ] || echo "nothing was written"
echo "## predictions for rows without labels"
run --do_predict --model mlp.pt2 --eval_data unlabelled.jsonl --output_dir predicted_mlp 2>/dev/null | grep -o 'Predictions in.*'
run --do_predict --model transformer.pt2 --eval_data ids.jsonl --output_dir predicted_text 2>/dev/null | grep -o 'Predictions in.*'
python3 - <<'PYTHON'
import json, struct
for name in ("predicted_mlp", "predicted_text"):
    content = open(f"{name}/predictions.safetensors", "rb").read()
    size, = struct.unpack("<Q", content[:8])
    print({tensor: entry["shape"] for tensor, entry in json.loads(content[8:8 + size]).items() if tensor != "__metadata__"})
PYTHON
code run --do_eval --model mlp.pt2 --eval_data unlabelled.jsonl --output_dir no
