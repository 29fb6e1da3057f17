#!/usr/bin/env python3
"""Checks the syntax of hasten's sources for aarch64 against LibTorch's headers. No LibTorch for aarch64 is needed.

    aarch64_sources.py CXX BUILD-FOLDER [PATTERN]        PATTERN: a regular expression for the files, relative to the project

The commands come from compile_commands.json, but use the cross compiler, and a header instead of the precompiled header. If the cross
compiler lacks a header, this machine's header is used; the parts of OpenSSL and Python that hasten uses do not differ.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DROPPED_OPTIONS = re.compile(r"-march=|-mprefer-vector-width|-fpch-preprocess|-Winvalid-pch|-O[0-3]$|-fsanitize|.*cmake_pch")
SOURCES = ("src/", "cli/")


def command(entry, compiler, here):
    arguments = shlex.split(entry["command"])
    arguments = arguments[next(i for i, argument in enumerate(arguments) if re.search(r"(c\+\+|g\+\+|clang\+\+)[-0-9]*$", argument)) + 1:]
    kept, skip = [], False
    for argument in arguments:
        if skip or argument in ("-o", "-include"):
            skip = not skip
        elif not DROPPED_OPTIONS.match(argument) and argument != "-c":
            kept.append(argument)
    native = "/usr/include/" + subprocess.run(["g++", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
    if any("cmake_pch" in argument for argument in arguments):  # every precompiled header contains only this header
        kept += ["-include", "torch/torch.h"]
    return [compiler, "-fsyntax-only", *kept, "-idirafter", str(here), "-idirafter", native, "-idirafter", "/usr/include"]


def main(compiler, build, pattern=""):
    entries, seen = [], set()
    for entry in json.loads((Path(build) / "compile_commands.json").read_text()):
        file = os.path.relpath(entry["file"], ROOT)
        unity = re.search(r"/(src|cli)/.*CMakeFiles/.*unity_\w+_cxx\.cxx$", entry["file"])
        is_source = unity or file.startswith(SOURCES)
        # Checks each file once. The kernels for other instruction sets do not apply to this processor.
        if is_source and "cmake_pch" not in entry["file"] and "-mprefer" not in entry["command"] and "-march" not in entry["command"] \
                and re.search(pattern, file) and file not in seen:
            seen.add(file)
            entries.append(entry)
    if not entries:
        sys.exit("no sources found in compile_commands.json")
    with tempfile.TemporaryDirectory() as here:
        # Python's pyconfig.h includes a header that is named after the processor.
        for folder in Path("/usr/include").glob("*-linux-gnu/python3*"):
            Path(here, "aarch64-linux-gnu").mkdir(exist_ok=True)
            Path(here, "aarch64-linux-gnu", folder.name).symlink_to(folder)

        def check(entry):
            done = subprocess.run(command(entry, compiler, here), cwd=entry["directory"], capture_output=True, text=True)
            print(f"{'ok' if done.returncode == 0 else 'ERROR':5} {os.path.relpath(entry['file'], ROOT)}", flush=True)
            return done.stderr if done.returncode else ""

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            errors = [error for error in pool.map(check, entries) if error]
    print(*errors, sep="\n")
    print(f"{len(entries)} files, {len(errors)} with errors")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
