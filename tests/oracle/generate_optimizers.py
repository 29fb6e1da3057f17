#!/usr/bin/env python3
"""Trains a small model for 20 steps with each optimizer of the Python libraries; writes data/optimizers/.

    python generate_optimizers.py

cases.json has the initial weights, the rows of each step, and for each case the options of both groups under hasten's
option names. weights.safetensors has the weights of each case after each step, [steps, weights]. The first group has the
matrices. The second group has the biases and a parameter that never has a gradient. The first bias has no gradient in
steps 4 and 8.
Needs lion-pytorch 0.2.5, schedulefree 1.4.1, torch-optimi 0.3.3, timm 1.0.31 and bitsandbytes 0.50.2.
"""
import json
import os
import pathlib

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from bitsandbytes.optim.ademamix import _ReferenceAdEMAMix
from lion_pytorch import Lion
from optimi import StableAdamW
from safetensors.torch import save_file
from schedulefree import AdamWScheduleFree, SGDScheduleFree
from timm.optim.lamb import Lamb
from transformers.optimization import Adafactor

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "optimizers"
STEPS, ROWS = 20, 8
SKIPPED = (3, 7)  # steps in which the first bias has no gradient, counted from 0
ODD_BETAS = dict(betas=[0.8, 0.95])


class OneByOne:
    """Runs bitsandbytes' reference for one parameter at a time, because it changes alpha and beta3 of a group at each parameter."""

    def __init__(self, groups):
        self.all = [_ReferenceAdEMAMix([dict(group, params=[p])]) for group in groups for p in group["params"]]

    def step(self):
        for one in self.all:
            # A missing gradient does not count as a step, as in bitsandbytes' own optimizer.
            if one.param_groups[0]["params"][0].grad is not None:
                one.step()


def ademamix(groups):
    def renamed(betas=(0.9, 0.999), beta3=0.9999, t_alpha=0, t_beta3=0, **rest):
        return dict(betas=(*betas, beta3), t_alpha=t_alpha or None, t_beta3=t_beta3 or None, **rest)

    return OneByOne([renamed(**group) for group in groups])


def stable_adamw(groups):
    def renamed(max_lr=0, betas=(0.9, 0.99), **rest):
        return dict(rest, beta1=betas[0], beta2=betas[1], **(dict(max_lr=max_lr, decouple_lr=True) if max_lr else {}))

    return StableAdamW([renamed(**group) for group in groups], lr=1e-3, triton=False)


def adafactor(groups):
    return Adafactor([dict(group, lr=group.get("lr")) for group in groups])


def flattened(make):
    return lambda groups: make([{**{k: v for k, v in group.items() if k != "averaging"}, **group.get("averaging", {})} for group in groups])


