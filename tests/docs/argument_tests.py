#!/usr/bin/env python3
"""Writes docs/reference/argument_tests.md, which lists the tests that use each training argument.

    python3 tests/docs/argument_tests.py            # writes the table
    python3 tests/docs/argument_tests.py --check    # fails if it is out of date, or an argument has no test

The arguments are those of docs/reference/training_arguments.md from "Actions and output" on. A test uses an argument
if it sets it: as a field (.name =, args.name), as a flag (--name), as a key of a file or of a recorded run of the
Hugging Face Trainer ("name":), or by its word in a script that passes flags. tests/unit/options lists every argument
with its default. It counts only for arguments that are refused or ignored, because it checks that they are.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS, REFERENCE = ROOT / "tests", ROOT / "docs/reference/training_arguments.md"
TABLE = ROOT / "docs/reference/argument_tests.md"
MAX_SHOWN_TESTS = 4


def arguments():
    """Yields the name of each argument, and whether hasten refuses or ignores it."""
    begins = is_known_only = False
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        begins = begins or line == "## Actions and output"
        is_known_only = is_known_only or line.startswith("## Known")
        cells = [cell.strip() for cell in line.split("|")]
        if begins and line.startswith("| `") and re.fullmatch(r"`\w+`", cells[1]):
            yield cells[1].strip("`"), is_known_only


def name_of_test(path):
    """Returns the ctest name of a test file, or None."""
    name = path.relative_to(TESTS).as_posix()
    if name.startswith("cli/cases/") or name.startswith("cli/training/"):
        return "cli/" + path.stem if path.suffix == ".sh" else None
    if name.endswith("_test.cpp"):
        return name.removesuffix("_test.cpp")
    if path.suffix in (".py", ".sh") and not name.startswith(("docs/", "oracle/generate", "header_examples/")):
        return name.removesuffix(path.suffix)
    return {"ranks/trainer_ranks.cpp": "ranks/trainer", "faults/checkpoint_crashes.cpp": "faults/checkpoints"}.get(name)


def sources():
    """Yields the name of each test and its text."""
    for path in sorted(TESTS.rglob("*")):
        name = name_of_test(path) if path.is_file() else None
        if name:
            yield name, path.read_text(encoding="utf-8", errors="replace")


def recorded_arguments():
    """Yields each argument of a recorded run of the Hugging Face Trainer with the name of the run."""
    for path in sorted((TESTS / "oracle/data").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        for name in run.get("arguments", {}) if isinstance(run, dict) else {}:
            yield name, path.stem


def uses(text, name):
    return re.search(rf"(\.|--|->){name}\b|\"{name}\"|^\s*{name}:|\b{name}=", text, flags=re.MULTILINE) is not None


def tests_of(name, texts, runs, is_refused):
    found = [test for test, text in texts if uses(text, name) and (is_refused or not test.startswith("unit/options"))]
    # A test of the Trainer or of a rank shows more than a test that only passes the argument on, so it comes first.
    order = ("unit/trainer", "unit/track", "unit/data", "unit/checkpoint", "ranks", "oracle", "cli", "faults", "unit")
    found.sort(key=lambda test: (next((i for i, start in enumerate(order) if test.startswith(start)), len(order)), test))
    compared = runs.get(name, [])
    shown = [f"`{test}`" for test in found[:MAX_SHOWN_TESTS]] + (["and others"] if len(found) > MAX_SHOWN_TESTS else [])
    if compared:
        shown.append(f"`oracle/trainer` ({compared[0]}{' and others' if len(compared) > 1 else ''})")
    return shown


def table():
    texts, runs, rows, missing = list(sources()), {}, [], []
    for name, run in recorded_arguments():
        runs.setdefault(name, []).append(run)
    for name, is_refused in arguments():
        shown = tests_of(name, texts, runs, is_refused)
        if not shown:
            missing.append(name)
        rows.append(f"| `{name}` | {', '.join(shown)} |")
    text = ("# The tests of the training arguments\n\n"
            "<!-- Written by `python3 tests/docs/argument_tests.py`; a test fails if it is out of date or an argument has no test. -->\n\n"
            "Each line names tests that set the argument; `ctest -R NAME` runs one. \"oracle/trainer (RUN)\" is a recorded run of the Hugging Face\n"
            "Trainer with the argument, which the test repeats step by step. An argument that hasten refuses or ignores\n"
            "has a test of that.\n\n"
            "| Argument | Tests |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return text, missing


def unmapped():
    """Returns the arguments that are missing in the table of docs/trainer.md, which omits hasten's own arguments and names groups by a prefix."""
    page = (ROOT / "docs/trainer.md").read_text(encoding="utf-8")
    mapped = page[page.index("## The arguments of the Hugging Face Trainer"):]
    defaults = (TESTS / "unit/options/training_arguments_test.cpp").read_text(encoding="utf-8")
    listed = defaults[defaults.index("trainer_defaults"):]
    names = re.findall(r'\{"(\w+)", "', listed[:listed.index("};")])
    return [name for name in names if f"`{name}`" not in mapped and not name.startswith(("hub_", "trackio_"))]


def main():
    text, missing = table()
    for name in unmapped():
        print(f"{name}: the table of docs/trainer.md does not name it")
    for name in missing:
        print(f"{name}: no test sets it")
    if "--check" not in sys.argv:
        TABLE.write_text(text, encoding="utf-8")
    elif not TABLE.exists() or TABLE.read_text(encoding="utf-8") != text:
        print(f"{TABLE.relative_to(ROOT)} is out of date: run python3 tests/docs/argument_tests.py")
        return 1
    return 1 if missing or unmapped() else 0


if __name__ == "__main__":
    sys.exit(main())
