#!/usr/bin/env python3
"""Tests `hasten train --dashboard` in a terminal: its output, its keys, and that it restores the terminal however the run ends.

    dashboard.py HASTEN TEST_DATA MODULE
"""
import fcntl
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from pseudo_terminal import PseudoTerminal

HASTEN, DATA, MODULE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
FOLDER = pathlib.Path(tempfile.mkdtemp())
MODEL = DATA / "oracle/data/models/sequence_single_label"
ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
failures = 0


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


def train_command(*more):
    return ["train", "--dashboard", "--use_cpu", "--model", str(MODEL), "--data", "rows.safetensors", "--output_dir", "out", "--overwrite_output_dir",
            "--per_device_train_batch_size", "4", "--max_steps", "1000000", "--logging_steps", "5", "--save_steps", "900000",
            "--eval_data", "rows.safetensors", *more]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HASTEN_", "LC_")) and name != "LANG"}
    return kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "HOME": str(FOLDER)} | more


def write_rows():
    subprocess.run([sys.executable, pathlib.Path(__file__).with_name("write_rows.py")], cwd=FOLDER, check=True)


class Session(PseudoTerminal):
    """Runs hasten in a pseudo terminal of 24 rows and 80 columns."""

    def __init__(self, arguments, **variables):
        shutil.rmtree(FOLDER / "out", ignore_errors=True)

        def exec_hasten():
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.chdir(FOLDER)
            time.sleep(0.2)  # until the size is set
            os.execve(HASTEN, [HASTEN, *arguments], environment(**variables))

        super().__init__(exec_hasten)
        self.resize(24, 80)
        self.modes = termios.tcgetattr(self.terminal)

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, pattern, seconds=60):
        found = self.find(pattern, seconds)
        if found is None:
            check(False, f"'{pattern}' is shown; the last output: {self.output[-2000:]!r}")
        return found

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def end(self):
        """Reads to the end. Returns the exit code, and whether the terminal is in its original state."""
        end, status, modes = time.monotonic() + 60, None, None
        while time.monotonic() < end and status is None:
            self.read(0.1)
            try:
                modes = termios.tcgetattr(self.terminal)
            except termios.error:
                pass
            number, code = os.waitpid(self.process, os.WNOHANG)
            status = code if number == self.process else None
        while self.read(0.3):
            pass
        if status is None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            return None, False
        last_enter, last_leave = self.output.rfind(ENTER), self.output.rfind(LEAVE)
        restored = last_leave > last_enter >= 0 and SHOW_CURSOR in self.output[last_enter:] and modes == self.modes
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status), restored

    def after_screen(self):
        return self.output[self.output.rfind(LEAVE):]


def check_keys():
    session = Session(train_command())
    session.expect(re.escape(ENTER))
    for pattern in ("step ", "loss of each step", "model_weights ", "rank 0: ", "[\u2801-\u28ff]", " left", " evaluate"):
        session.read_to = 0
        session.expect(pattern)
    session.resize(24, 120)  # makes the program draw whole lines again; otherwise it draws only changes
    session.expect("% of the machine's roof")
    session.press("s")
    session.expect("saved at step")
    check(list((FOLDER / "out").glob("checkpoint-*")) != [], "s saves a checkpoint")
    session.press("e")
    session.expect("eval_loss")
    check(True, "e evaluates, and the metric is shown")
    session.press("q")
    code, restored = session.end()
    check(code == 0, f"q ends the run normally: {code}")
    check(restored, "the terminal is restored after q")
    check("'loss': " in session.after_screen(), "the logged lines are printed after the dashboard")
    check("Saved in out" in session.after_screen(), "the summary follows")
    stopped = re.search(r"Stopped at step (\d+) of 1000000: the same command with --resume_from_checkpoint true continues the run", session.after_screen())
    check(stopped and (FOLDER / "out" / f"checkpoint-{stopped[1]}").exists(), f"q saves a checkpoint, and the run says how it continues: {stopped}")


def check_size():
    session = Session(train_command())
    session.expect("loss of each step")
    session.resize(40, 100)
    session.expect(r"\x1b\[40(;1)?[Hd]")
    session.resize(10, 40)
    session.expect(r"\x1b\[10(;1)?[Hd]")
    time.sleep(1)
    session.read(0.5)
    rows = [int(row) for row in re.findall(r"\x1b\[(\d+)(?:;\d+H|d)", session.output[session.read_to:])]
    check(all(row <= 10 for row in rows), "nothing is drawn below a smaller terminal")
    session.press("q")
    code, restored = session.end()
    check(code == 0 and restored, "a run in a resized terminal ends normally")


