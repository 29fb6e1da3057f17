#!/usr/bin/env python3
"""Measures the training steps of a BERT classifier in plain PyTorch, Accelerate, or Hugging Face Trainer. Prints one JSON line.

    python train_step.py --mode trainer --size small --threads 1

Each mode does the same work: random token ids, attention masks of ones (as in a real batch without padding), AdamW, a linear schedule,
and clipping at norm 1. Dropout is on by default, as in real training. The first tenth of the steps counts only for first_ms.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import tempfile
import time

START = time.perf_counter()

SIZES = dict(
    tiny=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256),
    small=dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
    base=dict())                         # BERT-base is the default of the config class


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mode", choices=("plain", "accelerate", "trainer"), default="plain")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--fused", type=int, choices=(0, 1), default=1, help="AdamW's fused kernel")
    parser.add_argument("--clip", type=int, choices=(0, 1), default=1)
    parser.add_argument("--accumulate", type=int, default=1, help="mode trainer: micro-batches per step; --batch is that of a micro-batch")
    parser.add_argument("--checkpoint", action="store_true", help="mode trainer: gradient checkpointing")
    parser.add_argument("--optim", default="", help="mode trainer: the optimizer's name")
    parser.add_argument("--lora", action="store_true", help="mode trainer: LoRA of rank 8 on query and value, by PEFT")
    return parser.parse_args()


class Clock:
    """Records wall and processor time at the end of each step."""

    def __init__(self):
        self.wall, self.cpu = [], []

    def mark(self):
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def restart(self):
        self.wall.clear()
        self.cpu.clear()
        self.mark()


def steps_of(times):
    return [(later - earlier) * 1e3 for earlier, later in zip(times, times[1:])]


def main():
    options = parse()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    import torch
    from token_rows import TokenRows
    from transformers import BertConfig, BertForSequenceClassification
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    config = BertConfig(num_labels=2, hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.dropout, **SIZES[options.size])
    model = BertForSequenceClassification(config).train()
    count = options.steps * options.batch * options.accumulate
    rows = TokenRows(torch.randint(100, 30000, (count, options.seq)), torch.randint(0, 2, (count,)))
    clock = Clock()

    def plain():
        loader = torch.utils.data.DataLoader(rows, batch_size=options.batch, shuffle=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=bool(options.fused))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (options.steps - step) / options.steps)
        clock.restart()
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
                loss = model(**batch).loss
            loss.backward()
            if options.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            clock.mark()

    def with_accelerate():
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True, mixed_precision="bf16" if options.bf16 else "no")
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=bool(options.fused))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (options.steps - step) / options.steps)
        prepared, optimizer, loader, schedule = accelerator.prepare(
            model, optimizer, torch.utils.data.DataLoader(rows, batch_size=options.batch, shuffle=True), schedule)
        clock.restart()
        for batch in loader:
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(**batch).loss)
                if options.clip:
                    accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            clock.mark()

    def with_trainer():
        from transformers import Trainer, TrainerCallback, TrainingArguments
        from transformers.trainer_callback import PrinterCallback

        class Marks(TrainerCallback):
            def on_train_begin(self, *args, **kwargs):
                clock.restart()

            def on_step_end(self, *args, **kwargs):
                clock.mark()

        trained = model
        if options.lora:
            from peft import LoraConfig, get_peft_model
            trained = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], task_type="SEQ_CLS"))
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, use_cpu=True, bf16=options.bf16, per_device_train_batch_size=options.batch, num_train_epochs=1, learning_rate=5e-5,
                optim=options.optim or ("adamw_torch_fused" if options.fused else "adamw_torch"), gradient_accumulation_steps=options.accumulate,
                gradient_checkpointing=options.checkpoint, max_grad_norm=1.0 if options.clip else 0.0,
                logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True)
            trainer = Trainer(model=trained, args=arguments, train_dataset=rows, callbacks=[Marks()])
            trainer.remove_callback(PrinterCallback)       # it would print a second line
            trainer.train()

    dict(plain=plain, accelerate=with_accelerate, trainer=with_trainer)[options.mode]()

    wall, cpu = steps_of(clock.wall), steps_of(clock.cpu)
    warm = max(1, len(wall) // 10)
    name = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    print(json.dumps(dict(
        mode=options.mode, size=options.size, batch=options.batch, seq=options.seq, threads=options.threads, bf16=options.bf16,
        dropout=options.dropout, fused=options.fused, clip=options.clip, accumulate=options.accumulate, checkpoint=options.checkpoint, optim=options.optim,
        lora=options.lora, steps=len(wall), setup_s=round(clock.wall[0] - START, 2), first_ms=round(wall[0], 2),
        median_ms=round(statistics.median(wall[warm:]), 3), min_ms=round(min(wall[warm:]), 3), mean_ms=round(statistics.mean(wall[warm:]), 3),
        cpu_median_ms=round(statistics.median(cpu[warm:]), 3), peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        torch=torch.__version__, cpu_capability=torch.backends.cpu.get_cpu_capability(), cpu=name.group(1) if name else "")))


if __name__ == "__main__":
    main()
