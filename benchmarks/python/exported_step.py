#!/usr/bin/env python3
"""Measures training steps of small models in eager PyTorch or with torch.compile. Prints one JSON line with the median milliseconds of each.

    python exported_step.py --export FOLDER                 # writes NAME.pt2 and NAME.safetensors with its inputs
    python exported_step.py --mode eager|compile --steps 30

A step is a forward pass, a backward pass and an SGD step on one thread. torch.compile needs a C++ compiler. Its first run compiles into
TORCHINDUCTOR_CACHE_DIR.
"""
import argparse
import json
import os
import pathlib
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

torch.set_num_threads(1)
VOCABULARY, CLASSES = 1000, 10
TEXT = dict(vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, max_position_embeddings=128)


class WithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.net(x), labels)}


def mlp():
    return WithLoss(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, CLASSES)))


def bert():
    return transformers.BertForSequenceClassification(transformers.BertConfig(**TEXT, num_labels=CLASSES))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, num_key_value_heads=2, use_cache=False))


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768, image_size=64, patch_size=8, num_labels=CLASSES))


def resnet():
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64, 128], depths=[2, 2, 2], layer_type="basic", num_labels=CLASSES))


def classes(rows):
    return torch.randint(0, CLASSES, (rows,))


def language(rows, length):
    ids = torch.randint(0, VOCABULARY, (rows, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def images(rows):
    return {"pixel_values": torch.randn(rows, 3, 64, 64), "labels": classes(rows)}


MODELS = {"mlp": (mlp, lambda: {"x": torch.randn(32, 64), "labels": classes(32)}),
          "bert": (bert, lambda: {**language(8, 64), "labels": classes(8)}), "llama": (llama, lambda: language(4, 64)),
          "vit": (vit, lambda: images(8)), "resnet": (resnet, lambda: images(8))}


def make(name):
    build, inputs_of = MODELS[name]
    torch.manual_seed(0)
    return build().train(), inputs_of()


def export(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        model, inputs = make(name)
        torch.export.save(torch.export.export(model, (), inputs), str(folder / f"{name}.pt2"))
        save_file({key: value.contiguous() for key, value in inputs.items()}, folder / f"{name}.safetensors")


def median_step_ms(name, mode, steps):
    model, inputs = make(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    call = torch.compile(model) if mode == "compile" else model
    times, warm_up = [], max(3, steps // 5)
    for step in range(warm_up + steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        call(**inputs)["loss"].backward()
        optimizer.step()
        if step >= warm_up:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--export", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    if options.export:
        return export(options.export)
    print(json.dumps({name: median_step_ms(name, options.mode, options.steps) for name in MODELS}))


if __name__ == "__main__":
    main()
