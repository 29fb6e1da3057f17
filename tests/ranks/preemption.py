#!/usr/bin/env python3
"""hasten train receives a signal, in one process and in two: it stops at a step, saves, and returns 128 + the signal. A run continues from there.

    preemption.py HASTEN MODEL
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from checks import check, exit_code
from clean import CLEAN

HASTEN, MODEL = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
FOLDER = pathlib.Path(tempfile.mkdtemp())
LIMIT = 60  # seconds, for a busy machine
MAX_STEPS = 10_000_000
SAVED = ("model.safetensors", "trainer_state.json", "train_results.json", "all_results.json")


class Running:
    """A hasten train that would train for hours and saves no checkpoint, unless `arguments` say otherwise."""

    def __init__(self, name, launch=(), *arguments):
        self.output_dir = FOLDER / name
        command = [HASTEN, *launch, *([HASTEN] if launch else []), "train", "--use_cpu", "--disable_tqdm", "--model", MODEL, "--data", "dummy", "--eval_data", "dummy",
                   "--do_train", "--do_eval", "--dummy_length", 12, "--output_dir", self.output_dir, "--logging_steps", 20,
                   *(arguments or ("--max_steps", MAX_STEPS, "--save_strategy", "no"))]
        self.process = subprocess.Popen(list(map(str, command)), env=CLEAN | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")))
        self.reader.start()

    def text(self):
        return "".join(self.lines)

    def last_lines(self):
        return "".join(self.lines[-40:])

    def await_steps(self):
        """Blocks until steps have been logged."""
        end = time.monotonic() + LIMIT
        while "'loss'" not in self.text() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)

    def rank(self, number):
        """Returns the process ID of a rank."""
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            try:
                if f"RANK={number}".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    return int(child)
            except OSError:
                pass
        sys.exit(f"no rank {number}\n{self.text()}")

    def end(self):
        """Waits for the end and returns the exit code."""
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.process.kill()
            self.reader.join()


def check_stopped(what, running, number):
    """Checks that the run stopped at the reported step, and saved its model."""
    code = running.end()
    check(code == 128 + number, f"{what}: the exit code is {code}", running.last_lines())
    # The launcher repeats the last lines of a rank with a bar before each.
    reports = re.findall(rf"^(?:\[\d\] )?hasten: warning: signal {number} \(SIG\w+\) was received: training stops at step (\d+) of {MAX_STEPS}", running.text(), re.MULTILINE)
    check(len(reports) == 1, f"{what}: there is one report, of step {', '.join(reports)}", running.last_lines())
    missing = [name for name in SAVED if not (running.output_dir / name).exists()]
    check(not missing, f"{what}: model, state and results are saved", missing, running.last_lines())
    if reports and not missing:
        step = json.loads((running.output_dir / "trainer_state.json").read_text())["global_step"]
        check(step == int(reports[0]) > 0, f"{what}: the saved state belongs to step {step}")
    check(not (running.output_dir / "eval_results.json").exists(), f"{what}: no evaluation begins")


def one_process():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        running = Running(f"one{number}")
        running.await_steps()
        running.process.send_signal(number)
        check_stopped(f"one process, {number.name}", running, number)


def two_processes():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        running = Running(f"launcher{number}", ("launch", "-n", 2, "--max_restarts", 1, "--grace_period", LIMIT))
        running.await_steps()
        running.process.send_signal(number)
        check_stopped(f"{number.name} to the launcher of two", running, number)
        check("restarting all processes" not in running.text(), f"{number.name} to the launcher of two: they do not restart", running.last_lines())
    # Slurm does this: each rank receives the signal twice, because the launcher forwards its own.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        running = Running(f"all{number}", ("launch", "-n", 2, "--max_restarts", 1, "--grace_period", LIMIT))
        running.await_steps()
        for process in (running.rank(0), running.rank(1), running.process.pid):
            os.kill(process, number)
        check_stopped(f"{number.name} to every process of two", running, number)
    for rank in (0, 1):
        running = Running(f"rank{rank}", ("launch", "-n", 2))
        running.await_steps()
        os.kill(running.rank(rank), signal.SIGUSR1)
        check_stopped(f"SIGUSR1 to rank {rank} only", running, signal.SIGUSR1)


def continued_run():
    """A run that saves checkpoints saves one more when a signal stops it, and continues from there with the bits of an undisturbed run."""
    arguments = ("--save_strategy", "steps", "--save_steps", MAX_STEPS, "--gradient_accumulation_steps", 2, "--lr_scheduler_type", "constant")
    stopped = Running("stopped", (), *arguments, "--max_steps", MAX_STEPS)
    stopped.await_steps()
    stopped.process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    check_stopped("a run with checkpoints", stopped, signal.SIGTERM)
    seconds = time.monotonic() - begin
    check(seconds < 30, f"a run with checkpoints: it stops in {seconds:.1f} s, less than 30 s")
    step = json.loads((stopped.output_dir / "trainer_state.json").read_text())["global_step"]
    check([folder.name for folder in stopped.output_dir.glob("checkpoint-*")] == [f"checkpoint-{step}"], "a run with checkpoints: the only one is that of the stop",
          stopped.last_lines())
    check(f"Stopped at step {step} of {MAX_STEPS}: the same command with --resume_from_checkpoint true continues" in stopped.text(),
          "a run with checkpoints: it says how it continues", stopped.last_lines())
    last = step + 20
    runs = [Running("undisturbed", (), *arguments, "--max_steps", last), Running("stopped", (), *arguments, "--max_steps", last, "--resume_from_checkpoint", "true")]
    check([run.end() for run in runs] == [0, 0], "the stopped run continues to its end", *(run.last_lines() for run in runs))
    states = [{file.name: file.read_bytes() for file in (run.output_dir / f"checkpoint-{last}").glob("*.safetensors")} for run in runs]
    check(len(states[0]) > 1 and states[0] == states[1], f"the tensors after step {last} are those of an undisturbed run: {', '.join(sorted(states[0]))}",
          runs[1].last_lines())


try:
    one_process()
    two_processes()
    continued_run()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
