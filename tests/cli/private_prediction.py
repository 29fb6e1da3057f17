#!/usr/bin/env python3
"""Checks that only this user can read the file that the first of the two runs of `hasten estimate` leaves for the second.

    private_prediction.py HASTEN
"""
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """#!/bin/sh
if [ -z "$HASTEN_OBSERVE_CPU_PREDICTION" ]; then
  stat -c '%a' "$(dirname "$HASTEN_OBSERVE_OUTPUT")" >"$HASTEN_OBSERVE_OUTPUT"  # the folder's mode
  echo "$HASTEN_OBSERVE_OUTPUT" >>"$HASTEN_OBSERVE_OUTPUT"
else
  cat "$HASTEN_OBSERVE_CPU_PREDICTION"
fi
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "program")
        program.write_text(PROGRAM)
        program.chmod(0o755)
        temporary = pathlib.Path(folder, "temporary")
        temporary.mkdir()
        environment = os.environ | {"TMPDIR": str(temporary), "HASTEN_DRY_TPU_COMPILER": "/nowhere", "HASTEN_HOME": folder}
        environment.pop("HASTEN_OBSERVE_CPU_PREDICTION", None)
        done = subprocess.run([os.path.abspath(sys.argv[1]), "estimate", "--tpu", "v5e:2x2", "--", str(program)], env=environment,
                              capture_output=True, text=True, timeout=60)
        lines = done.stdout.split()
        print(done.stdout + done.stderr)
        if done.returncode != 0 or len(lines) != 2:
            sys.exit("FAILED  the second run reads the first run's file")
        if lines[0] != "700":
            sys.exit("FAILED  no other user can read the folder")
        if os.listdir(temporary):
            sys.exit(f"FAILED  nothing is left behind: {os.listdir(temporary)}")
    print("ok      the first run's file is in a private folder, and nothing is left behind")


main()
