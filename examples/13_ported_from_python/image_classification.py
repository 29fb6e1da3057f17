#!/usr/bin/env python3
"""A small vision transformer learns handwritten digits, with the Hugging Face Trainer. image_classification.cpp is its port.

    image_classification.py [MODEL DIGITS]    # a model folder, and a table of labels and 8 x 8 pixels of 0 to 16
"""
import sys
import tempfile

import torch
from transformers import AutoModelForImageClassification, PrinterCallback, Trainer, TrainingArguments


def read(path):
    rows = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            label, pixels = line.rstrip("\n").split("\t")
            values = torch.tensor([int(each, 17) for each in pixels], dtype=torch.float32)
            rows.append({"pixel_values": (values / 8 - 1).view(1, 8, 8), "labels": int(label)})
    return rows


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    folder, table = sys.argv[1:3] if len(sys.argv) > 2 else ("tests/oracle/data/tasks/vit", "tests/oracle/data/tasks/digits.tsv")
    model = AutoModelForImageClassification.from_pretrained(folder)
    rows = read(table)
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(out, per_device_train_batch_size=16, per_device_eval_batch_size=64, num_train_epochs=5, learning_rate=2e-3,
                                      lr_scheduler_type="cosine", warmup_steps=0.1, weight_decay=0.01, label_smoothing_factor=0.1,
                                      eval_strategy="epoch", save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none")
        trainer = Trainer(model, arguments, train_dataset=rows[:1000], eval_dataset=rows[1000:1400], compute_metrics=accuracy)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        for entry in trainer.state.log_history:
            if "eval_accuracy" in entry:
                print(f"epoch {entry['epoch']:.0f}: loss {entry['eval_loss']:.4f}, accuracy {entry['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()
