#!/usr/bin/env python3
"""Checks the tests that pages name.

    python3 tests/docs/check_promises.py CTEST BUILD

Each row of the tables of tests in docs/durability.md and docs/security.md must name a test, or say "the same tests" after a row that does.
Such a table has the column "Test" at its end. All tests that the pages name must exist in the build or be scripts that several tests run.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROMISES = ("docs/durability.md", "docs/security.md")
TEST = r"`((?:unit|oracle|ported|ranks|cli|faults|fuzz|install|portability)/[\w/]+)`"


def rows_of_promises(page):
    """Yields the promise and the cell of its tests."""
    is_promise = False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        is_header = line.startswith("|") and cells[-1] == "Test"
        is_promise = line.startswith("|") and (is_promise or is_header)
        if is_promise and not is_header and cells[0] != "---":
            yield cells[0], cells[-1]


def main():
    ctest, build = sys.argv[1:]
    listed = subprocess.run([ctest, "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    tests = set(re.findall(r"^ *Test +#\d+: (\S+)", listed, flags=re.MULTILINE))
    problems, promises, has_test = [], 0, False
    for page in PROMISES:
        rows = list(rows_of_promises(page))
        promises += len(rows)
        if len(rows) < 15:
            problems.append(f"{page}: {len(rows)} promises, expected at least 15")
        for promise, cell in rows:
            has_test = bool(re.search(TEST, cell)) or (has_test and "the same tests" in cell)
            if not has_test:
                problems.append(f"{page}: no test for the promise: {promise[:80]}")
    for page in PAGES:
        for test in re.findall(TEST, page.read_text(encoding="utf-8")):
            if test not in tests and not (ROOT / "tests" / f"{test}.py").is_file():
                problems.append(f"{page.relative_to(ROOT)}: there is no test {test}")
    print("\n".join(problems) or f"{promises} promises and {len(PAGES)} pages name tests that exist")
    sys.exit(bool(problems))


main()
