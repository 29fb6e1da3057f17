#!/usr/bin/env python3
"""Records the state of torch.amp.GradScaler after each step in data/scaling/grad_scaler.json. grad_scaler_test.cpp compares it.

    python3 tests/oracle/generate_grad_scaler.py

"plain" is a loop in float with two optimizers, one of which has sparse gradients. Some losses are NaN, or so large that
their gradients overflow. "autocast" is a loop in float16 on the CPU with accumulation, clipping and a schedule. Its first
gradients overflow at the initial scales. Needs torch 2.11.
"""
import json
import pathlib

import torch
from torch import nn

ROWS, IDS, WIDTH, HIDDEN = 8, 20, 6, 10


class Net(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.table = nn.Embedding(IDS, WIDTH, sparse=sparse)
        self.first = nn.Linear(WIDTH, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, ids):
        return self.last(torch.tanh(self.first(self.table(ids).mean(1))))


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def weights(net):
    return [numbers(parameter) for parameter in net.parameters()]


def batches(count):
    return [(torch.randint(0, IDS, (ROWS, 3)), torch.randn(ROWS, 1)) for _ in range(count)]


def listed(data):
    return [{"ids": ids.flatten().tolist(), "targets": numbers(targets)} for ids, targets in data]


def plain():
    torch.manual_seed(1)
    net = Net(sparse=True)
    data = batches(24)
    case = {"start": weights(net), "batches": listed(data), "init_scale": 2.0**10, "growth_interval": 4, "steps": []}
    table = torch.optim.SGD([net.table.weight], lr=0.5)
    rest = torch.optim.AdamW([*net.first.parameters(), *net.last.parameters()], lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=case["init_scale"], growth_interval=case["growth_interval"])
    for step, (ids, targets) in enumerate(data):
        factor = {5: 1e36, 6: 1e37, 13: float("nan")}.get(step, 1.0)
        loss = ((net(ids) - targets) ** 2).mean() * factor
        scaler.scale(loss).backward()
        norm = None
        if step % 2 == 1:
            scaler.unscale_(rest)
            norm = nn.utils.clip_grad_norm_([*net.first.parameters(), *net.last.parameters()], 0.1).item()
        scaler.step(table)
        scaler.step(rest)
        found = [max(x.item() for x in scaler._found_inf_per_device(each).values()) for each in (table, rest)]
        scaler.update()
        table.zero_grad()
        rest.zero_grad()
        case["steps"].append({"factor": "nan" if factor != factor else factor, "found_inf": found,
                              "norm": norm if norm is None or norm == norm and abs(norm) < 1e30 else None,
                              "scale": scaler.get_scale(), "growth_tracker": scaler._get_growth_tracker(),
                              "weights": weights(net) if step % 6 == 5 else None})
    case["state"] = scaler.state_dict()
    case["final"] = weights(net)
    return case


def autocast():
    torch.manual_seed(2)
    net = Net(sparse=False)
    data = batches(40)
    data = [(ids, targets * 4 + 10) for ids, targets in data]
    case = {"start": weights(net), "batches": listed(data), "growth_interval": 5, "steps": []}
    adamw = torch.optim.AdamW(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(adamw, start_factor=1.0, end_factor=0.1, total_iters=20)
    scaler = torch.amp.GradScaler("cpu", growth_interval=case["growth_interval"])
    for step in range(20):
        for ids, targets in data[2 * step:2 * step + 2]:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.mse_loss(net(ids), targets)
            scaler.scale(loss).backward()
        scaler.unscale_(adamw)
        for parameter in net.parameters():  # the mean over the window; hasten also divides at the end of the window
            parameter.grad /= 2
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        before = scaler.get_scale()
        scaler.step(adamw)
        scaler.update()
        skipped = scaler.get_scale() < before
        if not skipped:
            schedule.step()
        adamw.zero_grad()
        case["steps"].append({"loss": loss.item(), "scale": scaler.get_scale(), "skipped": skipped,
                              "growth_tracker": scaler._get_growth_tracker(), "rate": schedule.get_last_lr()[0]})
    case["final"] = weights(net)
    return case


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = pathlib.Path(__file__).parent / "data" / "scaling" / "grad_scaler.json"
    out.write_text(json.dumps({"plain": plain(), "autocast": autocast()}) + "\n")
    print(out, out.stat().st_size)
