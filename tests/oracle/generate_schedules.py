#!/usr/bin/env python3
"""Runs each schedule of transformers for 1,000 steps; writes data/schedules/.

    python generate_schedules.py

cases.json has the type, the warm-up and the keyword arguments of each case. lrs.safetensors has for each case the learning rates of the
two groups before each step, [1000, 2] in float64. The base rates are 0.01 and 3e-4. For polynomial they are both 0.01, because transformers
takes lr_end relative to the optimizer's default rate, and hasten takes it relative to the group's rate. Schedules that follow a metric get
the tensor `metric` with one number per step.
"""
import json
import os
import pathlib

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import save_file
from transformers import get_scheduler

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "schedules"
STEPS = 1000
METRIC_TYPES = ("reduce_lr_on_plateau", "greedy")
# Each case has the type, the warm-up steps, the steps of the schedule, and the keyword arguments.
CASES = {
    "linear": ("linear", 37, 913, {}),
    "cosine": ("cosine", 37, 913, dict(num_cycles=1.7)),
    "cosine_with_restarts": ("cosine_with_restarts", 37, 913, dict(num_cycles=4)),
    "polynomial": ("polynomial", 37, 913, dict(lr_end=2e-5, power=2.3)),
    "constant": ("constant", 0, 913, {}),
    "constant_with_warmup": ("constant_with_warmup", 37, 913, {}),
    "inverse_sqrt": ("inverse_sqrt", 37, 913, {}),
    "inverse_sqrt_timescale": ("inverse_sqrt", 37, 913, dict(timescale=111)),
    "cosine_with_min_lr": ("cosine_with_min_lr", 37, 913, dict(min_lr_rate=0.07, num_cycles=0.8)),
    "cosine_warmup_with_min_lr": ("cosine_warmup_with_min_lr", 37, 913, dict(min_lr_rate=0.07, warmup_lr_rate=0.3)),
    "warmup_stable_decay": ("warmup_stable_decay", 37, 913, dict(num_decay_steps=301, warmup_type="cosine", decay_type="1-sqrt", min_lr_ratio=0.03)),
    "reduce_lr_on_plateau": ("reduce_lr_on_plateau", 0, 0, {}),
    "reduce_lr_on_plateau_odd": ("reduce_lr_on_plateau", 0, 0, dict(mode="max", factor=0.7, patience=3, threshold=0.01, threshold_mode="abs",
                                                                    cooldown=5, min_lr=1e-4, eps=1e-6)),
    "greedy": ("greedy", 0, 0, dict(min_lr=1e-5)),
    "greedy_odd": ("greedy", 0, 0, dict(factor=0.8, patience=2, threshold=0.001, threshold_mode="rel", cooldown=2, warmup=3, min_lr=1e-4,
                                        max_lr=0.02, smooth=True, window_size=7, reset_start=6)),
    "greedy_max": ("greedy", 0, 0, dict(mode="max", factor=0.9, patience=1, min_lr=1e-5, smooth=True, reset_start=3)),
}


def metric():
    """Returns a noisy metric that improves, stagnates and gets worse."""
    generator = torch.Generator().manual_seed(3)
    steps = torch.arange(STEPS, dtype=torch.float64)
    noise = torch.rand(STEPS, generator=generator, dtype=torch.float64)
    return 2 + torch.cos(steps / 90) + 0.3 * torch.exp(-steps / 300) * noise - 0.0005 * steps


def rates(kind):
    return [0.01, 0.01 if kind == "polynomial" else 3e-4]


def run(kind, warmup, total, kwargs):
    groups = [dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=lr) for lr in rates(kind)]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    scheduler = get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=total, scheduler_specific_kwargs=kwargs)
    out = []
    for value in metric().tolist():
        out.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        if kind in METRIC_TYPES:
            scheduler.step(value)
        else:
            scheduler.step()
    return torch.tensor(out, dtype=torch.float64)


def main():
    FOLDER.mkdir(exist_ok=True)
    cases = {name: dict(type=kind, rates=rates(kind), warmup=warmup, total=total, kwargs=kwargs) for name, (kind, warmup, total, kwargs) in CASES.items()}
    (FOLDER / "cases.json").write_text(json.dumps(dict(cases=cases)) + "\n")
    save_file({**{name: run(*case) for name, case in CASES.items()}, "metric": metric()}, FOLDER / "lrs.safetensors")


if __name__ == "__main__":
    main()
