#!/usr/bin/env python3
"""Runs a port of a Python script, and compares its output with the recorded output of the original.

    compare_transcript.py TRANSCRIPT PROGRAM

The transcript has the commands after "$ ", each followed by its output; the first one is the original's. The words of
each line must be equal, and numbers with a fraction may differ by at most 0.02, because they depend on the CPU. The two
outputs in the transcript come from one machine and may differ by at most 0.002.
"""
import re
import subprocess
import sys
from pathlib import Path

NUMBER = r"\d+\.\d+"


def outputs(transcript):
    """Returns the output of each command of the transcript."""
    parts = re.split(r"^\$ .*\n", Path(transcript).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [part.strip().splitlines() for part in parts[1:]]


def differences(expected, got, limit):
    if [re.sub(NUMBER, "N", line) for line in expected] != [re.sub(NUMBER, "N", line) for line in got]:
        return ["the lines differ", *expected, "--", *got]
    pairs = zip(re.findall(NUMBER, "\n".join(expected)), re.findall(NUMBER, "\n".join(got)))
    return [f"got {b}, expected {a}" for a, b in pairs if abs(float(a) - float(b)) > limit + 1e-9]


def main():
    transcript, program = sys.argv[1:3]
    original, port = outputs(transcript)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="")
    problems = [f"exit code {done.returncode}"] if done.returncode else []
    problems += [f"{transcript}: {text}" for text in differences(original, port, 0.002)]
    problems += differences(original, done.stdout.strip().splitlines(), 0.02)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
