"""The cases of a part, with their time limits, and the functions with which they run programs."""
import copy
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from typing import Callable


class Failed(Exception):
    """The case failed. The text says why, and `values` holds the numbers that were measured."""

    def __init__(self, why, values=None):
        super().__init__(why)
        self.values = values or {}


class Skipped(Exception):
    """The case cannot run here. The text says why."""


class TimedOut(Exception):
    """A program ran past its limit and was killed."""


@dataclasses.dataclass
class Case:
    name: str
    seconds: float                                        # the limit
    run: Callable[["RunContext"], dict]                   # returns the values of the record
    # True for a program that prints many results. `run` then also gets a function that adds a record.
    many: bool = False
    # True if neither its time nor the memory of the whole GPU is measured, so it may run at the same time as other such cases.
    shares_gpu: bool = False


def concurrent_case(name, seconds, run):
    """Returns a case that may run at the same time as others."""
    return Case(name, seconds, run, shares_gpu=True)


class RunContext:
    """The environment of the cases: the folder with the programs, the device, the name of the GPU, and a folder for their files."""

    def __init__(self, kit, device, gpu, python, logs):
        self.kit, self.device, self.gpu, self.python, self.logs = pathlib.Path(kit), device, gpu, python, pathlib.Path(logs)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="hasten-gpu-"))
        self.deadline = float("inf")                      # of the current case
        self.case = ""
        self.running, self.children = [], []
        self.interrupted = threading.Event()              # shared by the copies for cases
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("HASTEN_", "ACCELERATE_"))}
        self.environment["PYTHON"] = python
        if device == "cpu":
            self.environment["CUDA_VISIBLE_DEVICES"] = ""

    def for_case(self, name, deadline, **environment):
        """Returns a context with the same files for one case, which may run in a thread at the same time as others."""
        context = copy.copy(self)
        context.case, context.deadline, context.running, context.children = name, deadline, [], []
        context.environment = self.environment | environment
        self.children.append(context)
        return context

    @property
    def on_cpu(self):
        return self.device == "cpu"

    def small(self, on_gpu, on_cpu):
        return on_cpu if self.on_cpu else on_gpu

    def program(self, name):
        path = self.kit / name
        if not path.exists():
            raise Skipped(f"the kit has no {name}")
        return path

    def left(self):
        return self.deadline - time.monotonic()

    def start(self, arguments, **environment):
        """Starts a program in a session of its own; its output goes to a file."""
        self.check_interrupted()
        log = self.logs / (self.case.replace("/", "_").replace(" ", "_") + ".log")
        output = open(log, "a")
        output.write("$ " + " ".join(map(str, arguments)) + "\n")
        output.flush()
        process = subprocess.Popen(list(map(str, arguments)), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                   env=self.environment | {name: str(value) for name, value in environment.items()}, cwd=self.scratch)
        process.log, process.log_start = log, output.tell()
        output.close()
        self.running.append(process)
        return process

    def check_interrupted(self):
        if self.interrupted.is_set():
            raise Skipped("interrupted")

    def text_of(self, process):
        with open(process.log, errors="replace") as file:
            file.seek(process.log_start)
            return file.read()

    def wait(self, process):
        """Waits for the end of a program, and kills it at the deadline."""
        try:
            process.wait(timeout=max(0.1, self.left()))
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise TimedOut(f"killed at the limit; {self.last_line(process)}") from None
        self.kill(process)                                # ends the processes that it may have left
        self.check_interrupted()
        return process.returncode

    def kill(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        if process in self.running:
            self.running.remove(process)

    def kill_all(self):
        for process in list(self.running):
            self.kill(process)

    def interrupt(self):
        """Ends the programs of all cases. A case that runs in a thread ends with Skipped."""
        self.interrupted.set()
        for context in [self, *self.children]:
            context.kill_all()

    def last_line(self, process):
        lines = [line for line in self.text_of(process).splitlines() if line.strip() and not line.startswith("frame #")]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines or ["no output"])[-1][:300]

    def run(self, arguments, codes=(0,), **environment):
        """Runs a program to its end and returns its output. Raises Failed if the exit code is not in `codes`."""
        process = self.start(arguments, **environment)
        code = self.wait(process)
        if code not in codes:
            raise Failed(f"exit code {code}: {self.last_line(process)}")
        return self.text_of(process)

    def hasten(self, *arguments, codes=(0,), **environment):
        return self.run([self.program("hasten"), *arguments], codes, **environment)

    def json_of(self, text):
        """Returns the last JSON object of an output, which may span several lines."""
        text = "\n" + text
        start = text.rfind("\n{\n")
        if start >= 0:
            return json.loads(text[start:text.rindex("}") + 1])
        lines = [line for line in text.splitlines() if line.startswith("{")]
        if not lines:
            raise Failed("the program printed no JSON: " + text[-200:])
        return json.loads(lines[-1])

    def wait_for_text(self, process, text, seconds):
        """Blocks until the output of a program contains the text. Raises Failed if it does not appear in time."""
        end = min(time.monotonic() + seconds, self.deadline)
        while text not in self.text_of(process):
            self.check_interrupted()
            if process.poll() is not None:
                raise Failed(f"ended with {process.returncode} before it printed {text!r}: {self.last_line(process)}")
            if time.monotonic() > end:
                raise Failed(f"did not print {text!r} in time: {self.last_line(process)}")
            time.sleep(0.05)
