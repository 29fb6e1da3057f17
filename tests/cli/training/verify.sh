# Tests the hash chain of a run. hasten verify repeats the run, and hasten diff finds the first difference between two runs.
model=$data/models/sequence_single_label # 61 ids, 3 labels, 32 positions

write_rows

train() { hasten train --use_cpu --disable_tqdm --model "$model" --data rows.safetensors --per_device_train_batch_size 4 --logging_strategy no --max_steps 8 --save_steps 4 --hash_chain_steps 2 "$@" >/dev/null 2>&1; }
train --output_dir a
ls a | grep chain

echo "## the run is what its arguments give"
hasten verify a
hasten verify --from 4 a

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

echo "## a run that continues after this"
cp c/hash_chain.jsonl damaged
train --output_dir c --resume_from_checkpoint c/checkpoint-4
cmp c/hash_chain.jsonl.damaged damaged
hasten verify c

echo "## two changed tensors of a checkpoint"
cp -r a d
python3 - <<'PYTHON'
import json, struct
path = "d/checkpoint-8/model.safetensors"
data = bytearray(open(path, "rb").read())
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
for name in ("classifier.bias", "classifier.weight"):
    data[8 + size + header[name]["data_offsets"][0]] ^= 1
open(path, "wb").write(data)
PYTHON
hasten diff a d

echo "## errors"
hasten verify missing
mkdir empty && hasten verify empty
hasten verify a --from 3
hasten diff a
hasten diff a missing
hasten diff a empty
hasten diff --help | head -1
hasten verify --help | head -1
