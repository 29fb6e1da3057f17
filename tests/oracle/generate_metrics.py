#!/usr/bin/env python3
"""Scores random predictions with scikit-learn and SciPy; writes data/metrics/cases.json.

    python generate_metrics.py          # scikit-learn, scipy, numpy

Each classification has logits [rows, classes] and labels. Each regression has predictions and labels. Some cases have
equal scores, classes without labels, and labels of -100, which are ignored.
"""
import json
import math
import pathlib
import warnings

import numpy as np
import scipy
import sklearn
from scipy import stats
from sklearn import metrics

warnings.simplefilter("ignore")
FILE = pathlib.Path(__file__).resolve().parent / "data" / "metrics" / "cases.json"
AVERAGES = ("binary", "micro", "macro", "weighted")


def number(value):
    """Returns the value, or None for a NaN, which JSON does not have."""
    return None if math.isnan(value) else float(value)


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def f1_scores(labels, predicted, classes):
    out = {}
    for average in AVERAGES:
        if average == "binary" and classes != 2:
            continue
        precision, recall, f1, _ = metrics.precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)
        out[average] = {"precision": precision, "recall": recall, "f1": f1}
    return out


def roc_auc(labels, logits):
    classes = logits.shape[1]
    if len(set(labels)) < classes:
        return math.nan
    if classes == 2:
        return metrics.roc_auc_score(labels, logits[:, 1] - logits[:, 0])
    probabilities = np.exp(log_softmax(logits))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return metrics.roc_auc_score(labels, probabilities, multi_class="ovr")


def classification(random, rows, classes, *, step=0.0, missing=False, ignored=False):
    logits = random.normal(size=(rows, classes)).astype(np.float32)
    if step:
        logits = (np.round(logits / step) * step).astype(np.float32)
    labels = random.integers(0, classes - 1 if missing else classes, size=rows)
    logits[np.arange(rows), labels] += np.float32(0.75)
    given = np.where(random.random(rows) < 0.3, -100, labels) if ignored else labels
    kept = given != -100
    x, y = logits[kept].astype(np.float64), given[kept]
    predicted = x.argmax(axis=1)
    known = list(range(classes))
    return {
        "logits": logits.tolist(),
        "labels": given.tolist(),
        "scores": {
            "accuracy": metrics.accuracy_score(y, predicted),
            "top_2_accuracy": metrics.top_k_accuracy_score(y, x, k=2, labels=known) if classes > 2 else 1.0,
            "matthews_correlation": metrics.matthews_corrcoef(y, predicted),
            "roc_auc": number(roc_auc(y, x)),
            "perplexity": math.exp(metrics.log_loss(y, np.exp(log_softmax(x)), labels=known)),
        },
        "averages": f1_scores(y, predicted, classes),
        "confusion": metrics.confusion_matrix(y, predicted, labels=known).tolist(),
    }


def regression(random, rows, *, offset=0.0, step=0.0, constant_labels=False):
    labels = random.normal(size=rows) + offset
    if constant_labels:
        labels[:] = 2.0
    predictions = labels + random.normal(size=rows) * 0.5
    if step:
        labels, predictions = np.round(labels / step) * step, np.round(predictions / step) * step
    return {
        "predictions": predictions.tolist(),
        "labels": labels.tolist(),
        "scores": {
            "mse": metrics.mean_squared_error(labels, predictions),
            "rmse": math.sqrt(metrics.mean_squared_error(labels, predictions)),
            "mae": metrics.mean_absolute_error(labels, predictions),
            "r2": metrics.r2_score(labels, predictions),
            "pearson": number(stats.pearsonr(labels, predictions)[0]),
            "spearman": number(stats.spearmanr(labels, predictions)[0]),
        },
    }


def main():
    random = np.random.default_rng(0)
    cases = {
        "versions": {"scikit-learn": sklearn.__version__, "scipy": scipy.__version__, "numpy": np.__version__},
        "classifications": [
            classification(random, 40, 2),
            classification(random, 40, 2, step=0.5),
            classification(random, 40, 2, missing=True),
            classification(random, 60, 3),
            classification(random, 60, 3, step=0.5, ignored=True),
            classification(random, 60, 5, missing=True),
            classification(random, 60, 5, ignored=True),
            classification(random, 12, 9),
            classification(random, 1, 3),
        ],
        "regressions": [
            regression(random, 50),
            regression(random, 50, offset=1e6),
            regression(random, 50, step=0.5),
            regression(random, 20, constant_labels=True),
            regression(random, 3),
        ],
    }
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(cases) + "\n")
    print(FILE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
