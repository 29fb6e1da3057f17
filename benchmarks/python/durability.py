"""Saves and loads the state of benchmarks/durability.cpp with Accelerate, without and with an fsync of every file, and prints one JSON line.

    durability.py FOLDER [--mb MEGABYTES] [--rounds N]

Accelerate neither syncs nor checks what it writes; save_synced_mb_s adds the fsync that a save needs to survive a power failure.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import time

import torch
from accelerate import Accelerator

WIDTH = 1024
parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--mb", type=int, default=600)
parser.add_argument("--rounds", type=int, default=5)
options = parser.parse_args()
torch.set_num_threads(1)


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def sync_files(folder):
    for path in folder.rglob("*"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)


accelerator = Accelerator(cpu=True)
net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(max(1, options.mb // 12))))
optimizer = torch.optim.AdamW(net.parameters())
for parameter in net.parameters():
    parameter.grad = torch.randn_like(parameter)
optimizer.step()
optimizer.zero_grad()
net, optimizer = accelerator.prepare(net, optimizer)
folder = options.folder / "durability"
folder.mkdir(parents=True, exist_ok=True)
accelerator.save_state(str(folder / "state"))
size = sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file()) / 1e6
save, synced, load = [], [], []
for _ in range(options.rounds):
    for times, sync in ((save, False), (synced, True)):
        os.sync()

        def work():
            accelerator.save_state(str(folder / "saved"))
            if sync:
                sync_files(folder / "saved")
        times.append(seconds_of(work))
        shutil.rmtree(folder / "saved")
    load.append(seconds_of(lambda: accelerator.load_state(str(folder / "state"))))
shutil.rmtree(folder)
print(json.dumps(dict(mb=round(size), save_mb_s=size / statistics.median(save), save_synced_mb_s=size / statistics.median(synced),
                      load_mb_s=size / statistics.median(load), stall_ms=1e3 * statistics.median(save))))
