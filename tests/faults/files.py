#!/usr/bin/env python3
"""Starts `hasten launch` with a low soft limit on open files. The launcher must raise its own limit, and its ranks must keep the original one.

    files.py HASTEN
"""
import os
import resource
import subprocess
import sys
import tempfile

SOFT = 256


def limits_of(text):
    """Returns the soft limits on open files that the ranks printed: their own, and the launcher's."""
    words = text.split()
    return words[0::2], words[1::2]


def main():
    hasten = os.path.abspath(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard <= SOFT:
        print(f"skipped: the hard limit is {hard} files")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program")
        with open(program, "w") as file:
            file.write("#!/bin/sh\necho $(ulimit -Sn) $(awk '/Max open files/ {print $4}' /proc/$PPID/limits)\n")
        os.chmod(program, 0o755)
        done = subprocess.run([hasten, "launch", "-n", "2", program], capture_output=True, text=True, timeout=60,
                              env=os.environ | {"HASTEN_HOME": folder, "HF_HOME": folder},
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, hard)))
    print(done.stdout + done.stderr, end="")
    ranks, launcher = limits_of("\n".join(line.split("] ")[-1] for line in done.stdout.splitlines()))
    if done.returncode != 0 or launcher != [str(hard)] * 2:
        sys.exit(f"FAILED  the launcher raises its limit to {hard} files")
    if ranks != [str(SOFT)] * 2:
        sys.exit(f"FAILED  its ranks keep the limit of {SOFT} files")
    print("ok      the launcher raises its own limit, and its ranks keep the original one")


main()
