#!/usr/bin/env python3
"""Scores random tags with seqeval; writes data/metrics/entities.json.

    python generate_entities.py          # seqeval 1.2, numpy

Each case has the names of the tags, labelled texts of different lengths, and predictions that agree with most labels.
"""
import json
import pathlib
import warnings

import numpy as np
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

warnings.simplefilter("ignore")
FILE = pathlib.Path(__file__).resolve().parent / "data" / "metrics" / "entities.json"
IOB = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]


def case(name, tags, texts, agreement, seed):
    random = np.random.default_rng(seed)
    labels, predictions = [], []
    for _ in range(texts):
        length = int(random.integers(1, 12))
        label = random.integers(0, len(tags), length)
        other = random.integers(0, len(tags), length)
        labels.append([int(tag) for tag in label])
        predictions.append([int(tag) for tag in np.where(random.random(length) < agreement, label, other)])
    named = [[[tags[tag] for tag in text] for text in side] for side in (labels, predictions)]
    report = classification_report(*named, output_dict=True, zero_division=0)
    scores = {}
    for of, values in report.items():
        if of in ("macro avg", "weighted avg"):
            continue
        prefix = "" if of == "micro avg" else of + "_"
        scores |= {prefix + "precision": float(values["precision"]), prefix + "recall": float(values["recall"]), prefix + "f1": float(values["f1-score"])}
        if prefix:
            scores[prefix + "number"] = int(values["support"])
    entities = [[[kind, int(first), int(last)] for kind, first, last in get_entities(text)] for text in named[1]]
    return {"name": name, "tags": tags, "labels": labels, "predictions": predictions, "entities": entities, "scores": scores}


cases = [
    case("iob2", IOB, 60, 0.8, 1),
    case("all_right", IOB, 20, 1.0, 2),
    case("all_wrong", ["O", "B-X", "I-X"], 12, 0.0, 3),
    case("one_text", IOB, 1, 0.5, 4),
    case("all_kinds", ["O", "B-A", "I-A", "E-A", "S-A", "B-B-C", "I-B-C", "E-B-C", "S-B-C"], 60, 0.7, 5),
]
FILE.write_text(json.dumps({"versions": {"seqeval": "1.2.2"}, "cases": cases}, separators=(",", ":")) + "\n")
