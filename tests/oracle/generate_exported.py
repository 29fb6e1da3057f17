#!/usr/bin/env python3
"""Exports small models with torch.export and records the results of eager PyTorch for them.

    python generate_exported.py                # every model
    python generate_exported.py mlp cnn        # some of them

Each model gets data/exported/NAME.pt2, and NAME.safetensors with the inputs and results. Files of a torch
version other than 2.11 go into a folder named after the version. See README.md.
"""
import argparse
import copy
import os
import pathlib
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.map import map as control_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.export.pt2_archive._package import package_pt2

from eager_training import SEED, save, train, without_origins

torch.set_num_threads(1)

DATA = pathlib.Path(__file__).resolve().parent / "data" / "exported"
VERSION = ".".join(torch.__version__.split(".")[:2])
if VERSION != "2.11":
    DATA /= f"torch-{VERSION}"
ROWS, OTHER_ROWS, STEPS = 4, 7, 5
CLASSES, VOCABULARY, LENGTH = 3, 11, 6


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(8), nn.Linear(8, CLASSES))

    def forward(self, x):
        return self.net(x)


class Cnn(nn.Module):
    """Changes running statistics, and changes activations in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += 0.5
        return self.head(self.relu(y).mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 4)
        self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0][:, -1])


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 4, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        _, last = self.rnn(x)
        return self.head(last[-1])


class Transformer(nn.Module):
    """Takes a mask and labels, and returns a dictionary, as a model of transformers does."""

    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, 8), nn.Embedding(LENGTH, 8)
        self.register_buffer("ids", torch.arange(LENGTH), persistent=False)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, input_ids, attention_mask, labels):
        x = self.embed(input_ids) + self.positions(self.ids[: input_ids.shape[1]])
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
        mask = attention_mask[:, None, None, :].bool()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        logits = self.head(x[:, 0])
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Tied(nn.Module):
    """A language model whose decoder is its embedding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 6)
        self.hidden = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, VOCABULARY, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, input_ids, labels):
        logits = self.decoder(torch.tanh(self.hidden(self.embed(input_ids))))
        return {"loss": F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1)), "logits": logits}


class Branches(nn.Module):
    """Has control flow, a region without gradients, a constant, and arithmetic with sizes."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])

    def forward(self, x):
        with torch.no_grad():
            shift = self.left(x).mean(0, keepdim=True) / (x.shape[0] * 2)
        y = torch.cond(x.sum() > 0, lambda a: self.left(a).tanh(), lambda a: self.right(a).sin(), (x + shift,))
        return self.head(y * self.scale)


class Frozen(nn.Module):
    """Has a frozen layer whose statistics stay fixed in training, and a constant batch size."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(5), nn.Linear(5, CLASSES)
        self.norm.requires_grad_(False)
        self.norm.running_mean.normal_()
        self.norm.eval()

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(self.norm(x))


class DropPath(nn.Module):
    """Draws random numbers only in training, so evaluation needs a separate program."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x):
        y = self.body(x)
        if self.training:
            y = y * (torch.rand(x.shape[0], 1) > 0.3)
        return self.head(x + y)


class Scan(nn.Module):
    """A recurrent layer: a value is passed from step to step, and each step has a result."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.start = nn.Parameter(torch.zeros(1, 4))

    def forward(self, x):
        # Eager PyTorch 2.11 passes no gradient through the carried value if the initial value needs none.
        def step(carried, row):
            state = torch.tanh(self.inner(carried) + row)
            return state, state * 2
        last, all_steps = scan(step, self.start + torch.zeros(x.shape[0], 4), x, dim=1)
        return self.head(last + all_steps.sum(0))


