#!/usr/bin/env python3
"""Checks that linking hasten changes nothing: a program that links hasten without calling it behaves like a program without hasten.

    linking.py PROGRAM-WITH-HASTEN PROGRAM-WITHOUT LIBHASTEN.so LIBHASTEN_CORE.so

Both programs are state.cpp, which prints the state of its process and of LibTorch. The test sets every variable HASTEN_* that the sources name.
It also checks that the libraries import no function of NEVER_IMPORTED, for example functions that end the process or set handlers for its end.
tests/docs/check_effects.py finds other effects in the sources.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VALUES = {"HASTEN_DRY_RUN": "cuda:v100-16gb", "HASTEN_OBSERVE_OUTPUT": "text", "HASTEN_OBSERVE_STEPS": "1", "HASTEN_DRY_TPU_TOPOLOGY": "v5e:2x2"}
LOADED = "hasten is loaded\n"
EXIT_CODE = 3  # the exit code of state.cpp
NEVER_IMPORTED = {"exit", "quick_exit", "at_quick_exit", "on_exit", "unsetenv", "putenv", "clearenv", "setlocale",
                  "_ZSt13set_terminatePFvvE", "_ZSt14set_unexpectedPFvvE"}


def names_of_variables():
    """Returns the variables that the sources name. Options have more variables, which only commands read."""
    sources = (path for folder in ("src", "include", "cli") for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp"))
    return sorted({name for path in sources for name in re.findall(r'"(HASTEN_[A-Z0-9_]+)"', path.read_text(encoding="utf-8"))})


def state_of(program, environment):
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode != EXIT_CODE or done.stderr:
        sys.exit(f"FAILED  {program}: exit code {done.returncode}, expected {EXIT_CODE}, and on standard error: {done.stderr}")
    return done.stdout


def imports_of(library):
    out = subprocess.run(["nm", "--dynamic", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()}


def main():
    with_hasten, without, *libraries = sys.argv[1:]
    names = names_of_variables()
    if not VALUES.keys() <= set(names):
        sys.exit(f"FAILED  the sources do not name {sorted(VALUES.keys() - set(names))}")
    unset = {name: value for name, value in os.environ.items() if not name.startswith("HASTEN_")}
    for what, environment in (("no variable", unset), (f"{len(names)} variables HASTEN_*", unset | {name: VALUES.get(name, "1") for name in names})):
        state, expected = state_of(with_hasten, environment), state_of(without, environment)
        if not state.startswith(LOADED) or expected.startswith(LOADED):
            sys.exit("FAILED  only one of the programs loads hasten")
        differences = set(state.removeprefix(LOADED).splitlines()) ^ set(expected.splitlines())
        if state.removeprefix(LOADED) != expected:
            sys.exit("\n".join([f"FAILED  with {what} hasten changes:", *sorted(differences)]))
        print(f"ok      with {what}: {len(expected.splitlines())} lines of state are the same")
    for library in libraries:
        found = imports_of(library) & NEVER_IMPORTED
        if found:
            sys.exit(f"FAILED  {library} imports {sorted(found)}")
        print(f"ok      {Path(library).name} imports nothing that ends a process or is called at its end")


main()
