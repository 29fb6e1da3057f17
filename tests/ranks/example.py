#!/usr/bin/env python3
"""An example (05_distributed, 06_uneven_data) prints the same in one process and in several, except for rounding.

    example.py EXAMPLE HASTEN
"""
import os
import re
import shutil
import subprocess
import sys

from clean import CLEAN

PROGRAM, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])
ENVIRONMENT = CLEAN | {"OMP_NUM_THREADS": "1"}


def numbers(arguments):
    done = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    found = re.findall(r"loss ([\d.]+), accuracy ([\d.]+) of (\d+) rows", done.stdout)
    print(arguments[-1] if len(arguments) == 1 else " ".join(arguments[1:4]), found)
    return [tuple(map(float, line)) for line in found]


single = numbers([PROGRAM])
passed = len(single) == 6 and single[-1][1] > 0.9 and all(line[2] == 1001 for line in single)
for count in (2, 3, 4):
    together = numbers([HASTEN, "launch", "-n", str(count), "--no_config_file", PROGRAM])
    # Rounding errors may change the prediction for a row.
    passed &= len(together) == 6 and all(abs(a[0] - b[0]) <= 2e-4 and abs(a[1] - b[1]) <= 0.002 and a[2] == b[2] for a, b in zip(single, together))
# If no address is given, hasten derives one and prints it once.
if shutil.which("mpirun.openmpi"):
    arguments = ["mpirun.openmpi", "--oversubscribe", "-n", "2", PROGRAM]
    done = subprocess.run(arguments, env=ENVIRONMENT | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}, capture_output=True,
                          text=True, timeout=120)
    lines = re.findall(r"hasten: 2 processes started by Open MPI meet at 127\.0\.0\.1:\d+ \(address: all processes are on this machine; port: the job's number \S+\)", done.stderr)
    print("mpirun:", lines or done.stderr)
    passed &= done.returncode == 0 and len(lines) == 1 and done.stdout.count("1001 rows") == 6
sys.exit(0 if passed else 1)
