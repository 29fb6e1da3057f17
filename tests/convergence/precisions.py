#!/usr/bin/env python3
"""Fine-tunes MiniLM-L6 on the Debian sections with several seeds, in float with AdamW, in other precisions, and with optimizers that use less
memory. Their mean evaluation losses must equal the mean loss of AdamW in float within the noise of the seeds. Prints a table.

    tests/convergence/precisions.py build/release/bin/hasten [STEPS] [SEEDS]

HASTEN_MINILM is the folder of the model (tools/fetch_minilm.sh prints it). 300 steps with 3 seeds take about an hour on
one core. Most of this time goes to float16, which most CPUs emulate.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIANTS = {
    "float": [],
    "AdamW with 8-bit moments": ["--optim", "adamw_8bit"],
    "Adafactor": ["--optim", "adafactor"],
    "bf16": ["--bf16"],
    "fp16": ["--fp16"],
    "bfloat16 weights and moments": ["--weights_dtype", "bfloat16", "--optim_args", "state_dtype=bfloat16"],
    # This variant must fail: most updates are rounded away. It shows that the test can detect a failure.
    "the same, rounded to the nearest": ["--weights_dtype", "bfloat16", "--optim_args", "state_dtype=bfloat16,stochastic_rounding=false"],
}
MUST_BE_WORSE = "the same, rounded to the nearest"


def eval_loss(hasten, model, steps, seed, arguments, folder):
    data = ROOT / "examples" / "data" / "debian_sections"
    command = [hasten, "train", "--model", model, "--config_file", ROOT / "examples/02_debian_sections/train.yaml",
               "--data", data / "train.tsv", "--eval_data", data / "eval.tsv", "--output_dir", folder, "--max_steps", steps,
               "--eval_strategy", "no", "--do_train", "--do_eval", "--seed", seed, "--num_threads", 1, *arguments]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return json.loads((folder / "all_results.json").read_text())["eval_loss"]


def main():
    model = os.environ.get("HASTEN_MINILM")
    if not model:
        print("skipped: HASTEN_MINILM is not set")
        return 0
    hasten, steps, seeds = sys.argv[1], int((sys.argv[2:3] or [300])[0]), int((sys.argv[3:4] or [3])[0])
    losses = {}
    for name, arguments in VARIANTS.items():
        losses[name] = []
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory() as scratch:
                losses[name].append(eval_loss(hasten, model, steps, seed, arguments, pathlib.Path(scratch) / "run"))
        print(f"{name:34} {statistics.mean(losses[name]):.4f}  " + " ".join(f"{loss:.4f}" for loss in losses[name]), flush=True)
    plain = losses["float"]
    noise = max(statistics.stdev(plain) if seeds > 1 else 0, 0.01)
    failed = 0
    for name, values in losses.items():
        difference = statistics.mean(values) - statistics.mean(plain)
        is_worse = difference > 2 * noise
        if is_worse != (name == MUST_BE_WORSE):
            print(f"{name}: the mean loss is that of float {difference:+.4f}, with a noise of {noise:.4f}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
