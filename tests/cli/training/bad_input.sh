# Tests errors in input files. Each message has the value, its place, what was expected, and a hint. No output is left behind.
model=$data/models/sequence_single_label # 61 ids, 3 labels, 32 positions

# tensors FILE NAME=DTYPE:SHAPE:VALUE ...: writes a safetensors file whose tensors are filled with one value each.
tensors() {
  python3 - "$@" <<'PYTHON'
import json, math, struct, sys
header, body = {}, b""
for word in sys.argv[2:]:
    name, rest = word.split("=")
    dtype, shape, value = rest.split(":")
    shape = [int(n) for n in shape.split("x")]
    data = struct.pack("<q", int(value)) * math.prod(shape)
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    body += data
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + body)
PYTHON
}
# with_header FILE HEADER BYTES: writes a safetensors file with that header and that many zero bytes.
with_header() { python3 -c 'import struct,sys; h=sys.argv[2].encode(); open(sys.argv[1],"wb").write(struct.pack("<Q",len(h))+h+bytes(int(sys.argv[3])))' "$@"; }
train() { hasten train --use_cpu --disable_tqdm --max_steps 2 --output_dir out "$@" 2>&1 | grep -v '^hasten::'; [ ! -e out ] || { echo "left behind:" && ls -A out && rm -rf out; }; }

tensors good.safetensors input_ids=I64:4x8:7 attention_mask=I64:4x8:1 labels=I64:4:1

echo "## weights"
mkdir bare && cp "$model/config.json" bare
train --model bare --data good.safetensors
cp -r bare cut && head -c 9000 "$model/model.safetensors" >cut/model.safetensors
train --model cut --data good.safetensors
cp -r bare short && head -c 5 "$model/model.safetensors" >short/model.safetensors
train --model short --data good.safetensors
cp -r bare overlap
with_header overlap/model.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 12
train --model overlap --data good.safetensors
cp -r bare huge && printf '\377\377\377\377\377\377\377\177{}' >huge/model.safetensors
train --model huge --data good.safetensors
cp -r bare dtype && with_header dtype/model.safetensors '{"a":{"dtype":"Q99","shape":[2],"data_offsets":[0,8]}}' 8
train --model dtype --data good.safetensors
cp -r bare wrong_size && with_header wrong_size/model.safetensors '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}' 8
train --model wrong_size --data good.safetensors
cp -r bare shape && with_header shape/model.safetensors '{"classifier.bias":{"dtype":"F32","shape":[7],"data_offsets":[0,28]}}' 28
train --model shape --data good.safetensors

echo "## data"
tensors label.safetensors input_ids=I64:4x8:7 labels=I64:4:3
train --model "$model" --data label.safetensors
tensors id.safetensors input_ids=I64:4x8:61 labels=I64:4:1
train --model "$model" --data id.safetensors
tensors long.safetensors input_ids=I64:4x33:7 labels=I64:4:1
train --model "$model" --data long.safetensors
tensors none.safetensors input_ids=I64:0x8:7 labels=I64:0:1
train --model "$model" --data none.safetensors
tensors rows.safetensors input_ids=I64:4x8:7 labels=I64:5:1
train --model "$model" --data rows.safetensors
tensors unnamed.safetensors ids=I64:4x8:7 labels=I64:4:1
train --model "$model" --data unnamed.safetensors
tensors unlabelled.safetensors input_ids=I64:4x8:7
train --model "$model" --data unlabelled.safetensors

echo "## texts"
cp -r "$model" texts
printf 'text\tlabel\na b\tx\nb a\ty\n' >good.tsv
train --model texts --data good.tsv
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n' >texts/vocab.txt
for i in $(seq 90); do echo "word$i"; done >>texts/vocab.txt
printf 'text\tlabel\nword1\tx\nword80\ty\nword2\tz\n' >beyond.tsv
train --model texts --data beyond.tsv
printf 'text\tlabel\n' >empty.tsv
train --model texts --data empty.tsv
printf 'text\tlabel\nword1\tx\nword2\n' >ragged.tsv
train --model texts --data ragged.tsv
train --model texts --data good.tsv --label_column lable
printf 'text\tlabel\nword1\tx\nword2\ty\nword3\tunheard\n' >other.tsv
printf 'text\tlabel\nword1\tx\nword2\ty\nword3\tz\n' >three.tsv
train --model texts --data three.tsv --eval_data other.tsv

echo "## output"
: >file
train --model "$model" --data good.safetensors --output_dir file
train --model "$model" --data good.safetensors --output_dir /proc/hasten
hasten train --use_cpu --disable_tqdm --max_steps 2 --save_steps 1 --model "$model" --data good.safetensors --output_dir kept >/dev/null 2>&1
hasten train --use_cpu --disable_tqdm --max_steps 2 --model "$model" --data good.safetensors --output_dir kept 2>&1 | grep error
ls kept
(flock 9; hasten train --use_cpu --disable_tqdm --max_steps 2 --overwrite_output_dir --model "$model" --data good.safetensors --output_dir kept 2>&1) 9>>kept/.hasten-lock
ls kept
rm kept/.hasten-lock
mkdir fresh && hasten train --use_cpu --disable_tqdm --max_steps 1 --save_strategy no --model "$model" --data good.safetensors --output_dir fresh >/dev/null 2>&1
ls fresh

echo "## a limit of file sizes"
(ulimit -f 20 && hasten train --use_cpu --disable_tqdm --max_steps 2 --save_steps 1 --async_save false --model "$model" --data good.safetensors --output_dir limited) 2>&1 | grep -oE '^exit code.*|got File too large.*'
ls limited

echo "## numbers"
hasten train --use_cpu --disable_tqdm --max_steps 3 --learning_rate 1e38 --stop_on_nonfinite_loss --save_strategy no --model "$model" --data good.safetensors --output_dir out 2>&1 | grep -v '^hasten::'
