#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md for comments in C++ files that a program can check: a line has at most 100 columns, no comment begins with
"Of", "Where", "Whose" or "What", and each header of the library and the commands begins with its path and its purpose.

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


def problems_of_header(path, lines):
    """Yields what is wrong with the first lines of a header. `path` is relative to the project."""
    folder, _, rest = path.partition("/")
    if folder not in ("cli", "include", "src"):
        return
    name = path if folder == "cli" else rest
    if lines[0] not in (f"// File: {name}", f"// File: {name} (internal)"):
        yield 1, f"got {lines[0]!r}, expected '// File: {name}'"
    elif not lines[1].startswith("// "):
        yield 2, "expected a comment that says what the header is for"


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
    assert list(problems_of_header("src/base/a.h", ["#pragma once", ""]))
    assert list(problems_of_header("src/base/a.h", ["// File: base/a.h (internal)", "#pragma once"]))
    assert not list(problems_of_header("src/base/a.h", ["// File: base/a.h (internal)", "// Returns x."]))


def main():
    check_rules()
    problems, read = [], 0
    for path in files():
        read += 1
        name = path.relative_to(ROOT).as_posix()
        lines = path.read_text(encoding="utf-8").split("\n")
        found = list(problems_in(lines))
        if path.suffix == ".h" and "gloo_types" not in path.parts:  # the declarations of Gloo
            found += problems_of_header(name, lines)
        problems += [f"{name}:{number}: {problem}" for number, problem in found]
    if problems or read < 500:
        sys.exit("\n".join(problems) + f"\n{len(problems)} problems in {read} files")
    print(f"{read} files keep the rules")


if __name__ == "__main__":
    main()
