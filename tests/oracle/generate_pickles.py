#!/usr/bin/env python3
"""Writes files of torch.save with PyTorch 2.11, Accelerate 1.15 and transformers 5.23, and the results that Python computes from them.

    python generate_pickles.py

data/pickles gets weights in many forms (zoo.bin and zoo.safetensors have the same tensors), a checkpoint of an Accelerator and one
of a Trainer in the middle of a run, and the batches and weights of the rest of each run. See README.md.
"""
import os
import pathlib
import shutil
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from transformers import Trainer, TrainingArguments, get_linear_schedule_with_warmup

torch.set_num_threads(1)
DATA = pathlib.Path(__file__).resolve().parent / "data" / "pickles"
BEFORE, AFTER, ROWS = 5, 6, 8


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 7)
        self.norm = torch.nn.LayerNorm(7)
        self.last = torch.nn.Linear(7, 3)

    def forward(self, x=None, labels=None):
        logits = self.last(torch.tanh(self.norm(self.first(x))))
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


def batches(seed):
    torch.manual_seed(seed)
    return torch.rand(AFTER, ROWS, 6), torch.rand(AFTER, ROWS, 3)


def groups(model):
    decayed = [p for n, p in model.named_parameters() if "norm" not in n and "bias" not in n]
    others = [p for n, p in model.named_parameters() if "norm" in n or "bias" in n]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def continue_run(model, optimizer, scheduler, name):
    """Runs the remaining steps of a run, and stores its batches and weights."""
    x, y = batches(11)
    rates = []
    for step in range(AFTER):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.zero_grad()
        model(x[step], y[step])["loss"].backward()
        optimizer.step()
        scheduler.step()
    kept = {f"weights.{key}": value.clone() for key, value in model.state_dict().items()}
    kept |= {"x": x, "y": y, "rates": torch.tensor(rates, dtype=torch.float64)}
    save_file(kept, DATA / f"{name}.safetensors")


def accelerate_checkpoint():
    torch.manual_seed(3)
    accelerator = Accelerator(cpu=True)
    model = Net()
    raw = torch.optim.AdamW(groups(model), lr=3e-3, betas=(0.8, 0.95))
    model, optimizer = accelerator.prepare(model, raw)
    scheduler = accelerator.prepare(get_linear_schedule_with_warmup(raw, 3, 20))
    x, y = batches(7)
    for step in range(BEFORE):
        optimizer.zero_grad()
        accelerator.backward(model(x[step], y[step])["loss"])
        optimizer.step()
        scheduler.step()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder, safe_serialization=False)
        target = DATA / "accelerate"
        target.mkdir()
        for file in ("pytorch_model.bin", "optimizer.bin", "scheduler.bin"):
            shutil.copy(pathlib.Path(folder) / file, target)
    continue_run(model, optimizer, scheduler, "accelerate")


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS * BEFORE

    def __getitem__(self, row):
        generator = torch.Generator().manual_seed(row)
        return {"x": torch.rand(6, generator=generator), "labels": torch.rand(3, generator=generator)}


def trainer_checkpoint():
    torch.manual_seed(4)
    model = Net()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=20, per_device_train_batch_size=ROWS, learning_rate=4e-3, weight_decay=0.05,
                                 warmup_steps=2, save_steps=BEFORE, report_to="none", disable_tqdm=True, optim="adamw_torch")
        trainer = Trainer(model, args, train_dataset=Rows())
        trainer.create_optimizer_and_scheduler(20)
        trainer.add_callback(type("Stop", (__import__("transformers").TrainerCallback,), {
            "on_step_end": lambda self, args, state, control, **_: setattr(control, "should_training_stop", state.global_step == BEFORE)})())
        trainer.train()
        target = DATA / "trainer"
        target.mkdir()
        for file in ("optimizer.pt", "scheduler.pt"):
            shutil.copy(pathlib.Path(folder) / f"checkpoint-{BEFORE}" / file, target)
        torch.save(model.state_dict(), target / "pytorch_model.bin")
        fresh = Net()
        fresh.load_state_dict(torch.load(target / "pytorch_model.bin"))
        trainer = Trainer(fresh, args, train_dataset=Rows())
        trainer.create_optimizer_and_scheduler(20)
        trainer.optimizer.load_state_dict(torch.load(target / "optimizer.pt"))
        trainer.lr_scheduler.load_state_dict(torch.load(target / "scheduler.pt"))
        continue_run(fresh, trainer.optimizer, trainer.lr_scheduler, "trainer")


def zoo():
    raw = torch.arange(24, dtype=torch.uint8)
    big = torch.arange(20, dtype=torch.float32)
    tensors = {kind: raw.clone().view(getattr(torch, kind)) for kind in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "complex64")}
    tensors |= {"uint8": raw, "bool": raw % 2 == 0, "scalar": torch.tensor(3.5), "empty": torch.zeros(0), "empty.rows": torch.zeros(0, 3),
                "transposed": torch.arange(6.0).reshape(2, 3).T, "middle": big[4:12].reshape(2, 4), "every_second": torch.arange(10)[1::2],
                "parameter": torch.nn.Parameter(torch.tensor([1.5, -2.5])), "é 漢": torch.ones(2)}
    torch.save(tensors, DATA / "zoo.bin")
    save_file({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}, DATA / "zoo.safetensors", metadata={"format": "pt"})
    tied = torch.ones(2, 2)
    torch.save({"a": tied, "b": tied, "c": torch.zeros(1)}, DATA / "tied.bin")
    torch.save({"epoch": 3, "model": {"a": tied}}, DATA / "nested.bin")
    torch.save(torch.ones(2), DATA / "tensor.bin")
    torch.save({"a": torch.ones(2)}, DATA / "old.bin", _use_new_zipfile_serialization=False)
    sharded = DATA / "sharded"
    sharded.mkdir()
    torch.save({"a": torch.ones(2)}, sharded / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(3)}, sharded / "pytorch_model-00002-of-00002.bin")
    (sharded / "pytorch_model.bin.index.json").write_text(
        '{"metadata": {"total_size": 20}, "weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}\n')


def other_optimizers():
    """Writes the states of other optimizers after two steps, and the weights after two more steps."""
    for name, make in {"sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
                       "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
                       "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.01),
                       "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
                       "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, weight_decay=0.01, momentum_decay=0.01, decoupled_weight_decay=True,
                                                            maximize=True)}.items():
        torch.manual_seed(5)
        weight = torch.nn.Parameter(torch.rand(3, 4))
        optimizer = make([weight])
        x = torch.rand(4, 5, 3)
        kept = {"x": x}
        for step in range(4):
            if step == 2:
                torch.save(optimizer.state_dict(), DATA / f"{name}.pt")
                kept["before"] = weight.detach().clone()
            optimizer.zero_grad()
            (x[step] @ weight).square().mean().backward()
            optimizer.step()
        save_file(kept | {"after": weight.detach().clone()}, DATA / f"{name}.safetensors")


shutil.rmtree(DATA, ignore_errors=True)
DATA.mkdir(parents=True)
zoo()
other_optimizers()
accelerate_checkpoint()
trainer_checkpoint()
