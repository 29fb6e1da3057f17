"""Runs a program in a pseudo terminal."""
import os
import pty
import re
import select
import time


class PseudoTerminal:
    """Runs `exec_program`, which ends in an exec call, in a pseudo terminal, and collects the output."""

    def __init__(self, exec_program):
        self.output, self.read_to = "", 0
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            exec_program()

    def read(self, seconds):
        """Waits for output. Returns False if there is no output in time, or if the terminal is closed."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self.terminal, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            return False
        self.output += piece.decode(errors="replace")
        return bool(piece)

    def find(self, pattern, seconds):
        """Reads until the output after the previous match matches the pattern. Returns None if it does not match in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.output[self.read_to:])
            if found:
                self.read_to += found.end()
                return found
            self.read(0.5)
        return None
