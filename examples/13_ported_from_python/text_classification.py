#!/usr/bin/env python3
"""A bag of words learns the sections of Debian packages, with the Hugging Face Trainer. text_classification.cpp is its port.

    text_classification.py [FOLDER]    # with train.tsv and eval.tsv; examples/data/debian_sections
"""
import csv
import pathlib
import sys
import tempfile
from collections import Counter

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainingArguments


class BagOfWords(torch.nn.Module):
    def __init__(self, words, classes):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, 64, padding_idx=0)
        self.classifier = torch.nn.Linear(64, classes)

    def forward(self, input_ids, attention_mask, labels):
        mask = attention_mask.unsqueeze(-1).float()
        mean = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        logits = self.classifier(mean)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def read(path):
    with open(path, encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["text"].split(" ") for row in rows], [row["label"] for row in rows]


def collate(rows):
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    masks = [torch.ones_like(each) for each in ids]
    return {"input_ids": pad_sequence(ids, batch_first=True), "attention_mask": pad_sequence(masks, batch_first=True),
            "labels": torch.tensor([row["label"] for row in rows])}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "examples/data/debian_sections")
    train_texts, train_labels = read(folder / "train.tsv")
    eval_texts, eval_labels = read(folder / "eval.tsv")
    counts = Counter(word for text in train_texts for word in text)
    words = {word: number for number, word in enumerate(sorted(word for word in counts if counts[word] > 1), start=2)}  # 0 pads, 1 is any other
    classes = {name: number for number, name in enumerate(sorted(set(train_labels)))}

    def rows(texts, labels):
        return [{"input_ids": [words.get(word, 1) for word in text], "label": classes[label]} for text, label in zip(texts, labels)]

    torch.manual_seed(42)
    model = BagOfWords(len(words) + 2, len(classes))
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(out, per_device_train_batch_size=32, per_device_eval_batch_size=64, num_train_epochs=8, learning_rate=1e-2,
                                      eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, load_best_model_at_end=True,
                                      metric_for_best_model="accuracy", use_cpu=True, disable_tqdm=True, report_to="none")
        trainer = Trainer(model, arguments, train_dataset=rows(train_texts, train_labels), eval_dataset=rows(eval_texts, eval_labels),
                          data_collator=collate, compute_metrics=accuracy, callbacks=[EarlyStoppingCallback(early_stopping_patience=2)])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        for entry in trainer.state.log_history:
            if "eval_accuracy" in entry:
                print(f"epoch {entry['epoch']:.0f}: loss {entry['eval_loss']:.4f}, accuracy {entry['eval_accuracy']:.4f}")
        print(f"best model: accuracy {trainer.evaluate()['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()
