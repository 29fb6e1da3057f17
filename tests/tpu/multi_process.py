#!/usr/bin/env python3
"""Training on device tpu in several processes equals training in one, with Gloo through the host and with torch_tpu's tpu_dist.

    multi_process.py PROGRAM HASTEN ENGINE-FOLDER PLUGIN.so gloo|tpu_dist|refused|long

Two processes train a classifier and a BERT. `long` adds four and eight processes, more settings, and the debug mode that compares every
call. Each process has its own CPU engine instead of a TPU; for tpu_dist the plugin also shows the devices of the other processes.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ranks"))
from clean import CLEAN  # noqa: E402

PROGRAM, HASTEN, ENGINE, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:5])
CASE = sys.argv[5]
GOOD = CLEAN | {"TPU_LIBRARY_PATH": PLUGIN, "PYTHONPATH": ENGINE, "HASTEN_TEST_ENGINE": f"{ENGINE}/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
                "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
GLOO_NOTICE = "processes exchange tensors of device tpu with Gloo"
failures = 0


def launch(number, *arguments, **environment):
    with tempfile.TemporaryDirectory(prefix="hasten-tpu-", dir=MEMORY) as folder:
        return subprocess.run([HASTEN, "launch", "--no_config_file", "-n", str(number), PROGRAM, *arguments],
                              env=GOOD | {"HASTEN_TEST_EXCHANGE_FOLDER": folder} | environment, capture_output=True, text=True, timeout=500)


def check_training(name, number, *arguments, notices=0, **environment):
    """Every rank must print "good", and rank 0 must print `notices` notices about Gloo."""
    global failures
    began = time.monotonic()
    done = launch(number, *arguments, **environment)
    lines = re.findall(rf"rank (\d+) of {number} on tpu:0: good, off by (\S+) at most, \S+ s, (\d+) MB", done.stdout)
    holds = done.returncode == 0 and sorted(int(line[0]) for line in lines) == list(range(number)) and done.stderr.count(GLOO_NOTICE) == notices
    farthest, largest = max((float(line[1]) for line in lines), default=-1), max((int(line[2]) for line in lines), default=-1)
    print(f"{'ok     ' if holds else 'FAILED '} {name}: {number} processes, {time.monotonic() - began:.1f} s, off by {farthest:.1e} at most, "
          f"at most {largest} MB per process", flush=True)
    if not holds:
        failures += 1
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")


def check_error(name, code, texts, exit_code, **environment):
    global failures
    began = time.monotonic()
    done = launch(2, **environment)
    holds = done.returncode == exit_code and code in done.stdout + done.stderr and all(text in done.stdout + done.stderr for text in texts)
    print(f"{'ok     ' if holds else 'FAILED '} {name}: code {done.returncode}, {time.monotonic() - began:.1f} s", flush=True)
    if not holds:
        failures += 1
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")


def train_with_gloo(number, *arguments):
    check_training("Gloo, the default without a TPU", number, *arguments, notices=1)


def train_with_tpu_dist(number, *arguments):
    check_training("tpu_dist", number, *arguments, HASTEN_PROCESS_GROUP_BACKEND="tpu_dist")


if CASE == "gloo":
    train_with_gloo(2, "--short")
elif CASE == "tpu_dist":
    train_with_tpu_dist(2, "--short")
elif CASE == "refused":
    check_error("an unknown backend", "process.backend", ["tpu_dist"], 2, HASTEN_PROCESS_GROUP_BACKEND="mpi")
    # The plugin then has one device, but tpu_dist needs two.
    check_error("a TPU without the other processes' chips", "device.tpu-failed", ["world_size"], 4, HASTEN_PROCESS_GROUP_BACKEND="tpu_dist",
            HASTEN_TEST_EXCHANGE_FOLDER="")
else:
    for train in (train_with_gloo, train_with_tpu_dist):
        train(2)
        for number in (4, 8):
            train(number, "--short")
    check_training("Gloo in debug mode", 2, HASTEN_PROCESS_GROUP_BACKEND="gloo", ACCELERATE_DEBUG_MODE="true")
    check_training("tpu_dist in debug mode", 2, HASTEN_PROCESS_GROUP_BACKEND="tpu_dist", ACCELERATE_DEBUG_MODE="true")
sys.exit(1 if failures else 0)
