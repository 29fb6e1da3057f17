#!/usr/bin/env python3
"""Checks that the examples of local SGD, several models and accumulation behave in two processes as their pages say.

    exchange_examples.py FOLDER_OF_EXAMPLES HASTEN
"""
import os
import re
import subprocess
import sys

from clean import CLEAN

FOLDER, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])


def lines_of(name, count=2):
    arguments = [HASTEN, "launch", "-q", "-n", str(count), "--no_config_file", os.path.join(FOLDER, name)]
    done = subprocess.run(arguments, env=CLEAN | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200)
    print(f"{name} in {count} processes:\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        sys.exit(f"{name} ended with {done.returncode}")
    return done.stdout


def check(holds, what):
    if not holds:
        sys.exit(f"wrong: {what}")


found = re.findall(r"accuracy ([\d.]+), (\d+) exchanges", lines_of("example_07_local_sgd"))
accuracies, exchanges = [float(a) for a, _ in found], [int(e) for _, e in found]
check(len(found) == 3 and min(accuracies) > 0.9, "all three learn the spirals")
check(exchanges == [600, 150, 38], "exchanging weights every 4 and 16 steps needs 4 and 16 times fewer exchanges")

for count in (1, 2):
    rings = [float(d) for d in re.findall(r"from the ring ([\d.]+)", lines_of("example_08_several_models", count))]
    check(len(rings) == 4 and rings[-1] < 0.35, "the generator's points approach the ring")

for count in (1, 2, 3):
    check("30 windows" in lines_of("example_09_gradient_accumulation", count), "there is one exchange per window, and the weights are the same")
