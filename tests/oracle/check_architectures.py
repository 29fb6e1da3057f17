#!/usr/bin/env python3
"""Loads the architectures that hasten has trained and saved, and compares their outputs with hasten's outputs.

    python check_architectures.py FOLDER

FOLDER has a folder for each architecture with trained.pt2, model.safetensors and outputs.safetensors. The outputs are `input.NAME`, `logits` in
training mode after torch.manual_seed(7), and `eval_logits`. The program of torch.export computes the `logits`. If transformers is installed, its
model computes the `eval_logits` with the weights. The script writes results.json with the largest difference of each output.
"""
import importlib
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch.export.graph_signature import ConstantArgument, InputKind

TOLERANCE = 1e-5
torch.set_num_threads(1)
try:
    import generate_architectures
    importlib.import_module("transformers.modeling_outputs")  # torch.export.load needs the classes of outputs
    MODELS = generate_architectures.MODELS
except ImportError:
    MODELS = {}


def logits_of(outputs):
    if isinstance(outputs, torch.Tensor):
        return outputs
    return outputs["logits"] if "logits" in outputs else outputs["logits_per_text"]


def difference(found, expected):
    assert found.shape == expected.shape and found.dtype == expected.dtype, (found.shape, expected.shape)
    return (found - expected).abs().max().item() / (1 + expected.abs().max().item())


def check(folder):
    # Creating the model imports the class of its outputs, which torch.export.load needs.
    model = MODELS[folder.name][0]() if folder.name in MODELS else None
    program, weights = torch.export.load(folder / "trained.pt2"), load_file(folder / "model.safetensors")
    outputs = load_file(folder / "outputs.safetensors")
    state = program.state_dict
    for name, tensor in weights.items():
        assert torch.equal(state[name], tensor), f"{name} differs between the two files"
    inputs = {name.removeprefix("input."): tensor for name, tensor in outputs.items() if name.startswith("input.")}
    constants = {spec.arg.name: spec.arg.value for spec in program.graph_signature.input_specs
                 if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument) and spec.arg.value is not None}
    worst = 0.0
    with torch.no_grad():
        if model is not None:  # first, because a program in training mode changes the statistics of batch norm
            model.load_state_dict(state)
            worst = difference(logits_of(model.eval()(**inputs, **constants)), outputs["eval_logits"])
        module = program.module()
        torch.manual_seed(7)
        return max(worst, difference(logits_of(module(**inputs, **constants)), outputs["logits"]))


def main(root):
    results, failed = {}, False
    for folder in sorted(path for path in pathlib.Path(root).iterdir() if path.is_dir()):
        try:
            results[folder.name] = check(folder)
        except Exception as error:  # so that every architecture is reported
            print(f"{folder.name}: {type(error).__name__}: {str(error)[:300]}")
            failed = True
            continue
        if not results[folder.name] <= TOLERANCE:
            print(f"{folder.name}: the outputs differ by {results[folder.name]:.1e}")
            failed = True
    (pathlib.Path(root) / "results.json").write_text(json.dumps(results))
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
