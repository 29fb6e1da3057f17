#!/usr/bin/env python3
"""Records the batches of transformers' BatchRebalanceSampler; writes data/loading/rebalance.json.

    python generate_rebalance.py          # torch 2.11, transformers 5.23
"""
import json
import pathlib
import random

from transformers.trainer_pt_utils import BatchRebalanceSampler

FILE = pathlib.Path(__file__).resolve().parent / "data" / "loading" / "rebalance.json"


def case(name, lengths, batch_size, world, steps, epoch=0):
    batches = []
    for rank in range(world):
        sampler = BatchRebalanceSampler(lengths=lengths, effective_batch_size=batch_size * world * steps, dp_size=world, grad_accum=steps, rank=rank)
        sampler.set_epoch(epoch)
        batches.append(list(sampler))
    return {"name": name, "lengths": lengths, "batch_size": batch_size, "world": world, "steps": steps, "epoch": epoch, "batches": batches}


random.seed(3)
even = [random.randint(5, 60) for _ in range(96)]
skewed = [int(2 ** random.uniform(2, 9)) for _ in range(128)]
cases = [
    case("one_process", even, 4, 1, 3),
    case("two_processes", even, 8, 2, 1, epoch=2),
    case("skewed", skewed, 4, 2, 4),
    case("very_skewed", [512 if i % 16 == 0 else 4 for i in range(128)], 4, 4, 2, epoch=1),
    case("equal", [7] * 48, 4, 2, 2),
    case("one_row_each", skewed, 1, 4, 2),
]
FILE.write_text(json.dumps({"versions": {"transformers": "5.23.0"}, "cases": cases}, separators=(",", ":")) + "\n")
