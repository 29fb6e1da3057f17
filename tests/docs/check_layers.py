#!/usr/bin/env python3
"""A file of include/hasten and src includes its own room and the rooms above it, never one below.

    python3 tests/docs/check_layers.py

A room is a folder; accelerator.h and hasten.h, with their sources, are rooms of their own. The rooms of the core
library include no header of LibTorch either. Commands, examples, tests and benchmarks may include everything.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORDER = ("base options machine accelerate_file config commands rendezvous launch tokenizers process device formats data ops models optim prepare anatomy accelerator checkpoint track "
         "trainer hasten").split()
CORE = ("base", "options", "machine", "accelerate_file", "config", "commands", "rendezvous", "launch", "tokenizers")
LIBTORCH = ("torch", "ATen", "c10")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', flags=re.MULTILINE)


def room_of(path):
    """The room of a path below include/hasten or src: its first folder, or the name of a file that lies in none."""
    return path.split("/")[0].split(".")[0]


def problem_of(room, quote, included):
    """What is wrong with one include of a file in `room`, or nothing."""
    first = included.split("/")[0]
    if first in LIBTORCH:
        return "the core library has no LibTorch" if room in CORE else None
    if first != "hasten" and (quote == "<" or "/" not in included):
        return None  # another library, or a file of the same folder
    target = room_of(included.removeprefix("hasten/"))
    if target not in ORDER:
        return "a room that is not in the order"
    return f"{target} is below {room}" if ORDER.index(target) > ORDER.index(room) else None


def main():
    includes, problems = 0, []
    for base in ("include/hasten", "src"):
        for path in sorted(p for p in (ROOT / base).rglob("*") if p.suffix in (".h", ".cpp")):
            room = room_of(path.relative_to(ROOT / base).as_posix())
            if room not in ORDER:
                problems.append(f"{path.relative_to(ROOT)}: the room {room} is not in the order")
                continue
            for quote, included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                includes += 1
                problem = problem_of(room, quote, included)
                if problem:
                    problems.append(f"{path.relative_to(ROOT)}: includes {included}: {problem}")
    print("\n".join(problems + [f"{includes} includes checked, {len(problems)} problems"]))
    return 1 if problems or includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
