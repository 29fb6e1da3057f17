#!/usr/bin/env python3
"""Evaluates in Python a model that was exported from Python and trained by hasten. Needs torch and transformers.

    evaluate.py out/minilm examples/data/debian_sections/eval.tsv

The folder is the output_dir of `hasten train --model model.pt2`. model.safetensors is loaded into the model of transformers, and
trained.pt2 by torch.export. Prints the accuracy of both and the largest difference between their logits.
"""
import argparse
import csv
import pathlib

import torch
import transformers.modeling_outputs  # torch.export.load needs the class of the model's outputs
from torch.export.pt2_archive._package import load_pt2


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("data", help="a .tsv file with the columns text and label")
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args()


def main():
    options = parse()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(options.folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
    program = load_pt2(str(options.folder / "trained.pt2")).exported_programs["eval"].module()
    with open(options.data, encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    right = right_exported = 0
    difference = 0.0
    for start in range(0, len(rows), options.batch):
        part = rows[start:start + options.batch]
        texts = [row["text"] for row in part]
        batch = tokenizer(texts, padding=True, truncation=True, max_length=options.max_length, return_tensors="pt", return_token_type_ids=False)
        labels = torch.tensor([model.config.label2id[row["label"]] for row in part])
        with torch.no_grad():
            logits, again = model(**batch).logits, program(**batch, labels=labels)["logits"]
        right += (logits.argmax(1) == labels).sum().item()
        right_exported += (again.argmax(1) == labels).sum().item()
        difference = max(difference, (logits - again).abs().max().item())
    print(f"transformers: accuracy {right / len(rows):.4f}")
    print(f"torch.export: accuracy {right_exported / len(rows):.4f}, logits differ by at most {difference:.1e}")


if __name__ == "__main__":
    main()
