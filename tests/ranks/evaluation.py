#!/usr/bin/env python3
"""If only one rank fails in an evaluation or a prediction, all ranks get an error at once, and can continue together.

    evaluation.py EVALUATION HASTEN
"""
import os
import subprocess
import sys
import tempfile

from checks import check, exit_code
from clean import CLEAN

EVALUATION, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])
CASES = 2 * (10 + 2 + 5) + 1 + 2 * 2 * 3

with tempfile.TemporaryDirectory() as folder:
    for processes in (2, 3):
        start = [HASTEN, "launch", "-q", "-n", str(processes), "--no_config_file"]
        done = subprocess.run([*start, EVALUATION, folder], env=CLEAN | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200)
        cases = sum(", rank 0: " in line for line in done.stdout.splitlines())
        check(done.returncode == 0 and cases == CASES, f"{processes} processes: {cases} of {CASES} failures of rank 1 reach all ranks",
              f"exit code {done.returncode}", done.stdout[-3000:], done.stderr[-3000:])
sys.exit(exit_code())
