"""Writes tests/unit/formats/data with Python's safetensors (0.8.0) and huggingface_hub. hasten must read these files and
write them again byte for byte. The script needs torch 2.11, safetensors and huggingface_hub:

    python tests/unit/formats/generate_data.py
"""

import json
import pathlib

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file

folder = pathlib.Path(__file__).parent / "data"
folder.mkdir(exist_ok=True)
pt = {"format": "pt"}

raw = torch.arange(16, dtype=torch.uint8)
kinds = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16",
         "uint32", "uint64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
         "float8_e8m0fnu", "float4_e2m1fn_x2"]
tensors = {}
for number, kind in enumerate(kinds):
    dtype = getattr(torch, kind)
    values = (raw % 2).bool() if kind == "bool" else raw.clone().view(dtype)
    tensors[f"{(number * 7) % len(kinds):02d}.{kind}"] = values.reshape(2, -1)
save_file(tensors, folder / "dtypes.safetensors", metadata=pt)

names = {
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0),
    "empty.rows": torch.zeros(0, 3, dtype=torch.int64),
    "empty.columns": torch.zeros(3, 0, dtype=torch.int64),
    'quote " backslash \\ slash / newline \n tab \t bell \x07 delete \x7f': torch.ones(1),
    "é ü 漢字 \U0001f600 \u2028": torch.ones(2),
    "": torch.ones(3, dtype=torch.int32),
    "ones": torch.ones(1, 1, 1, 1, 1, dtype=torch.uint8),
}
save_file(names, folder / "names.safetensors", metadata=pt)
save_file(names, folder / "no_metadata.safetensors")
save_file({}, folder / "nothing.safetensors")

# Shards of at most 100 bytes, with the tensors in this order.
sharded = folder / "sharded"
sharded.mkdir(exist_ok=True)
weights = {"b": torch.arange(10.0), "a": torch.arange(12.0), "large": torch.arange(40.0), "c": torch.arange(3.0),
           "é": torch.arange(2.0)}
split = split_torch_state_dict_into_shards(weights, max_shard_size=100)
for name, keys in split.filename_to_tensors.items():
    save_file({key: weights[key] for key in keys}, sharded / name, metadata=pt)
index = {"metadata": {"total_parameters": sum(t.numel() for t in weights.values()), **split.metadata},
         "weight_map": split.tensor_to_filename}
(sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
