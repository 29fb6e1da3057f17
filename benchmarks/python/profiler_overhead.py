#!/usr/bin/env python3
"""Measures what PyTorch's profiler costs when it reports what hasten's anatomy reports.

    python profiler_overhead.py --rounds 7

Both report the memory, the shapes and the FLOP of a step of BERT-base, and print a table. The program alternates steps with and without the
profiler, and prints one JSON line with the lower quartiles of their processor times.
"""
import argparse
import json
import time

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--rounds", type=int, default=7)
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig()).train()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch = dict(input_ids=torch.randint(100, 30000, (4, 128)), labels=torch.randint(0, 2, (4,)))


def step():
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def profiled():
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_flops=True) as profiler:
        step()
    profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=12)


def milliseconds(work):
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def quartile(values):
    return sorted(values)[len(values) // 4]


plain, with_profiler = [], []
for number in range(-2, options.rounds):
    a, b = milliseconds(step), milliseconds(profiled)
    if number >= 0:
        plain.append(a), with_profiler.append(b)
print(json.dumps(dict(off_ms=quartile(plain), profiler_ms=quartile(with_profiler),
                      profiler_percent=100 * (quartile(with_profiler) / quartile(plain) - 1))))
