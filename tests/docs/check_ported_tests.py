#!/usr/bin/env python3
"""Checks docs/reference/ported_tests.md.

    python3 tests/docs/check_ported_tests.py

Each test of hasten that the page names must exist. A test in tests/ported names its originals in comments. The names
on the page must be in the file, and the names in the file must be on the page. A row without a test must give a reason.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, TESTS = ROOT / "docs/reference/ported_tests.md", ROOT / "tests"
TEST = r"`((?:unit|oracle|ported|ranks|cli)/[\w/]+)`"


def rows():
    """Yields the names in the first cell, the tests in the second one, and the second cell."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("| ") and cells[1] not in ("Original", "---"):
            yield re.findall(r"`(\w+)`", cells[1]), re.findall(TEST, cells[2]), cells[2]


def file_of(test):
    folder = "cli/training" if test.startswith("cli/") else None
    candidates = [f"{test}_test.cpp", f"{test}.py"] + ([f"{folder}/{Path(test).name}.sh"] if folder else [])
    return next((TESTS / name for name in candidates if (TESTS / name).is_file()), None)


def main():
    problems, ported = [], {}
    for originals, tests, text in rows():
        if not tests and not text.startswith("not ported: "):
            problems.append(f"{originals}: neither a test nor a reason")
        for test in tests:
            if file_of(test) is None:
                problems.append(f"{originals}: there is no test {test}")
        if text.startswith("`ported/") and tests:
            ported.setdefault(tests[0], set()).update(originals)
    for path in sorted((TESTS / "ported").glob("*_test.cpp")):
        test = "ported/" + path.name.removesuffix("_test.cpp")
        comments = " ".join(line for line in path.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("//"))
        named = {name for name in re.findall(r"\b(test_\w+)(?!\w|\.py|/)", comments) if name != "test_utils"}
        for name in sorted(ported.get(test, set()) - set(re.findall(r"\w+", comments))):
            problems.append(f"{test}: no comment names {name}")
        for name in sorted(named - set().union(*ported.values())):
            problems.append(f"{PAGE.name}: no row for {name} of {test}")
    for problem in problems:
        print(problem)
    print(f"{sum(len(names) for names in ported.values())} ported tests checked, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
