"""Waits for conditions and finds processes by a mark in their command lines."""
import pathlib
import time


def until(condition, seconds):
    """Returns whether the condition becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def marked(mark):
    """Returns the processes whose command line contains the mark."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(folder.name))
            except OSError:
                pass
    return found
