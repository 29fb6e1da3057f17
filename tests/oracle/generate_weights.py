#!/usr/bin/env python3
"""Writes the weights of small modules with safetensors' save_model and save_file, and the outputs of the modules, to data/weights/.

    python generate_weights.py
    python generate_weights.py --read FOLDER     compares the files that weights_test.cpp wrote with the Python modules instead

weights_test.cpp has the same modules in C++. NAME.safetensors has the weights, expected.safetensors the inputs and outputs.
"""
import os
import pathlib
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "weights"


class Text(nn.Module):
    """Has tied embeddings, an LSTM, a list of layers, and its own parameter and two buffers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 6, num_layers=2, batch_first=True)
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.norm = nn.LayerNorm(6)
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("offset", torch.arange(6.0))
        self.register_buffer("positions", torch.full((7, 6), 0.25), persistent=False)
        self.decoder = nn.Linear(6, 11, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids) + self.positions[: ids.shape[1]]
        x, _ = self.lstm(x)
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.decoder(self.norm(x) * self.gain + self.offset)


class Vision(nn.Module):
    """Has a norm with running statistics, and a Sequential."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))))


def generate():
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(5)
    text, vision = Text(), Vision()
    ids, image = torch.randint(0, 11, (2, 7)), torch.randn(3, 3, 4, 4)
    for _ in range(3):  # updates the running statistics
        vision(torch.randn(8, 3, 4, 4) + 0.5)
    text.eval()
    vision.eval()
    save_model(text, str(FOLDER / "text.safetensors"))
    state = {name: tensor.clone() for name, tensor in text.state_dict().items()}
    save_file({"module." + name: tensor for name, tensor in state.items()}, FOLDER / "text_untied.safetensors")
    save_file(vision.state_dict(), FOLDER / "vision.safetensors")
    save_file({name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in vision.state_dict().items()},
              FOLDER / "vision_half.safetensors")
    with torch.no_grad():
        save_file({"text.input": ids, "text.output": text(ids), "vision.input": image, "vision.output": vision(image)},
                  FOLDER / "expected.safetensors")


def read(folder):
    expected, failures = load_file(folder / "expected.safetensors"), 0
    for name, module in (("text", Text()), ("vision", Vision())):
        for file in sorted(folder.glob(f"{name}*.safetensors")):
            missing, unexpected = load_model(module, file, strict=True)
            module.eval()
            with torch.no_grad():
                output = module(expected[f"{name}.input"])
            difference = (output - expected[f"{name}.output"]).abs().max().item()
            holds = not missing and not unexpected and difference < 1e-5
            failures += not holds
            print(f"{'ok    ' if holds else 'FAILED'} {file.name}: the outputs differ by {difference}")
    return failures


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        sys.exit(min(1, read(pathlib.Path(sys.argv[2]))))
    generate()
