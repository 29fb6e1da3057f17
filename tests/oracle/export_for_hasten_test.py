#!/usr/bin/env python3
"""Tests tools/export_for_hasten.py. Skipped without HASTEN_REFERENCE_PYTHON, the path of a Python with torch.

    export_for_hasten_test.py path/to/hasten

The test exports a model with tied parameters, dropout and batch norm with both programs, and `hasten inspect` must accept the file. A
model with an autograd.Function that defines a different gradient must be refused.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CASES = r'''
import pathlib, sys
import torch
from torch import nn
sys.path.insert(0, sys.argv[1])
from export_for_hasten import ExportError, export_for_hasten
folder = pathlib.Path(sys.argv[2])


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.norm = nn.Embedding(11, 6), nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.decoder = nn.Linear(6, 11, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, input_ids, labels):
        x = self.norm(self.hidden(self.embed(input_ids)).transpose(1, 2)).transpose(1, 2)
        if self.training:
            x = x * (torch.rand(x.shape[0], 1, 1) > 0.3)
        logits = self.decoder(nn.functional.dropout(x, 0.1, self.training))
        return {"loss": nn.functional.cross_entropy(logits.view(-1, 11), labels.view(-1)), "logits": logits}


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.round()

    @staticmethod
    def backward(context, gradient):
        return gradient


class Rounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.outer(StraightThrough.apply(self.inner(x)))


ids = torch.randint(0, 11, (4, 6))
model = Language()
state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
report = export_for_hasten(model, {"input_ids": ids, "labels": ids}, folder / "language.pt2")
assert report.programs == ["model", "eval"], report
assert report.dynamic == ["batch", "length"], report
assert report.gradient_difference <= 1e-6, report
assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
try:
    export_for_hasten(Rounded(), {"x": 3 * torch.randn(4, 5)}, folder / "rounded.pt2")
    raise AssertionError("the lost backward was not noticed")
except ExportError as error:
    assert "inner" in str(error) and "autograd.Function" in str(error), error
assert not (folder / "rounded.pt2").exists()
try:
    export_for_hasten(Language(), {"input_ids": ids[:1], "labels": ids[:1]}, folder / "one.pt2")
    raise AssertionError("a batch of one row was accepted")
except ExportError as error:
    assert "at least 2" in str(error), error
print("exported")
'''


def main():
    python = os.environ.get("HASTEN_REFERENCE_PYTHON")
    if not python:
        return print("skipped: HASTEN_REFERENCE_PYTHON names no Python with torch")
    tools = pathlib.Path(__file__).resolve().parents[2] / "tools"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-W", "ignore", "-c", CASES, str(tools), folder], check=True)
        output = subprocess.run([sys.argv[1], "inspect", f"{folder}/language.pt2", "--json"], check=True, capture_output=True, text=True)
        contents = json.loads(output.stdout)
        assert contents["is_accepted"], contents["refusal"]
        assert sorted(program["name"] for program in contents["programs"]) == ["eval", "model"], contents["programs"]
    print("ok")


if __name__ == "__main__":
    main()
