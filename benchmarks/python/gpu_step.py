#!/usr/bin/env python3
"""Measures the steps of the Hugging Face Trainer on a GPU, and prints one JSON line. It does the same work as benchmarks/gpu_step.cpp.

    python gpu_step.py --model bert-large --batch 4 --seq 512 --precision fp32|tf32|bf16|fp16 [--compile] [--steps 20] [--blocks 3] [--warm_up 5]
                       [--device cuda|cpu] [--trace FILE]

The run uses random ids, AdamW with the fused kernel, a linear schedule, and clipping at norm 1. After the warm-up it measures the time of each
block of steps, from one synchronization with the GPU to the next. --trace writes a Chrome trace of the last block, which then takes longer.
If transformers is not installed, it prints the reason and exits with code 77.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
MISSING = 77


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="bert-base", help="bert-base, bert-large, gpt2, or a folder with the config.json of a BERT")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--warm_up", type=int, default=5)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--trace", default="")
    parser.add_argument("--compile", action="store_true", help="torch_compile")
    return parser.parse_args()


def model_of(name):
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config())
    if name == "bert-large":
        return BertForSequenceClassification(BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=2))
    if name == "bert-base":
        return BertForSequenceClassification(BertConfig(num_labels=2))
    return BertForSequenceClassification(BertConfig.from_pretrained(name))


def main():
    options = parse()
    try:
        import torch
        import transformers
        from transformers import Trainer, TrainerCallback, TrainingArguments
        from transformers.trainer_callback import PrinterCallback
        from token_rows import TokenRows
    except (ImportError, OSError) as error:  # OSError: torch cannot find the libraries that it links
        print(json.dumps({"missing": str(error)}))
        sys.exit(MISSING)
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        sys.exit("gpu_step.py: this Python's torch has no GPU. Hint: --device cpu")
    model, ends = model_of(options.model), []
    count = (options.warm_up + options.blocks * options.steps) * options.batch
    torch.manual_seed(0)
    ids = torch.randint(0, min(30000, model.config.vocab_size), (count, options.seq))
    labels = ids if "GPT2" in type(model).__name__ else torch.randint(0, 2, (count,))

    class Blocks(TrainerCallback):
        trace = None

        def on_step_end(self, args, state, control, **kwargs):
            done = state.global_step - options.warm_up
            if done >= 0 and done % options.steps == 0:
                if self.trace:
                    self.trace.stop()
                    self.trace.export_chrome_trace(options.trace)
                if on_gpu:
                    torch.cuda.synchronize()
                ends.append(time.perf_counter())
                if options.trace and done == (options.blocks - 1) * options.steps:
                    self.trace = torch.profiler.profile()
                    self.trace.start()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=not on_gpu, bf16=options.precision == "bf16", fp16=options.precision == "fp16", per_device_train_batch_size=options.batch,
            max_steps=options.warm_up + options.blocks * options.steps, optim="adamw_torch_fused", torch_compile=options.compile,
            logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True, **({"tf32": options.precision == "tf32"} if on_gpu else {}))
        trainer = Trainer(model=model, args=arguments, train_dataset=TokenRows(ids, labels), callbacks=[Blocks()])
        trainer.remove_callback(PrinterCallback)  # it would print a second line
        trainer.train()
    seconds = sorted((later - earlier) / options.steps for earlier, later in zip(ends, ends[1:]))
    median = statistics.median(seconds)
    print(json.dumps({
        "program": "hugging face" + (", compiled" if options.compile else ""), "model": options.model, "batch": options.batch, "seq": options.seq,
        "precision": options.precision, "step_seconds": median, "least": seconds[0], "most": seconds[-1], "samples_per_second": options.batch / median,
        "peak_allocated": torch.cuda.max_memory_allocated() if on_gpu else 0, "peak_reserved": torch.cuda.max_memory_reserved() if on_gpu else 0,
        "transformers": transformers.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
