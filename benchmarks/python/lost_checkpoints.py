#!/usr/bin/env python3
"""Repeats hasten's crash and damage tests with Accelerate and the Hugging Face Trainer.

    lost_checkpoints.py [--trials N]
    lost_checkpoints.py --calls build/release/lib/libpreload_faults.so [--stride N]

A process that saves repeatedly is killed at a random moment during a save. With --calls, it is killed at every call of the C library that
writes, creates, renames or deletes something in its folder, as hasten is in faults/checkpoints, once its first save has returned; --stride N
takes every Nth call. The library is built with hasten's tests. Then the checkpoint that an unchanged program would load is loaded.

In the damage test, each trial flips one bit of a good checkpoint and loads it again. A flip counts as noticed if loading fails, or if it
changes nothing: the loaded weights, the state of the optimizer and its options stay equal, for example after a flip in the padding of an
archive. The Trainer runs one more step, and its result is compared.
hasten's results come from faults/checkpoints and unit/checkpoint/manifest: it loses no checkpoint and notices every bit.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

DIGEST = """
def digest_of(net, optimizer):
    import hashlib
    digest = hashlib.sha256(repr([{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]).encode())
    for parameter in net.parameters():
        state = optimizer.state[parameter]
        for tensor in (parameter.detach(), *(state[name] for name in sorted(state))):
            digest.update(torch.as_tensor(tensor).contiguous().numpy().tobytes())
    return digest.hexdigest()
"""

PROGRAM = """
import os, sys, pathlib, torch, warnings
warnings.filterwarnings("ignore")
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
kind, folder = sys.argv[1], sys.argv[2]
torch.manual_seed(0)
automatic = kind == "automatic"
accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=automatic, total_limit=2 if automatic else None))
net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(16)))
optimizer = torch.optim.AdamW(net.parameters())
net, optimizer = accelerator.prepare(net, optimizer)
for step in range(int(sys.argv[3])):
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(step)
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(step)
            optimizer.state[parameter]["exp_avg"].fill_(step)
    print("saving", step, flush=True)
    accelerator.save_state(None if automatic else folder + "/state")
    print("saved", step, flush=True)
"""

LOAD = DIGEST + """
import sys, json, torch, warnings
warnings.filterwarnings("ignore")
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
kind, folder = sys.argv[1], sys.argv[2]
automatic = kind == "automatic"
accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=automatic))
net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(16)))
optimizer = torch.optim.AdamW(net.parameters())
net, optimizer = accelerator.prepare(net, optimizer)
accelerator.load_state(None if automatic else folder + "/state")
values = sorted({value for parameter in net.parameters() for value in parameter.detach().unique().tolist()} |
                {value for parameter in net.parameters() for value in optimizer.state[parameter]["exp_avg"].unique().tolist()})
print(json.dumps({"values": values[:10], "digest": digest_of(net, optimizer)}))
"""

TRAINER = DIGEST + """
import sys, json, os, torch, warnings
warnings.filterwarnings("ignore")
from transformers import Trainer, TrainingArguments
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(16)))
    def forward(self, x=None, labels=None):
        out = self.layers(x)
        return {"loss": (out - labels).square().mean(), "logits": out}
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 4096
    def __getitem__(self, row):
        generator = torch.Generator().manual_seed(row)
        return {"x": torch.rand(64, generator=generator), "labels": torch.rand(64, generator=generator)}
folder, steps, resume = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "resume"
torch.manual_seed(0)
args = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=steps, per_device_train_batch_size=2, save_steps=2, save_total_limit=3,
                         report_to="none", disable_tqdm=True, logging_strategy="no")
from transformers import TrainerCallback
class Begin(TrainerCallback):
    def on_train_begin(self, args, state, control, **_): print("begun", state.global_step, flush=True)
    def on_save(self, args, state, control, **_): print("saved", state.global_step, flush=True)
trainer = Trainer(Net(), args, train_dataset=Rows(), callbacks=[Begin()])
trainer.train(resume_from_checkpoint=resume)
optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
print(digest_of(trainer.model, optimizer))
"""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--trials", type=int, default=20)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--calls", type=pathlib.Path, metavar="LIBRARY", help="kill at every call; LIBRARY is libpreload_faults.so")
parser.add_argument("--stride", type=int, default=1, help="with --calls, take every Nth call", metavar="N")
options = parser.parse_args()
random.seed(options.seed)
SAVES = 3 if options.calls else 10_000  # of one run


def python(program, *words):
    return [sys.executable, "-c", program, *map(str, words)]


def kill_after(command, word, count, seconds):
    """Runs the command until it has printed `word` `count` times, waits, and kills it. Returns the printed lines."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = []
    while sum(line.startswith(word) for line in lines) < count:
        line = process.stdout.readline()
        if not line:
            sys.exit(f"the program ended: {lines[-3:]}")
        lines.append(line)
    time.sleep(seconds)
    process.kill()
    lines += process.stdout.readlines()
    process.wait()
    return lines


