#!/usr/bin/env python3
"""Checks that every error code in the sources has a heading in docs/errors.md, and every heading belongs to a code.

    python3 tests/docs/check_errors.py

A code is a string literal "prefix.name". The script collects the prefixes from literals that are the first argument of
an error's constructor. Every literal with such a prefix counts, so that codes that a helper passes on are found too.
Comments are not read.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = "Usage|Config|Data|Io|Memory|Diverged"
FILE_NAMES = {"config.json", "data.pkl", "metrics.csv", "metrics.jsonl", "plan.yaml"}  # literals that only look like codes


def source_texts():
    for folder in ("src", "cli", "include"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path.relative_to(ROOT), re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            elif path.suffix == ".py":  # a program that a library contains
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def codes_in(texts):
    """Returns a map from each code to the first file that contains it."""
    prefixes = set()
    for _, text in texts:
        prefixes.update(re.findall(rf'\b(?:{KINDS})Error\s*[({{]\s*"([a-z]+)\.', text))
    codes = {}
    for path, text in texts:
        for code in re.findall(r'"([a-z]+\.[a-z0-9-]+)"', text):
            if code.split(".")[0] in prefixes and code not in FILE_NAMES:
                codes.setdefault(code, path)
    return codes


def main():
    codes = codes_in(list(source_texts()))
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### `([^`]+)`$", page, flags=re.MULTILINE)
    problems = [f"{code} ({path}) has no heading" for code, path in sorted(codes.items()) if code not in headings]
    problems += [f"{code} has a heading, but no source file has it" for code in headings if code not in codes]
    problems += [f"{code} has two headings" for code in sorted(set(headings)) if headings.count(code) > 1]
    for problem in problems:
        print(f"docs/errors.md: {problem}")
    print(f"{len(codes)} codes checked, {len(problems)} problems")
    return 1 if problems or not codes else 0


if __name__ == "__main__":
    sys.exit(main())
