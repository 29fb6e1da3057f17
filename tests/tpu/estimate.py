#!/usr/bin/env python3
"""Tests hasten estimate --tpu for a model and a program, with a CPU engine's compiler or, with --libtpu, libtpu for real topologies.

    estimate.py HASTEN PROGRAM ENGINE-FOLDER MODEL [--libtpu]
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HASTEN, PROGRAM, ENGINE, MODEL = sys.argv[1:5]
CPU_ENGINE = str(Path(ENGINE) / "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("HASTEN_", "TPU_", "ACCELERATE_")) and k != "VIRTUAL_ENV"}
ENVIRONMENT["PYTHONPATH"] = ENGINE
TOPOLOGIES = ("v5e:2x2", "v6e:2x4", "v5p:2x2x2", "tpu7x:2x2x1")
failures = []


def check(name, holds, *details):
    print("ok" if holds else "FAILED", name, *details, flush=True)
    if not holds:
        failures.append(name)


def estimate(*arguments, compiler):
    environment = {**ENVIRONMENT, **({"HASTEN_DRY_TPU_COMPILER": compiler} if compiler else {})}
    begin = time.monotonic()
    run = subprocess.run([HASTEN, "estimate", *arguments], env=environment, capture_output=True, text=True, timeout=600)
    return run, time.monotonic() - begin


def prediction_of(*arguments, compiler):
    run, seconds = estimate("--json", *arguments, compiler=compiler)
    start = run.stdout.find("{")  # the program can print lines before it
    if start < 0:
        print(run.stdout[-1000:], run.stderr[-3000:])
        return run.returncode, {}
    return run.returncode, json.loads(run.stdout[start:])


def predict_small_model(topology, compiler, *arguments):
    return prediction_of("--tpu", topology, MODEL, "--batch", "2", "--seq", "16", "--steps", "3", *arguments, compiler=compiler)


def check_training():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "estimate.json"
        code, report = predict_small_model("v5e:2x2", CPU_ENGINE, "--attn_implementation", "eager", "--output", str(file))
        check("--output writes what --json prints", file.exists() and json.loads(file.read_text()) == report)
    most, parts = report["anatomy"]["max_bytes"], report["components"]
    check("the model runs three steps", code == 0 and report["steps"] == 3 and report["fits"])
    check("no program is compiled late or fails", report["programs"] > 20 and report["programs_after_second_step"] == 0 and not report["failed"])
    check("weights and activations equal the anatomy's",
          all(parts[part] == most[part] for part in ("model_weights", "activations")), parts, most)
    # Only the anatomy also counts the states that hasten's AdamW keeps for the blocks of a table.
    check("the optimizer states are two moments", parts["optimizer_states"] == 2 * parts["model_weights"])
    check("gradients are dense", parts["gradients"] == parts["model_weights"])
    # StepSums keeps the sums of the losses of 512 closed steps and of the open step, in float.
    losses = 4 * 513
    check("almost nothing else is on the device", losses <= parts["unknown"] < losses + 1000, parts["unknown"])
    check("the arguments' sizes match", report["mismatched_runs"] == 0)
    check("the report says that no TPU compiler ran", not report["ahead_of_time"])
    peak = report["peak"]
    check("the peak is the sum of its parts", peak["total"] == peak["tensors"] + peak["temporaries"] + peak["code"])
    check("the peak has all permanent tensors", peak["tensors"] > sum(parts[p] for p in ("model_weights", "optimizer_states", "gradients")))


def check_inference():
    code, report = predict_small_model("v5e:2x2", CPU_ENGINE, "--attn_implementation", "eager", "--mode", "inference")
    parts, predicted = report["components"], report["anatomy"]
    check("inference: three steps, no late program", code == 0 and report["steps"] == 3 and report["programs_after_second_step"] == 0)
    check("inference: only weights and a batch are permanent", parts["model_weights"] == predicted["max_bytes"]["model_weights"] and parts["functionality"] > 0 and
          parts["optimizer_states"] == parts["gradients"] == parts["activations"] == 0 and parts["unknown"] < 1000, parts)
    # The tolerance is for the previous batch's logits, which a loop may keep.
    check("inference: the peak is within 10 % of the anatomy's", 0.9 < report["peak"]["tensors"] / predicted["peak"] < 1.1, report["peak"], predicted["peak"])


def check_errors():
    code, report = predict_small_model("v5e:2x2", CPU_ENGINE)  # the fused attention compiles only for TPUs
    failed = (report.get("failed") or [{}])[0]
    check("the error names the operator and its module", code == 1 and "scaled_dot_product" in failed.get("program", "") and
          failed.get("module", "").startswith("bert.encoder.layer.0.attention") and "tpu_custom_call" in failed.get("message", ""), failed)
    for name, arguments, compiler, expected, code in (
            ("an unknown topology", ("--tpu", "v5e:2x2x2", MODEL), CPU_ENGINE, "config.unknown-device", 2),
            ("an unknown chip for a program", ("--tpu", "v8:2x2", "--", PROGRAM), CPU_ENGINE, "config.unknown-device", 2),
            ("no libtpu", ("--tpu", "v5e:2x2", MODEL), None, "python3 -m pip install libtpu", 4),
            ("no libtpu for a program", ("--tpu", "v5e:2x2", "--", PROGRAM), None, "device.tpu-compiler", 4)):
        run, seconds = estimate(*arguments, compiler=compiler)
        check(name, run.returncode == code and expected in run.stderr and seconds < 1.5, f"{seconds:.2f} s", run.stderr.strip()[:300])


def check_program():
    code, report = prediction_of("--tpu", "v6e:2x4", "--steps", "3", "--", PROGRAM, compiler=CPU_ENGINE)
    check("the program runs three steps", code == 0 and report.get("steps") == 3 and report["programs_after_second_step"] == 0)
    check("a program: the weights equal the anatomy's", report["anatomy"]["max_bytes"]["model_weights"] == report["components"]["model_weights"])
    run, _ = estimate("--tpu", "v6e:2x4", "--", PROGRAM, compiler=CPU_ENGINE)
    check("a program: the report as text", run.returncode == 0 and "peak of each component" in run.stdout and "anatomy (CPU)" in run.stdout)


def find_libtpu():
    named = os.environ.get("HASTEN_LIBTPU")
    package = importlib.util.find_spec("libtpu")
    return named or (package and str(Path(package.origin).parent / "libtpu.so"))


def check_with_libtpu(library):
    for topology in TOPOLOGIES:
        code, report = predict_small_model(topology, library)
        check(f"{topology}: every program compiles", code == 0 and report["ahead_of_time"] and not report["failed"] and report["mismatched_runs"] == 0,
              report.get("compiled_for"), report.get("programs"), report.get("peak"))
        check(f"{topology}: tiles add padding", report["components"]["activations"] > report["anatomy"]["max_bytes"]["activations"])
        check(f"{topology}: its memory is known", report["memory"] > 15 << 30)
    code, report = prediction_of("--tpu", "v5e:2x2", "bert-base", "--batch", "8", "--seq", "128", "--steps", "2", compiler=library)
    weights = report["components"]["model_weights"] / report["anatomy"]["max_bytes"]["model_weights"]
    check("BERT-base fits, and its weights have little padding", code == 0 and report["fits"] and 1 <= weights < 1.01, weights)
    code, report = prediction_of("--tpu", "v5e:2x2", "bert-large", "--batch", "64", "--seq", "512", "--steps", "1", compiler=library)
    check("BERT-large with many rows does not fit", code == 0 and not report["fits"], report.get("peak"))


def main():
    if "--libtpu" in sys.argv:
        library = find_libtpu()
        if not library:
            print("skipped: libtpu is not installed (HASTEN_LIBTPU=.../libtpu.so, or python3 -m pip install libtpu)")
            return 0
        check_with_libtpu(library)
    else:
        check_training()
        check_inference()
        check_errors()
        check_program()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
