#!/usr/bin/env python3
"""Reads a .pt2 file that hasten has saved, and compares it with the weights that hasten has saved next to it.

    python check_exported.py trained.pt2 model.safetensors outputs.safetensors

The outputs file has the inputs `input.NAME` and hasten's `logits` in evaluation mode. Needs torch, safetensors.
"""
import sys

import torch
from safetensors.torch import load_file


def main(pt2, weights, outputs):
    torch.set_num_threads(1)
    program, weights, outputs = torch.export.load(pt2), load_file(weights), load_file(outputs)
    state = program.state_dict
    for name, tensor in weights.items():
        assert torch.equal(state[name], tensor), name
    first_name = {}
    for name, tensor in state.items():  # the safetensors file contains a tied tensor only once
        first_name.setdefault(tensor.data_ptr() if tensor.numel() else name, name)
    assert sorted(weights) == sorted(first_name.values()), (sorted(weights), sorted(state))
    module = program.module()
    inputs = {name.removeprefix("input."): tensor for name, tensor in outputs.items() if name.startswith("input.")}
    result = module(**inputs)
    logits = result["logits"] if isinstance(result, dict) else result
    assert torch.allclose(logits, outputs["logits"], atol=1e-6), (logits - outputs["logits"]).abs().max()


if __name__ == "__main__":
    main(*sys.argv[1:])
