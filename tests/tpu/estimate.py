#!/usr/bin/env python3
"""hasten estimate --tpu, for a model and for a program: with a CPU engine's compiler in the place of libtpu's, which is at hand in every run, and
(--libtpu) by libtpu for real topologies.

    estimate.py HASTEN PROGRAM ENGINE-FOLDER MODEL [--libtpu]
"""
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HASTEN, PROGRAM, ENGINE, MODEL = sys.argv[1:5]
CPU_ENGINE = str(Path(ENGINE) / "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("HASTEN_", "TPU_", "ACCELERATE_")) and k != "VIRTUAL_ENV"}
ENVIRONMENT["PYTHONPATH"] = ENGINE
TOPOLOGIES = ("v5e:2x2", "v6e:2x4", "v5p:2x2x2", "tpu7x:2x2x1")
failures = []


def check(name, truth, *shown):
    print("ok" if truth else "FAILED", name, *shown, flush=True)
    if not truth:
        failures.append(name)


def estimate(*words, compiler):
    environment = {**ENVIRONMENT, **({"HASTEN_DRY_TPU_COMPILER": compiler} if compiler else {})}
    begin = time.monotonic()
    run = subprocess.run([HASTEN, "estimate", *words], env=environment, capture_output=True, text=True, timeout=600)
    return run, time.monotonic() - begin


def account_of(*words, compiler):
    run, seconds = estimate("--json", *words, compiler=compiler)
    start = run.stdout.find("{")  # a program's own lines may come before
    if start < 0:
        print(run.stdout[-1000:], run.stderr[-3000:])
        return run.returncode, {}
    return run.returncode, json.loads(run.stdout[start:])


def small(topology, compiler, *words):
    return account_of("--tpu", topology, MODEL, "--batch", "2", "--seq", "16", "--steps", "3", *words, compiler=compiler)


def without_padding():
    code, account = small("v5e:2x2", CPU_ENGINE, "--attn_implementation", "eager")
    most, parts = account["anatomy"]["most"], account["components"]
    check("a model's steps", code == 0 and account["steps"] == 3 and account["fits"])
    check("programs, none late, none failed", account["programs"] > 20 and account["programs_after_second_step"] == 0 and not account["failed"])
    check("weights and activations are the anatomy's to the byte",
          all(parts[part] == most[part] for part in ("model_weights", "activations")), parts, most)
    # The anatomy counts what hasten's AdamW keeps of a table's blocks beside the moments.
    check("the states are two moments", parts["optimizer_states"] == 2 * parts["model_weights"])
    check("gradients are dense", parts["gradients"] == parts["model_weights"])
    check("nothing lies there besides, but a few numbers", parts["unknown"] < 1000, parts["unknown"])
    check("arguments add up", account["unlike"] == 0)
    check("it says that this was no TPU's compiler", not account["ahead_of_time"])
    peak = account["peak"]
    check("the peak is its parts", peak["total"] == peak["tensors"] + peak["temporaries"] + peak["code"])
    check("the peak holds what stays", peak["tensors"] > sum(parts[p] for p in ("model_weights", "optimizer_states", "gradients")))


def inference():
    code, account = small("v5e:2x2", CPU_ENGINE, "--attn_implementation", "eager", "--mode", "inference")
    parts, predicted = account["components"], account["anatomy"]
    check("inference: the steps", code == 0 and account["steps"] == 3 and account["programs_after_second_step"] == 0)
    check("inference: weights and a batch, nothing else stays", parts["model_weights"] == predicted["most"]["model_weights"] and parts["functionality"] > 0 and
          parts["optimizer_states"] == parts["gradients"] == parts["activations"] == 0 and parts["unknown"] < 1000, parts)
    # Without the logits of the batch before, which a loop may keep.
    check("inference: the peak is near the anatomy's", 0.9 < account["peak"]["tensors"] / predicted["peak"] < 1.1, account["peak"], predicted["peak"])


def refused():
    code, account = small("v5e:2x2", CPU_ENGINE)  # the fused attention is a kernel of TPUs alone
    failed = (account.get("failed") or [{}])[0]
    check("what does not compile is named, with its module", code == 1 and "scaled_dot_product" in failed.get("program", "") and
          failed.get("module", "").startswith("bert.encoder.layer.0.attention") and "tpu_custom_call" in failed.get("message", ""), failed)
    for name, words, compiler, expected, code in (
            ("an unknown topology", ("--tpu", "v5e:2x2x2", MODEL), CPU_ENGINE, "config.unknown-device", 2),
            ("an unknown chip for a program", ("--tpu", "v8:2x2", "--", PROGRAM), CPU_ENGINE, "config.unknown-device", 2),
            ("no libtpu", ("--tpu", "v5e:2x2", MODEL), None, "python3 -m pip install libtpu", 4),
            ("no libtpu for a program", ("--tpu", "v5e:2x2", "--", PROGRAM), None, "device.tpu-compiler", 4)):
        run, seconds = estimate(*words, compiler=compiler)
        check(name, run.returncode == code and expected in run.stderr and seconds < 1.5, f"{seconds:.2f} s", run.stderr.strip()[:300])


def a_program():
    code, account = account_of("--tpu", "v6e:2x4", "--steps", "3", "--", PROGRAM, compiler=CPU_ENGINE)
    check("a program's steps", code == 0 and account.get("steps") == 3 and account["programs_after_second_step"] == 0)
    check("beside its anatomy", account["anatomy"]["most"]["model_weights"] == account["components"]["model_weights"])
    run, _ = estimate("--tpu", "v6e:2x4", "--", PROGRAM, compiler=CPU_ENGINE)
    check("as text", run.returncode == 0 and "peak of each component" in run.stdout and "anatomy (CPU)" in run.stdout)


def libtpu():
    """An engine's package may carry none: the user installs it."""
    named = os.environ.get("HASTEN_LIBTPU")
    package = importlib.util.find_spec("libtpu")
    return named or (package and str(Path(package.origin).parent / "libtpu.so"))


def by_libtpu(library):
    for topology in TOPOLOGIES:
        code, account = small(topology, library)
        check(f"{topology}: every program compiles", code == 0 and account["ahead_of_time"] and not account["failed"] and account["unlike"] == 0,
              account.get("compiled_for"), account.get("programs"), account.get("peak"))
        check(f"{topology}: tiles pad", account["components"]["activations"] > account["anatomy"]["most"]["activations"])
        check(f"{topology}: its memory is known", account["memory"] > 15 << 30)
    code, account = account_of("--tpu", "v5e:2x2", "bert-base", "--batch", "8", "--seq", "128", "--steps", "2", compiler=library)
    weights = account["components"]["model_weights"] / account["anatomy"]["most"]["model_weights"]
    check("BERT-base fits, its weights hardly padded", code == 0 and account["fits"] and 1 <= weights < 1.01, weights)
    code, account = account_of("--tpu", "v5e:2x2", "bert-large", "--batch", "64", "--seq", "512", "--steps", "1", compiler=library)
    check("BERT-large with rows enough does not fit", code == 0 and not account["fits"], account.get("peak"))


def main():
    if "--libtpu" in sys.argv:
        library = libtpu()
        if not library:
            print("skipped: no libtpu (HASTEN_LIBTPU=.../libtpu.so, or python3 -m pip install libtpu)")
            return 0
        by_libtpu(library)
    else:
        without_padding()
        inference()
        refused()
        a_program()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
