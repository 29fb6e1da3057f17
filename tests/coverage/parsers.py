#!/usr/bin/env python3
"""Runs the tests of the parsers in a build with HASTEN_COVERAGE, and reports the share of the parsers' lines that ran.

usage: parsers.py BUILD [--least PERCENT] [--least-each PERCENT] [--lines]

The test fails if less than 95 % of all lines ran, or less than 85 % of the lines of one parser. Five lines of a parser may always be
missing, because a short file may handle an error that occurs only when memory runs out. --lines prints the numbers of the
lines that did not run. A parser that is not built because its libraries are missing does not count.
"""
import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MAY_BE_MISSING = 5  # lines per parser


def counts_of(data_file):
    """Yields (path, {line: count}) for each source file of a .gcda file."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", data_file], capture_output=True, check=True)
    text = gzip.decompress(done.stdout) if done.stdout[:2] == b"\x1f\x8b" else done.stdout
    for document in text.splitlines():
        for file in json.loads(document)["files"] if document.strip() else ():
            counts = {}
            for line in file["lines"]:
                counts[line["line_number"]] = counts.get(line["line_number"], 0) + line["count"]
            yield file["file"], counts


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--least", type=float, default=95)
    arguments.add_argument("--least-each", type=float, default=85)
    arguments.add_argument("--lines", action="store_true")
    given = arguments.parse_args()
    parsers = [line for line in (SOURCE / "tests/coverage/parsers.txt").read_text().split("\n") if line and line[0] != "#"]
    for name in parsers:
        if not (SOURCE / "src" / name).is_file():
            sys.exit(f"tests/coverage/parsers.txt: got {name}, which does not exist, expected a file of src")
    for old in given.build.rglob("*.gcda"):
        old.unlink()
    # Each file's tests run in a process of their own, because some of them fork.
    tests = ["ctest", "--test-dir", given.build, "-L", "unit|oracle", "-LE", "long", "-j", str(os.cpu_count()), "--output-on-failure"]
    if subprocess.run(tests).returncode != 0:
        sys.exit("unit or oracle tests failed, expected tests that pass")
    all_counts = {name: {} for name in parsers}
    for data_file in given.build.rglob("*.gcda"):
        for path, counts in counts_of(data_file):
            name = path.split("/src/", 1)[-1]
            for line, count in counts.items() if name in all_counts else ():
                all_counts[name][line] = all_counts[name].get(line, 0) + count
    lines = ran = 0
    below = []
    for name, counts in all_counts.items():
        missed = sorted(line for line, count in counts.items() if count == 0)
        lines, ran = lines + len(counts), ran + len(counts) - len(missed)
        if not counts:
            print(f"not built     {name}")
            continue
        share = 100 * (1 - len(missed) / len(counts))
        if share < given.least_each and len(missed) > MAY_BE_MISSING:
            below.append(name)
        print(f"{share:6.1f} % of {len(counts):4}  {name}" + (f"  not: {', '.join(map(str, missed))}" if given.lines and missed else ""))
    share = 100 * ran / lines if lines else 0
    print(f"{share:6.1f} % of {lines} lines of {len(parsers)} parsers")
    if share < given.least:
        sys.exit(f"expected at least {given.least} %")
    if below:
        sys.exit(f"{', '.join(below)}: expected at least {given.least_each} % of each parser")


if __name__ == "__main__":
    main()
