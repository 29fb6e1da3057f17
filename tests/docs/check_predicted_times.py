#!/usr/bin/env python3
"""Compares the output of gpu_time with benchmarks/results/predicted_times.md: the predicted time of each pass that NeuSight measured on a GPU,
and the mean errors.

    python3 tests/docs/check_predicted_times.py GPU_TIME

HASTEN_ACCEPT=1 writes the file instead. A number may differ by one unit of its last printed digit, because a machine may round differently.
gpu_time fails if the errors are larger than docs/gpu.md says; then the file is neither compared nor written.
"""
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "benchmarks/results/predicted_times.md"
NUMBER = r"[-+]?\d+(?:\.\d+)?"


def are_close(got, expected):
    """Tells whether two lines have the same text, and numbers that differ by at most one unit of the last digit."""
    if re.split(NUMBER, got) != re.split(NUMBER, expected):
        return False
    pairs = zip(map(Decimal, re.findall(NUMBER, got)), map(Decimal, re.findall(NUMBER, expected)))
    return all(abs(a - b) <= Decimal(1).scaleb(b.as_tuple().exponent) for a, b in pairs)


def check_are_close():
    assert are_close("| t4 | 101.7 | +0.0 % |", "| t4 | 101.8 | -0.1 % |")
    assert not are_close("| t4 | 101.7 |", "| t4 | 101.9 |")
    assert not are_close("| t4 | 101.7 |", "| l4 | 101.7 |")
    assert not are_close("| t4 | 101.7 |", "| t4 | 101.7 | |")


def main():
    check_are_close()
    done = subprocess.run([sys.argv[1]], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"gpu_time failed with status {done.returncode}:\n{done.stdout[-600:]}{done.stderr}")
    got, name = done.stdout, TABLE.relative_to(ROOT)
    if os.environ.get("HASTEN_ACCEPT"):
        TABLE.write_text(got)
        return print(f"{name}: written")
    hint = "Hint: HASTEN_ACCEPT=1 ctest -R docs/predicted_times writes it; read the difference before you commit it"
    if not TABLE.exists():
        sys.exit(f"{name}: there is no such file, expected the output of gpu_time. {hint}")
    lines, expected = got.splitlines(), TABLE.read_text().splitlines()
    if len(lines) != len(expected):
        sys.exit(f"{name}: got {len(lines)} lines from gpu_time, expected {len(expected)}. {hint}")
    different = [f"  {a}\n    expected {b}" for a, b in zip(lines, expected) if not are_close(a, b)]
    if different:
        sys.exit("\n".join([f"{name}: {len(different)} lines of gpu_time differ:", *different[:20], hint]))
    print(f"{len(lines)} lines checked")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main()
