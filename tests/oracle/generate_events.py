#!/usr/bin/env python3
"""Writes an event file and histograms with torch.utils.tensorboard; writes data/track/events.tfevents and histograms.json.

    python generate_events.py          # torch, tensorboard, numpy

The event file has scalars with two names (one scalar has a value that is not finite), a text, a histogram and an image.
"""
import json
import pathlib
import shutil
import tempfile

import numpy as np
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import make_histogram

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "track"


def default_bins():
    """Returns the bin limits that SummaryWriter.add_histogram uses."""
    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            return writer.default_bins


def cases():
    random = np.random.default_rng(5)
    return {
        "normal": random.normal(0, 0.02, 200),
        "positive": random.exponential(3.0, 50),
        "single": np.array([0.25]),
        "zeros": np.zeros(7),
        "signs": np.array([-2.0, -1e-13, 0.0, 1e-13, 1e-12, 2.0]),
        "large": np.array([-3e19, 5.0, 7e19]),
    }


def histograms():
    bins = default_bins()
    out = []
    for name, values in cases().items():
        histogram = make_histogram(values, bins)
        out.append({"name": name, "values": values.tolist(), "min": histogram.min, "max": histogram.max, "num": histogram.num,
                    "sum": histogram.sum, "sum_squares": histogram.sum_squares, "limits": list(histogram.bucket_limit),
                    "counts": list(histogram.bucket)})
    return out


def write_events():
    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            for step in range(0, 50, 10):
                writer.add_scalar("train/loss", 1.0 / (step + 1), step, walltime=1790000000.0 + step)
            writer.add_scalar("eval/loss", 0.5, 40, walltime=1790000041.0)
            writer.add_scalar("eval/loss", float("nan"), 50, walltime=1790000042.0)
            writer.add_text("args", "{}", walltime=1790000000.0)
            writer.add_histogram("weights", np.array([-1.0, 0.5, 2.0]), 10, walltime=1790000001.0)
            writer.add_image("rows", np.zeros((2, 3, 1), dtype=np.uint8), 10, walltime=1790000001.0, dataformats="HWC")
        file, = pathlib.Path(folder).iterdir()
        shutil.copyfile(file, FOLDER / "events.tfevents")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "histograms.json").write_text(json.dumps({"histograms": histograms()}) + "\n")
    write_events()
