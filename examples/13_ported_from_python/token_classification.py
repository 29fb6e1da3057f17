#!/usr/bin/env python3
"""A small BERT learns a tag for each word, with the Hugging Face Trainer. token_classification.cpp is its port.

    token_classification.py [FOLDER]    # with a model, its vocab.txt, train.jsonl and eval.jsonl
"""
import json
import pathlib
import sys
import tempfile

import numpy
from transformers import (AutoModelForTokenClassification, BertTokenizerFast, DataCollatorForTokenClassification, PrinterCallback, Trainer,
                          TrainingArguments)

TAGS = ["B-LOC", "B-PER", "I-PER", "O"]


def tokenized(path, tokenizer):
    """Gives the tag of a word to its first token."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)
        row = tokenizer(text["tokens"], truncation=True, max_length=24, is_split_into_words=True)
        words = row.word_ids()
        row["labels"] = [-100 if word is None or word == before else TAGS.index(text["tags"][word]) for before, word in zip([None] + words, words)]
        rows.append(row)
    return rows


def scores(prediction):
    counts = prediction.label_ids != -100
    classes, labels = prediction.predictions.argmax(-1)[counts], prediction.label_ids[counts]
    f1 = [2 * ((classes == tag) & (labels == tag)).sum() / ((classes == tag).sum() + (labels == tag).sum()) for tag in set(classes) | set(labels)]
    return {"accuracy": float((classes == labels).mean()), "f1": float(numpy.mean(f1))}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/oracle/data/tasks/token_classification")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
    model = AutoModelForTokenClassification.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(out, per_device_train_batch_size=8, num_train_epochs=6, learning_rate=3e-3,
                                      eval_strategy="epoch", save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none")
        trainer = Trainer(model, arguments, train_dataset=tokenized(folder / "train.jsonl", tokenizer),
                          eval_dataset=tokenized(folder / "eval.jsonl", tokenizer), data_collator=DataCollatorForTokenClassification(tokenizer),
                          compute_metrics=scores)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        for entry in trainer.state.log_history:
            if "eval_f1" in entry:
                print(f"epoch {entry['epoch']:.0f}: loss {entry['eval_loss']:.4f}, accuracy {entry['eval_accuracy']:.4f}, f1 {entry['eval_f1']:.4f}")


if __name__ == "__main__":
    main()
