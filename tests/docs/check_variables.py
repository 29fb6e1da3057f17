#!/usr/bin/env python3
"""Checks that internal_variables() lists every environment variable HASTEN_* that the code reads (src/options/environment_variables.cpp), except the
variables of options. hasten refuses a variable that looks like a misspelled option, so users could not set a variable that is missing from the list.

    python3 tests/docs/check_variables.py
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "src/options/environment_variables.cpp"
# Variables of options that the code also reads by name.
OPTIONS = {"HASTEN_CONFIG_FILE"}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", flags=re.DOTALL)
LITERAL = re.compile(r'"(HASTEN_[A-Z0-9_]+)[="]')


def literals_of(path):
    return set(LITERAL.findall(COMMENT.sub("", path.read_text(encoding="utf-8"))))


def files(folders, endings):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings and path != LIST]


def main():
    listed = literals_of(LIST)
    read = set().union(*map(literals_of, files(("include", "src", "cli"), (".h", ".cpp"))))
    # The scripts of the repository read some variables that C++ code does not.
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "dev", *files(("tools", "tests", "cmake"), (".sh", ".py", ".cmake", ".cpp", ".txt"))])
    problems = [f"{name}: read by the code, and not in internal_variables()" for name in sorted(read - listed - OPTIONS)]
    problems += [f"{name}: in internal_variables(), and read by nothing" for name in sorted(listed - read) if name not in scripts]
    if problems or len(listed) < 10 or not read:
        sys.exit("\n".join(problems) or "the list or the code was not found")
    print(f"{len(listed)} variables are listed, {len(read & listed)} of them in the code")


if __name__ == "__main__":
    main()
