#!/usr/bin/env python3
"""Checks all Python files of the project with pyflakes: names that do not exist, unused imports and variables.

    python3 tests/docs/check_python.py PYFLAKES
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "examples", "src", "tests", "tools")


def main():
    files = sorted(str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    run = subprocess.run([sys.argv[1], *files], capture_output=True, text=True)
    print(run.stdout + run.stderr, end="")
    print(f"{len(files)} files checked")
    return 1 if run.returncode or not files else 0


if __name__ == "__main__":
    sys.exit(main())