def load(command):
    """Returns the last line that the command prints, or None if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else None


def kill_at_call(command, folder, report, call):
    """Runs the command, and kills it at this call that changes the folder. Returns the printed lines, or None if it ends before."""
    fault = {"LD_PRELOAD": str(options.calls.resolve()), "HASTEN_FAULT": f"{call} kill {folder} {report}"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | fault)
    if report.exists():
        return done.stdout.splitlines()
    if done.returncode != 0:
        sys.exit(f"the program ended with {done.returncode}\n{done.stderr}")
    return None


def killed_runs(command_of, word, count, seconds):
    """Yields the folders of runs that were killed: after `count` lines with the word and a random part of the seconds, or at every call."""
    for call in itertools.count(1, options.stride) if options.calls else range(options.trials):
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home) / "run"
            folder.mkdir()
            if options.calls:
                lines = kill_at_call(command_of(folder), folder, folder.with_name("report"), call)
                if lines is None:
                    return
                if not any(line.startswith("saved") for line in lines):
                    continue  # there was no checkpoint to lose
            else:
                kill_after(command_of(folder), word, count, random.uniform(0, seconds))
            yield folder


def kill_accelerate(kind):
    result = dict(trials=0, failed=0, mixed=0)
    for folder in killed_runs(lambda folder: python(PROGRAM, kind, folder, SAVES), "saving", 4, 0.15):
        values = load(python(LOAD, kind, folder))
        result["trials"] += 1
        result["failed"] += values is None
        result["mixed"] += values is not None and len(json.loads(values)["values"]) != 1
    return result


def kill_trainer():
    result = dict(trials=0, failed=0)
    for folder in killed_runs(lambda folder: python(TRAINER, folder, 2 * SAVES, "new"), "saved", 3, 0.1):
        # The resumed run trains a few steps beyond the newest checkpoint.
        newest = max(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))
        result["trials"] += 1
        result["failed"] += load(python(TRAINER, folder, newest + 2, "resume")) is None
    return result


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def flip_accelerate():
    result = dict(trials=options.trials, noticed=0)
    with tempfile.TemporaryDirectory() as folder:
        kill_after(python(PROGRAM, "named", folder, 10_000), "saved", 1, 0)
        state = pathlib.Path(folder) / "state"
        if load(python(LOAD, "named", folder)) is None:  # the process was killed during the next save
            shutil.rmtree(state)
            return flip_accelerate()
        good = load(python(LOAD, "named", folder))
        for _ in range(options.trials):
            path = random.choice([state / "model.safetensors", state / "optimizer.bin"])
            bit = random.randrange(8 * path.stat().st_size)
            flip(path, bit)
            result["noticed"] += load(python(LOAD, "named", folder)) in (None, good)
            flip(path, bit)
    return result


def flip_trainer():
    result = dict(trials=options.trials, noticed=0)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(python(TRAINER, folder, 4, "new"), capture_output=True, check=True)
        checkpoint = pathlib.Path(folder) / "checkpoint-4"

        def resume():
            result = load(python(TRAINER, folder, 5, "resume"))
            shutil.rmtree(pathlib.Path(folder) / "checkpoint-5", ignore_errors=True)
            return result
        good = resume()
        for _ in range(options.trials):
            path = random.choice([checkpoint / "model.safetensors", checkpoint / "optimizer.pt"])
            bit = random.randrange(8 * path.stat().st_size)
            flip(path, bit)
            result["noticed"] += resume() in (None, good)
            flip(path, bit)
    return result


os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
for name, work in {"accelerate, killed while it saves to one folder": lambda: kill_accelerate("named"),
                   "accelerate, killed with automatic naming": lambda: kill_accelerate("automatic"),
                   "Hugging Face Trainer, killed while it saves": kill_trainer,
                   "accelerate, one bit flipped": flip_accelerate, "Hugging Face Trainer, one bit flipped": flip_trainer}.items():
    print(json.dumps({"case": name, **work()}), flush=True)