# Each case has the function that makes the optimizer, hasten's name for it, and the options of the two groups.
CASES = {
    "adamax": (torch.optim.Adamax, "Adamax", {}, {}),
    "adamax_odd": (torch.optim.Adamax, "Adamax", dict(lr=0.03, weight_decay=0.1, eps=1e-4, **ODD_BETAS), dict(maximize=True)),
    "nadam": (torch.optim.NAdam, "NAdam", {}, {}),
    "nadam_odd": (torch.optim.NAdam, "NAdam", dict(lr=0.03, weight_decay=0.1, momentum_decay=0.02, eps=1e-5, **ODD_BETAS),
                  dict(weight_decay=0.2, decoupled_weight_decay=True, maximize=True)),
    "radam": (torch.optim.RAdam, "RAdam", {}, {}),
    "radam_odd": (torch.optim.RAdam, "RAdam", dict(lr=0.03, weight_decay=0.1, eps=1e-5, **ODD_BETAS),
                  dict(weight_decay=0.2, decoupled_weight_decay=True, maximize=True)),
    "lion": (Lion, "Lion", dict(lr=1e-3), dict(lr=1e-3)),
    "lion_odd": (Lion, "Lion", dict(lr=0.01, weight_decay=0.3, betas=[0.7, 0.8]), dict(lr=2e-3)),
    "ademamix": (ademamix, "AdEMAMix", {}, {}),
    "ademamix_odd": (ademamix, "AdEMAMix", dict(lr=0.01, alpha=8.0, beta3=0.99, t_alpha=10, t_beta3=15, eps=1e-5, **ODD_BETAS),
                     dict(weight_decay=0.0, alpha=2.0)),
    "stable_adamw": (stable_adamw, "StableAdamW", {}, {}),
    "stable_adamw_odd": (stable_adamw, "StableAdamW", dict(lr=0.03, weight_decay=0.01, max_lr=0.05, eps=1e-4, **ODD_BETAS),
                         dict(weight_decay=0.0)),
    "schedule_free_adamw": (AdamWScheduleFree, "ScheduleFreeAdamW", {}, {}),
    "schedule_free_adamw_odd": (flattened(AdamWScheduleFree), "ScheduleFreeAdamW",
                                dict(lr=0.03, weight_decay=0.1, averaging=dict(warmup_steps=7, r=0.5, weight_lr_power=1.0), **ODD_BETAS),
                                dict(averaging=dict(warmup_steps=3))),
    "schedule_free_sgd": (SGDScheduleFree, "ScheduleFreeSGD", dict(lr=0.1), dict(lr=0.1)),
    "schedule_free_sgd_odd": (flattened(SGDScheduleFree), "ScheduleFreeSGD",
                              dict(lr=0.3, momentum=0.7, weight_decay=0.05, averaging=dict(warmup_steps=5, r=1.0)), dict(lr=0.05)),
    "lamb": (lambda groups: Lamb(groups, max_grad_norm=None), "Lamb", dict(weight_decay=0.01), dict(weight_decay=0.01)),
    "lamb_odd": (lambda groups: Lamb(groups, max_grad_norm=None), "Lamb",
                 dict(lr=0.02, weight_decay=0.1, eps=1e-4, bias_correction=False, trust_clip=True, **ODD_BETAS),
                 dict(weight_decay=0.0, always_adapt=True)),
    "muon": (torch.optim.Muon, "Muon", {}, None),
    "muon_odd": (torch.optim.Muon, "Muon", dict(lr=0.02, weight_decay=0.3, momentum=0.8, nesterov=False, ns_steps=3,
                                                ns_coefficients=[2.0, -1.5, 0.5], adjust_lr_fn="match_rms_adamw"), None),
    "adafactor": (adafactor, "Adafactor", {}, {}),
    "adafactor_odd": (adafactor, "Adafactor",
                      dict(lr=0.01, relative_step=False, scale_parameter=False, beta1=0.8, weight_decay=0.1, clip_threshold=0.5,
                           decay_rate=-0.6, eps=[1e-20, 0.01]),
                      dict(lr=0.02, relative_step=False)),
    "adafactor_warmup": (adafactor, "Adafactor", dict(warmup_init=True), dict(warmup_init=True, scale_parameter=False)),
}


def numbers(tensor):
    """Returns the numbers, rounded to the digits that a float needs."""
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


def model():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    net.register_parameter("unused", torch.nn.Parameter(torch.ones(2)))
    return net


def rows():
    torch.manual_seed(2)
    return torch.randn(STEPS, ROWS, 6), torch.randn(STEPS, ROWS, 3)


def parameters(net):
    return [net[0].weight, net[2].weight, net[0].bias, net[2].bias, net.unused]


def weights(net):
    return torch.cat([p.detach().flatten() for p in parameters(net)])


def train(make, first, second):
    net = model()
    matrices, others = parameters(net)[:2], parameters(net)[2:]
    groups = [dict(first, params=matrices)] + ([dict(second, params=others)] if second is not None else [])
    optimizer = make(groups)
    has_modes = hasattr(optimizer, "eval")
    inputs, targets = rows()
    out = []
    for step in range(STEPS):
        if has_modes:
            optimizer.train()
        for p in parameters(net):
            p.grad = None
        torch.nn.functional.mse_loss(net(inputs[step]), targets[step]).backward()
        if step in SKIPPED:
            net[0].bias.grad = None
        optimizer.step()
        if has_modes and step % 5 == 4:
            optimizer.eval()
        out.append(weights(net))
    return torch.stack(out)


def main():
    FOLDER.mkdir(exist_ok=True)
    inputs, targets = rows()
    cases = {name: dict(optimizer=kind, groups=[first] + ([second] if second is not None else []))
             for name, (_, kind, first, second) in CASES.items()}
    (FOLDER / "cases.json").write_text(json.dumps(dict(
        torch=torch.__version__, steps=STEPS, rows=ROWS, skipped=SKIPPED, start=[numbers(p) for p in parameters(model())],
        inputs=numbers(inputs), targets=numbers(targets), cases=cases)) + "\n")
    save_file({name: train(make, first, second) for name, (make, _, first, second) in CASES.items()}, FOLDER / "weights.safetensors")


if __name__ == "__main__":
    main()
