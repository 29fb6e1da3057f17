#!/usr/bin/env python3
"""Runs steps of 8-bit AdamW and Lion in numpy with the published algorithm, and writes data/optimizers_8bit.safetensors.

    python generate_8bit_optimizers.py

The algorithm comes from "8-bit Optimizers via Block-wise Quantization" (arXiv 2110.02861). It uses the maps of bitsandbytes and
its blocks of 256 elements. Each number of a moment is encoded as the nearest number of the map. Everything is computed in float32,
and each operation is rounded separately, so hasten must get the same bits. Gradients and weights are functions of the index
(`numbers`), and the test computes them in the same way. Names: CASE.codes and CASE.scales [steps, ...] have the values after each
step ("_sq" marks the second moment), and CASE.weights has the weights after the last step.

CASE.bitsandbytes has the weights of the optimizer of bitsandbytes 0.50.2 on the CPU. Its 8-bit weights differ, because it looks up
codes in a table of 2^16 equal steps. Numbers below 3e-5 of the largest one therefore do not always get the nearest code. The
compared case has gradients of similar size, for which this matters little.
"""
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

f32 = np.float32
FILE = pathlib.Path(__file__).resolve().parent / "data" / "optimizers_8bit.safetensors"
STEPS, COUNT, BLOCK = 4, 4100, 256


def numbers(count, salt, spread=13):
    """Returns numbers that are exact in float32. Their sizes differ by up to a factor of 2^spread."""
    index = np.arange(count, dtype=np.uint64)
    mixed = (index * np.uint64(2654435761) + np.uint64(salt) * np.uint64(40503) + (index >> np.uint64(3))) % np.uint64(1 << 32)
    signed = (mixed >> np.uint64(8)).astype(np.int64) - (1 << 23)
    return (signed.astype(f32) * f32(2.0**-24)) * np.exp2(-(mixed % np.uint64(spread)).astype(f32))


def dynamic_map(signed):
    data = [0.0, 1.0]
    for power in range(7):
        parts = 2 ** (power if signed else power + 1)
        step = f32((f32(1) - f32(0.1)) / f32(parts))
        limits = [
            f32(np.float64(f32(0.1)) + np.float64(step) * k) if k < (parts + 1) // 2 else f32(1.0 - np.float64(step) * (parts - k))
            for k in range(parts + 1)
        ]
        middles = [f32(f32(a + b) / f32(2)) for a, b in zip(limits, limits[1:])]
        data += [f32(10.0 ** (power - 6)) * m for m in middles]
        if signed:
            data += [-(f32(10.0 ** (power - 6)) * m) for m in middles]
    return np.sort(np.array(data, dtype=f32))


class Moment:
    def __init__(self, count, signed, quantizes):
        self.map, self.quantizes = dynamic_map(signed), quantizes
        self.values = np.zeros(count, dtype=f32)
        self.codes = np.zeros(count, dtype=np.uint8)
        self.scales = np.zeros(-(-count // BLOCK), dtype=f32)

    def decoded(self):
        if not self.quantizes:
            return self.values
        return self.map[self.codes] * np.repeat(self.scales, BLOCK)[: len(self.codes)]

    def encode(self, values):
        self.values = values
        if not self.quantizes:
            return
        for block in range(len(self.scales)):
            part = slice(block * BLOCK, (block + 1) * BLOCK)
            largest = np.abs(values[part]).max()
            self.scales[block] = largest
            if largest == 0:
                self.codes[part] = 0
                continue
            # Chooses the nearest of all 256 numbers, or the lower of two equally near ones.
            distances = np.abs((values[part] / largest)[:, None] - self.map[None, :])
            self.codes[part] = distances.argmin(axis=1)


def to_bfloat16(x):
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(f32)


def run(name, optimizer, rounds, count=COUNT, quantizes=True, spread=13, lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1):
    weights = rounds(numbers(count, 1000))
    mean, square = Moment(count, True, quantizes), Moment(count, False, quantizes)
    b1, b2, r1, r2 = (f32(x) for x in (*betas, 1 - betas[0], 1 - betas[1]))
    decay = f32(1.0 - lr * weight_decay)
    history = {"codes": [], "scales": [], "codes_sq": [], "scales_sq": []}
    for step in range(1, STEPS + 1):
        g = rounds(numbers(count, step, spread))
        m = mean.decoded()
        if optimizer == "adamw":
            new = m * b1 + r1 * g
            v = square.decoded() * b2 + r2 * g * g
            size, root = f32(lr / (1.0 - betas[0] ** step)), f32(1.0 / np.sqrt(1.0 - betas[1] ** step))
            update = new / (np.sqrt(v) * root + f32(eps))
            weights = rounds(weights * decay - size * update)
            square.encode(v)
        else:
            weights = rounds(weights * decay - f32(lr) * np.sign(m * b1 + r1 * g))
            new = m * b2 + r2 * g
        mean.encode(new)
        history["codes"].append(mean.codes.copy())
        history["scales"].append(mean.scales.copy())
        history["codes_sq"].append(square.codes.copy())
        history["scales_sq"].append(square.scales.copy())
    out = {f"{name}.weights": torch.from_numpy(weights)}
    if quantizes:
        for key, values in history.items():
            if optimizer == "adamw" or not key.endswith("_sq"):
                out[f"{name}.{key}"] = torch.from_numpy(np.stack(values))
    return out


def of_bitsandbytes(name, make, spread=13):
    weights = torch.nn.Parameter(torch.from_numpy(numbers(COUNT, 1000).copy()))
    optimizer = make([weights])
    for step in range(1, STEPS + 1):
        weights.grad = torch.from_numpy(numbers(COUNT, step, spread).copy())
        optimizer.step()
    return {f"{name}.bitsandbytes": weights.detach()}


def main():
    exact = lambda x: x
    out = {}
    out |= run("adamw", "adamw", exact)
    out |= run("adamw_even", "adamw", exact, spread=1)
    out |= run("adamw_bfloat16", "adamw", to_bfloat16)
    out |= run("adamw_32", "adamw", exact, quantizes=False)
    out |= run("adamw_small", "adamw", exact, count=300, quantizes=False)
    out |= run("lion", "lion", exact)
    out |= run("lion_bfloat16", "lion", to_bfloat16)
    import bitsandbytes as bnb

    options = dict(lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    out |= of_bitsandbytes("adamw_even", lambda p: bnb.optim.AdamW8bit(p, eps=1e-6, **options), spread=1)
    out |= of_bitsandbytes("adamw_32", lambda p: bnb.optim.AdamW(p, eps=1e-6, **options))
    out |= of_bitsandbytes("lion", lambda p: bnb.optim.Lion8bit(p, **options))
    for case in ("adamw_even", "adamw_32", "lion"):
        d = (out[f"{case}.weights"] - out[f"{case}.bitsandbytes"]).abs()
        print(case, "max", d.max().item(), "mean", d.mean().item(), "above 1e-6:", (d > 1e-6).sum().item(), "of", COUNT)
    save_file(out, FILE)


if __name__ == "__main__":
    main()
