#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md for comments in C++ files that a program can check: a line has at most 100 columns, and no comment begins with
"Of", "Where", "Whose" or "What".

    python3 tests/docs/check_style.py

Lines of an example or a table may be wider. They are indented by three spaces or more.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "cli", "examples", "include", "src", "tests")
MAX_COLUMNS = 100
COMMENT = re.compile(r"(?:^|\s)//(?P<text>.*)$")
INVERTED = re.compile(r" (Of|Where|Whose|What)\b")


def problems_in(lines):
    """Yields the number of a line and what is wrong with it."""
    in_comment = False
    for number, line in enumerate(lines, 1):
        comment = COMMENT.search(line)
        is_comment = line.lstrip().startswith("//")
        if comment and is_comment:
            text = comment["text"]
            if len(line) > MAX_COLUMNS and not text.startswith("   "):
                yield number, f"{len(line)} columns, expected at most {MAX_COLUMNS}"
            if not in_comment and (word := INVERTED.match(text)):
                yield number, f"a comment that begins with {word[1]!r}, expected a full sentence"
        in_comment = is_comment


def files():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu") and path.is_file():
                yield path


def check_rules():
    """Fails if the rules accept a bad comment or refuse a good one."""
    assert list(problems_in(["int x;", "// What is x."]))
    assert list(problems_in(["// " + "a" * 99]))
    assert not list(problems_in(["// Returns x."]))


def main():
    check_rules()
    problems, read = [], 0
    for path in files():
        read += 1
        name = path.relative_to(ROOT).as_posix()
        problems += [f"{name}:{number}: {problem}" for number, problem in problems_in(path.read_text(encoding="utf-8").split("\n"))]
    if problems or read < 500:
        sys.exit("\n".join(problems) + f"\n{len(problems)} problems in {read} files")
    print(f"{read} files keep the rules")


if __name__ == "__main__":
    main()