def check_without_unicode():
    session = Session(train_command(), LC_ALL="C")
    session.expect("loss of each step")
    session.press("q")
    code, restored = session.end()
    screen = session.output[session.output.find(ENTER):session.output.rfind(LEAVE)]
    check(code == 0 and restored and screen.isascii(), "without a UTF-8 locale everything is ASCII")


def check_signal(number, expected, what):
    session = Session(train_command())
    session.expect("loss of each step")
    os.kill(session.process, number)
    code, restored = session.end()
    check(code == expected and restored, f"{what} restores the terminal: exit code {code}, restored: {restored}")


def check_interruption():
    session = Session(train_command())
    session.expect("loss of each step")
    session.press("\x03")
    code, restored = session.end()
    check(code == 128 + signal.SIGINT and restored, f"Ctrl-C stops after the step: {code}")
    check(" was received: training stops" in session.after_screen(), "the reason is printed after the dashboard")


def check_error():
    session = Session(train_command())
    session.expect("loss of each step")
    shutil.rmtree(FOLDER / "out", ignore_errors=True)
    (FOLDER / "out").write_text("not a folder")
    session.press("q")  # a failed checkpoint does not end a run, but a failed save of the final model does
    code, restored = session.end()
    (FOLDER / "out").unlink()
    check(code not in (0, None) and restored, f"an error of the run restores the terminal: {code}")
    check("hasten train: " in session.after_screen(), "the error is printed after the dashboard")


def check_suspension():
    session = Session(train_command())
    session.expect("loss of each step")
    session.press("\x1a")
    stopped = False
    for _ in range(100):
        session.read(0.1)
        number, status = os.waitpid(session.process, os.WNOHANG | os.WUNTRACED)
        if number and os.WIFSTOPPED(status):
            stopped = True
            break
    while session.read(0.3):
        pass
    check(stopped and session.output.rfind(LEAVE) > session.output.rfind(ENTER), "Ctrl-Z leaves the screen and suspends the run")
    os.kill(session.process, signal.SIGCONT)
    session.expect(re.escape(ENTER))
    session.press("q")
    code, restored = session.end()
    check(code == 0 and restored, "the run continues")


def check_ranks():
    session = Session(["launch", "--use_cpu", "-n", "2", HASTEN, *train_command()])
    session.expect("rank 1: ", seconds=120)
    check(True, "each rank has a line")
    session.press("q")
    code, restored = session.end()
    check(code == 0 and restored, f"q stops two ranks at the same step: {code}")


def check_pipe():
    shutil.rmtree(FOLDER / "out", ignore_errors=True)
    run = subprocess.run([HASTEN, *train_command("--max_steps", "6")], cwd=FOLDER, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check("the dashboard is not shown: standard input is not a terminal" in run.stderr, "without a terminal the reason is printed")
    check(run.returncode == 0 and "Training" in run.stderr and "\x1b" not in run.stdout + run.stderr, "then progress lines are printed, without control sequences")


def check_unknown_terminal():
    session = Session(train_command("--max_steps", "6"), TERM="dumb")
    session.expect(r"the dashboard is not shown: a terminal of type 'dumb'")
    code, _ = session.end()
    check(code == 0 and ENTER not in session.output, "a terminal that cannot place text gets progress lines")


def check_without_module():
    hidden = MODULE.with_suffix(".hidden")
    os.rename(MODULE, hidden)
    try:
        session = Session(train_command("--max_steps", "6"))
        session.expect("Install libncurses-dev and build again")
        code, _ = session.end()
        check(code == 0, "without the module the run is trained with progress lines")
    finally:
        os.rename(hidden, MODULE)


if not MODULE.exists():
    print("skipped: hasten was built without ncurses (Debian: libncurses-dev)")
    sys.exit(0)
write_rows()
try:
    check_keys()
    check_size()
    check_without_unicode()
    check_signal(signal.SIGTERM, 128 + signal.SIGTERM, "SIGTERM")
    check_signal(signal.SIGSEGV, -signal.SIGSEGV, "SIGSEGV")
    check_signal(signal.SIGHUP, 128 + signal.SIGHUP, "SIGHUP")
    check_interruption()
    check_error()
    check_suspension()
    check_ranks()
    check_pipe()
    check_unknown_terminal()
    check_without_module()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
print(f"{failures} failures")
sys.exit(1 if failures else 0)
