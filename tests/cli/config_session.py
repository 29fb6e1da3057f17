#!/usr/bin/env python3
"""Tests `hasten config` in a terminal: questions, wrong answers, an existing file, and a user who interrupts it.

    config_session.py HASTEN
"""
import os
import pathlib
import re
import signal
import sys
import tempfile

from pseudo_terminal import PseudoTerminal

HASTEN = os.path.abspath(sys.argv[1])
FOLDER = pathlib.Path(tempfile.mkdtemp())
failures = 0


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


class Session(PseudoTerminal):
    """A `hasten config` in a pseudo terminal."""

    def __init__(self, *arguments):
        self.status = None

        def exec_hasten():
            os.environ.update(HOME=str(FOLDER))
            for name in [n for n in os.environ if n.startswith("HASTEN_")] + ["XDG_CACHE_HOME", "HF_HOME"]:
                os.environ.pop(name, None)
            os.execv(HASTEN, [HASTEN, "config", *arguments])

        super().__init__(exec_hasten)

    def expect(self, pattern):
        found = self.find(pattern, 20)
        if found is None:
            check(False, f"'{pattern}' is printed; output so far: {self.output!r}")
            sys.exit(1)
        return found

    def answer(self, question, text):
        self.expect(question)
        os.write(self.terminal, text.encode())

    def end(self):
        while self.read(5):
            pass
        self.status = os.waitpid(self.process, 0)[1]
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(self.status)


def first_questions(session, processes="2\n"):
    session.answer(r"machines\? \[1\] ", "\n")
    session.answer(r"CPU only\? \(yes, no\) \[(yes|no)\] ", "y\n")
    session.answer(r"How many processes\? \[1\] ", processes)


def remaining_questions(session):
    session.answer(r"own cores\? .*\[no\] ", "yes\n")
    session.answer(r"Mixed precision\? .*\[no\] ", "bf16\n")
    session.answer(r"Check collectives .*\[no\] ", "\n")
    session.answer(r"restart after .*\[0\] ", "\n")
    session.answer(r"Which folder .*\[none\] ", "\n")


def check_answers():
    file = FOLDER / ".cache/hasten/default_config.yaml"
    session = Session()
    first_questions(session, "many\n")
    session.expect(r"got 'many', expected a whole number")
    session.answer(r"How many processes\? \[1\] ", "2\n")
    remaining_questions(session)
    session.expect(r"mixed_precision: bf16")
    session.expect(re.escape(f"Written to {file}"))
    check(session.end() == 0, "the exit code is 0")
    text = file.read_text()
    expected = ["distributed_type: MULTI_CPU", "num_processes: 2", "enable_cpu_affinity: true", "mixed_precision: bf16"]
    check(all(line in text.splitlines() for line in expected), "the file has the answers")


def check_existing_file():
    file = FOLDER / "there.yaml"
    file.write_text("num_processes: 7\n")
    session = Session("--config_file", str(file))
    first_questions(session)
    remaining_questions(session)
    session.answer(r"exists\. Replace it.*\[yes\] ", "no\n")
    check(session.end() == 0 and file.read_text() == "num_processes: 7\n", "the answer no keeps the file")
    session = Session("--config_file", str(file))
    first_questions(session)
    remaining_questions(session)
    session.answer(r"exists\. Replace it.*\[yes\] ", "\n")
    check(session.end() == 0 and "num_processes: 2" in file.read_text(), "the answer yes replaces the file")
    check((FOLDER / "there.yaml.bak").read_text() == "num_processes: 7\n", "the old file is kept as .bak")


def check_interruption(how, key):
    file = FOLDER / "left.yaml"
    session = Session("--config_file", str(file))
    first_questions(session, key)
    code = session.end()
    check(code == (2 if key == "\x04" else -signal.SIGINT), f"{how} ends the program: {code}")
    check(list(FOLDER.glob("*left*")) == [], f"{how} leaves no file")
    if key == "\x04":
        check("hasten config default" in session.output, f"{how}: the message names the command without questions")


check_answers()
check_existing_file()
check_interruption("Ctrl-D", "\x04")
check_interruption("Ctrl-C", "\x03")
print(f"{failures} failures")
sys.exit(1 if failures else 0)
