# The hash chain of a run: hasten verify repeats it, and hasten diff finds where two runs part.
model=$data/models/sequence_single_label # 61 ids, 3 labels, 32 positions

python3 - <<'PYTHON'
import json, struct
rows = 24
ids = [[5 + (row * 7 + place * 3) % 50 for place in range(8)] for row in range(rows)]
columns = {"input_ids": ([rows, 8], [id for row in ids for id in row]), "labels": ([rows], [row % 3 for row in range(rows)])}
header, body = {}, b""
for name, (shape, values) in columns.items():
    data = struct.pack(f"<{len(values)}q", *values)
    header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    body += data
text = json.dumps(header).encode()
open("rows.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PYTHON

train() { hasten train --use_cpu --disable_tqdm --model "$model" --data rows.safetensors --per_device_train_batch_size 4 --logging_strategy no --max_steps 8 --save_steps 4 --hash_chain_steps 2 "$@" >/dev/null 2>&1; }
train --output_dir a
ls a | grep chain

echo "## the run is what its arguments give"
hasten verify a
hasten verify a --from 4

echo "## another seed"
train --output_dir b --seed 43
hasten diff a a
hasten diff a b | sed 's/ and [0-9]* others//'

echo "## a changed file"
cp -r a c
python3 - <<'PYTHON'
lines = open("c/hash_chain.jsonl").read()
at = lines.index('"step":4')
open("c/hash_chain.jsonl", "w").write(lines[:at] + '"step":5' + lines[at + 8:])
PYTHON
hasten diff a c

echo "## errors"
hasten verify missing
hasten verify a --from 3
hasten diff a
hasten diff a missing
hasten diff --help | head -1
hasten verify --help | head -1