class WhileLoop(nn.Module):
    """A loop without gradients, whose result scales the features."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        with torch.no_grad():
            _, scale = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5 + 1), (torch.zeros((), dtype=torch.long), torch.zeros(4)))
        return self.head(torch.tanh(self.body(x)) * scale)


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(control_map(lambda row: torch.tanh(self.body(row)), x).sum(1))


@torch.library.custom_op("hasten_test::scaled_tanh", mutates_args=(), schema="(Tensor x, float scale) -> Tensor")
def scaled_tanh(x, scale):
    """A custom operator. tests/oracle/custom_operators.cpp has the same operator in C++."""
    return torch.tanh(x * scale)


@scaled_tanh.register_fake
def _(x, scale):
    return torch.empty_like(x)


def _save_for_backward(ctx, inputs, output):
    ctx.scale = inputs[1]
    ctx.save_for_backward(output)


def _backward(ctx, gradient):
    y, = ctx.saved_tensors
    return gradient * ((1 - y * y) * ctx.scale), None


scaled_tanh.register_autograd(_backward, setup_context=_save_for_backward)


class Custom(nn.Module):
    """Calls a custom operator of a library."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(torch.ops.hasten_test.scaled_tanh(self.body(x), 0.7))


def features(*shape):
    return lambda rows: {"x": torch.randn(rows, *shape)}


def tokens(rows):
    return {"x": torch.randint(0, VOCABULARY, (rows, LENGTH))}


def masked_tokens(rows):
    mask = torch.ones(rows, LENGTH, dtype=torch.long)
    mask[1:, LENGTH - 2:] = 0
    return {"input_ids": tokens(rows)["x"], "attention_mask": mask, "labels": torch.randint(0, CLASSES, (rows,))}


def language(rows):
    ids = tokens(rows)["x"]
    return {"input_ids": ids, "labels": ids.roll(-1, 1)}


# Each entry maps a name to the model, its inputs, and options. `programs` exports one program for training and one for evaluation.
MODELS = {
    "mlp": (Mlp, features(5), {}),
    "cnn": (Cnn, features(2, 4, 4), {}),
    "lstm": (Lstm, tokens, {}),
    "gru": (Gru, features(4, 5), {}),
    "transformer": (Transformer, masked_tokens, {}),
    "tied": (Tied, language, {}),
    "branches": (Branches, features(5), {}),
    "frozen": (Frozen, features(5), {"static": True}),
    "drop_path": (DropPath, features(5), {}),
    "two_programs": (DropPath, features(5), {"programs": True}),
    "scan": (Scan, features(6, 4), {}),
    "while_loop": (WhileLoop, features(4), {}),
    "map": (Map, features(6, 4), {}),
    "custom": (Custom, features(5), {}),
}


def loss_of(model, inputs, target):
    out = model(**inputs)
    return (out["loss"], out["logits"]) if isinstance(out, dict) else (F.cross_entropy(out, target), out)


def export(model, inputs, static):
    batch = Dim("batch", min=2, max=64)
    program = torch.export.export(model, (), inputs, dynamic_shapes=None if static else {name: {0: batch} for name in inputs})
    return without_origins(program, ["stack_trace"])


def generate(name):
    make, inputs_of, options = MODELS[name]
    torch.manual_seed(0)
    model = make().train()
    torch.manual_seed(1)
    batches = [(inputs_of(ROWS), torch.randint(0, CLASSES, (ROWS,))) for _ in range(STEPS)]
    other = (inputs_of(OTHER_ROWS), torch.randint(0, CLASSES, (OTHER_ROWS,)))
    static = options.get("static", False)
    programs = {"model": export(copy.deepcopy(model), batches[0][0], static)}
    if options.get("programs"):
        programs = {"train": programs["model"], "eval": export(copy.deepcopy(model).eval(), batches[0][0], static)}
    package_pt2(str(DATA / f"{name}.pt2"), exported_programs=programs)

    out = {}
    for step, (inputs, target) in enumerate(batches):
        out.update({f"input.{step}.{key}": value for key, value in inputs.items()})
        out[f"target.{step}"] = target
    if not static:
        out.update({f"other.{key}": value for key, value in other[0].items()})
        untrained = copy.deepcopy(model)
        torch.manual_seed(SEED)
        out["other_logits"] = loss_of(untrained, *other)[1]
    trained, final = train(model, batches, STEPS, loss_of)
    save({**out, **trained, **final}, DATA / f"{name}.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names or list(MODELS)
    DATA.mkdir(parents=True, exist_ok=True)
    for name in names:
        generate(name)
        print(f"{name}: {(DATA / f'{name}.pt2').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
