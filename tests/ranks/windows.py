#!/usr/bin/env python3
"""Accumulation windows give the same weights in one, two and four processes, and a raw backward pass is refused.

    windows.py WINDOWS HASTEN
"""
import os
import subprocess
import sys

from checks import check, exit_code
from clean import CLEAN

WINDOWS, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])


def run(case, count):
    arguments = [HASTEN, "launch", "-q", "-n", str(count), "--no_config_file", WINDOWS, case]
    return subprocess.run(arguments, env=CLEAN | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=100)


def weights(case, count):
    done = run(case, count)
    check(done.returncode == 0, f"{case}: the program succeeds in {count} processes", done.stdout, done.stderr)
    return [float(word) for word in done.stdout.split() if not word.startswith("[")]  # without the rank's prefix


for case in ("tied", "skipped", "unfrozen"):
    single = weights(case, 1)
    check(len(single) >= 6 * 6 + 6, f"{case}: the weights are printed")
    for count in (2, 4):
        together = weights(case, count)
        check(len(together) == len(single), f"{case}: {count} processes print the same number of weights")
        difference = max(abs(a - b) for a, b in zip(single, together))
        check(difference < 1e-5, f"{case}: the weights of {count} processes equal those of one, to {difference:.2g}")

check(len(weights("raw backward", 1)) > 0, "one process may call loss.backward()")
done = run("raw backward", 2)
check(done.returncode != 0 and "prepare.raw-backward" in done.stderr, "several processes may not", done.stdout, done.stderr)
sys.exit(exit_code())
