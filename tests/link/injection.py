#!/usr/bin/env python3
"""Checks that hasten anatomy and hasten estimate observe a program however it is started and linked, and only programs that they start.

    injection.py HASTEN PROGRAM LOADER PLUGIN.so        the last two are load.cpp and plugin.cpp
"""
import os
import subprocess
import sys
import tempfile

HASTEN, PROGRAM, LOADER, PLUGIN = map(os.path.abspath, sys.argv[1:5])
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HASTEN_") and name != "LD_PRELOAD"}
failures = []


def check(name, arguments, expected=(), unexpected=(), code=0, **variables):
    run = subprocess.run(arguments, env=ENVIRONMENT | variables, capture_output=True, text=True, timeout=300)
    output = run.stdout + run.stderr
    wrong = [argument for argument in expected if argument not in output] + [argument for argument in unexpected if argument in output]
    print("FAILED" if wrong or run.returncode != code else "ok", name, flush=True)
    if wrong or run.returncode != code:
        failures.append(name)
        print(f"  code {run.returncode}, missing or unexpected: {wrong}\n{output[-2000:]}")
    return run.stdout


def main():
    check("a program", [HASTEN, "anatomy", "--steps", "1", PROGRAM], ["Measured on cpu: 1 step"])
    check("through a shell and env", [HASTEN, "estimate", "--steps", "1", "--", "sh", "-c", f"env '{PROGRAM}'"], ["Predicted on cpu: 1 step"])
    check("ranks of hasten launch", [HASTEN, "estimate", "--steps", "1", "--", HASTEN, "launch", "-n", "1", PROGRAM], ["Predicted on cpu: 1 step"])
    check("hasten in a library that is loaded later", [HASTEN, "estimate", "--steps", "1", "--", LOADER, PLUGIN],
          ["dry: 1", "Predicted on cpu: 1 step"], ["steps: 2"])
    check("a program without hasten", [HASTEN, "anatomy", "bash", "-c", "echo a shell; exit 7"],
          ["a shell", "hasten: there is no report: the program does not use hasten"], ["Measured"], code=7)
    check("a program that starts one with hasten", [HASTEN, "anatomy", "--steps", "1", "bash", "-c", f"'{PROGRAM}'; echo a shell"],
          ["a shell", "Measured on cpu: 1 step"], ["there is no report"])
    check("a dry run that cannot begin", [HASTEN, "estimate", "--", "env", "HASTEN_DRY_RUN=cuda:none", PROGRAM],
          ["error[config.unknown-device]"], code=2)
    for steps in ("two", "0", "1x", "99999999999999999999"):
        check(f"the number of steps {steps}", [HASTEN, "anatomy", "env", f"HASTEN_OBSERVE_STEPS={steps}", PROGRAM],
              ["error[config.bad-value]: HASTEN_OBSERVE_STEPS", f"'{steps}'"], ["Measured"], code=2)
    requests = {"HASTEN_DRY_RUN": "cpu", "HASTEN_OBSERVE_OUTPUT": "text", "HASTEN_OBSERVE_STEPS": "1"}
    check("not by the variables alone", [LOADER, PLUGIN], ["dry: 0", "steps: 2"], ["Predicted", "Measured"], **requests)

    with tempfile.NamedTemporaryFile(suffix=".so") as other:  # the dynamic linker prints that it cannot preload this file
        preloaded = check("other libraries stay preloaded", [HASTEN, "anatomy", "sh", "-c", "echo $LD_PRELOAD"], LD_PRELOAD=other.name).strip()
        if not preloaded.endswith("libhasten_preload.so:" + other.name):
            failures.append(preloaded)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
