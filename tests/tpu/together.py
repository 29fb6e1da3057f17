#!/usr/bin/env python3
"""Training on device tpu in several processes is that of one: by Gloo through the host, and by torch_tpu's tpu_dist.

    together.py PROGRAM HASTEN ENGINE-FOLDER PLUGIN.so gloo|tpu_dist|refused|long

Two processes train a classifier and a BERT; `long`: four and eight, two by more ways of exchanging, and with every call compared. Each process has a CPU engine of its own in a TPU's place; for tpu_dist the plugin shows it the devices of the others too.
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
WHAT = sys.argv[5]
GOOD = CLEAN | {"TPU_LIBRARY_PATH": PLUGIN, "PYTHONPATH": ENGINE, "HASTEN_TEST_ENGINE": f"{ENGINE}/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
                "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
TOLD = "processes exchange tensors of device tpu with Gloo"
failures = 0


def launch(number, *words, **environment):
    with tempfile.TemporaryDirectory(prefix="hasten-tpu-", dir=MEMORY) as folder:
        return subprocess.run([HASTEN, "launch", "--no_config_file", "-n", str(number), PROGRAM, *words],
                              env=GOOD | {"HASTEN_TEST_TOGETHER": folder} | environment, capture_output=True, text=True, timeout=500)


def good(what, number, *words, told=0, **environment):
    """Every rank says that it is good, and rank 0 as often as it should that Gloo carries."""
    global failures
    began = time.monotonic()
    done = launch(number, *words, **environment)
    lines = re.findall(rf"rank (\d+) of {number} on tpu:0: good, off by (\S+) at most, \S+ s, (\d+) MB", done.stdout)
    holds = done.returncode == 0 and sorted(int(line[0]) for line in lines) == list(range(number)) and done.stderr.count(TOLD) == told
    farthest, largest = max((float(line[1]) for line in lines), default=-1), max((int(line[2]) for line in lines), default=-1)
    print(f"{'ok     ' if holds else 'FAILED '} {what}: {number} processes, {time.monotonic() - began:.1f} s, off by {farthest:.1e} at most, "
          f"at most {largest} MB a process", flush=True)
    if not holds:
        failures += 1
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")


def refused(what, code, words, exit_code, **environment):
    global failures
    began = time.monotonic()
    done = launch(2, **environment)
    holds = done.returncode == exit_code and code in done.stdout + done.stderr and all(word in done.stdout + done.stderr for word in words)
    print(f"{'ok     ' if holds else 'FAILED '} {what}: code {done.returncode}, {time.monotonic() - began:.1f} s", flush=True)
    if not holds:
        failures += 1
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")


def by_gloo(number, *words):
    good("by Gloo, as PCI shows no TPU", number, *words, told=1)


def by_tpu_dist(number, *words):
    good("by tpu_dist", number, *words, HASTEN_PROCESS_GROUP_BACKEND="tpu_dist")


if WHAT == "gloo":
    by_gloo(2, "--short")
elif WHAT == "tpu_dist":
    by_tpu_dist(2, "--short")
elif WHAT == "refused":
    refused("another carrier", "process.backend", ["tpu_dist"], 2, HASTEN_PROCESS_GROUP_BACKEND="mpi")
    # The stand-in then has one device, where tpu_dist wants two.
    refused("a TPU that lacks the others' chips", "device.tpu-failed", ["world_size"], 4, HASTEN_PROCESS_GROUP_BACKEND="tpu_dist",
            HASTEN_TEST_TOGETHER="")
else:
    for way in (by_gloo, by_tpu_dist):
        way(2)
        for number in (4, 8):
            way(number, "--short")
    good("by Gloo, as said, each call compared", 2, HASTEN_PROCESS_GROUP_BACKEND="gloo", ACCELERATE_DEBUG_MODE="true")
    good("by tpu_dist, each call compared", 2, HASTEN_PROCESS_GROUP_BACKEND="tpu_dist", ACCELERATE_DEBUG_MODE="true")
sys.exit(1 if failures else 0)
