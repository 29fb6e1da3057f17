#!/usr/bin/env python3
"""Disturbs whole training jobs at random moments, and compares their weights with those of an undisturbed job.

    jobs.py HASTEN MODEL FAULTS-LIBRARY [--jobs N] [--seed S] [--processes 1 2 4]

Each job is `hasten launch --max_restarts` with one, two or four ranks of `hasten train`, with dropout, shuffling and asynchronous
checkpoints. Once or twice, a rank is killed, aborted, stopped or crashes, or the launcher is killed, which also ends its ranks,
or a call that writes to the folder fails. A job that ends is started again with --resume, as a person would do. It must end in
time, without a damaged checkpoint and without processes, and with the bits of the undisturbed job.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ranks"))
from checks import check, exit_code
from clean import CLEAN
from processes import marked, until
from rows import write_ids

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("hasten", type=pathlib.Path)
parser.add_argument("model", type=pathlib.Path)
parser.add_argument("library", type=pathlib.Path)
parser.add_argument("--jobs", type=int, default=12)
parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
options = parser.parse_args()
HASTEN, LIBRARY = options.hasten.resolve(), options.library.resolve()
SEED = options.seed or random.SystemRandom().randrange(1, 1_000_000)
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="hasten-jobs-"))
DATA, MODEL = FOLDER / "rows.safetensors", FOLDER / "model"
LIMIT = 120  # seconds of a job, for a busy machine
STOPPED = 5  # seconds until the watchdog ends a job with a rank that is stopped
WRITE_FAULTS = ("io", "full", "read_only", "short", "stays_full")
FIRST_CALL, LAST_CALL = 25, 900  # of those that a rank makes below its folder; the first ones check the folder

SIGNALS = {"kill": signal.SIGKILL, "abort": signal.SIGABRT, "segmentation fault": signal.SIGSEGV}


class Job:
    """A job in a folder of its own."""

    def __init__(self, name, processes):
        self.folder, self.processes = FOLDER / name, processes
        self.texts, self.starts = [], 0
        self.deadline = time.monotonic() + LIMIT

    def start(self, fault=None):
        words = ["launch", "-n", self.processes, "--max_restarts", 4, "--no_config_file", "--grace_period", 2, *(["--resume"] if self.starts else []),
                 HASTEN, "train", "--use_cpu", "--disable_tqdm", "--model", MODEL, "--data", DATA, "--output_dir", self.folder, "--ddp_timeout", STOPPED,
                 "--per_device_train_batch_size", 8 // self.processes, "--max_steps", 200, "--save_steps", 5, "--save_total_limit", 2, "--learning_rate", "1e-3",
                 "--async_save", "true"]
        environment = CLEAN | {"OMP_NUM_THREADS": "1"}
        if fault:
            environment |= {"LD_PRELOAD": str(LIBRARY), "HASTEN_FAULT": f"{fault[0]} {fault[1]} {self.folder}"}
        self.starts += 1
        self.output = tempfile.TemporaryFile("w+")
        self.launcher = subprocess.Popen([str(HASTEN), *map(str, words)], env=environment, stdout=self.output, stderr=subprocess.STDOUT, text=True)

    def rank(self):
        """A random rank that runs, or None."""
        try:
            children = pathlib.Path(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children").read_text().split()
            return int(random.choice(children)) if children else None
        except OSError:
            return None

    def wait(self):
        """Returns the exit code; None after the limit."""
        try:
            code = self.launcher.wait(max(1.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            self.launcher.wait()
            code = None
        self.output.seek(0)
        self.texts.append(self.output.read())
        self.output.close()
        return code

    def finish(self):
        """Starts the job again until it succeeds. Returns whether it did in time."""
        code = self.wait()
        while code not in (0, None) and self.starts < 6:
            until(lambda: not marked(str(self.folder)), 20)
            self.start()
            code = self.wait()
        return code == 0

    def weights(self):
        return (self.folder / "model.safetensors").read_bytes()


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def disturb_rank(job, what):
    rank = job.rank()
    if rank is None:
        return
    if what in SIGNALS:
        send(rank, SIGNALS[what])
        return
    send(rank, signal.SIGSTOP)
    if what == "pause" or job.processes == 1:  # nobody waits for a single rank
        time.sleep(0.5)
        send(rank, signal.SIGCONT)


def disturb(job, what, seconds):
    """Waits, and does it, unless the job has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.launcher.poll() is None:
        time.sleep(0.005)
    if job.launcher.poll() is not None:
        return
    if what == "launcher":
        job.launcher.kill()
    else:
        disturb_rank(job, what)


def whole_job(processes):
    """Returns the weights and the seconds of an undisturbed job."""
    began = time.monotonic()
    job = Job(f"whole{processes}", processes)
    job.start()
    if job.wait() != 0:
        sys.exit(f"the undisturbed job of {processes} failed\n{job.texts}")
    return job.weights(), time.monotonic() - began


def trial(number, whole):
    processes = options.processes[number % len(options.processes)]
    expected, seconds = whole[processes]
    job = Job(f"job{number}", processes)
    faults = random.choices(["kill", "abort", "segmentation fault", "stop", "pause", "launcher", "write"], k=random.choice((1, 1, 2)))
    fault = None
    if "write" in faults:
        fault = random.randrange(FIRST_CALL, LAST_CALL), random.choice(WRITE_FAULTS)
    job.start(fault)
    for what in faults:
        if what != "write":
            disturb(job, what, random.uniform(0.2, 1) * seconds)
    name = f"job {number} of {processes}: " + ", ".join(f"{fault[1]} at call {fault[0]}" if what == "write" else what for what in faults)
    in_time = job.finish()
    problems = [] if in_time else ["it did not end well" if time.monotonic() < job.deadline else "it hung"]
    if in_time and job.weights() != expected:
        problems.append("it ended with other weights")
    if list(job.folder.glob("*damaged*")):
        problems.append("a damaged checkpoint was found")
    if not until(lambda: not marked(str(job.folder)), 20):
        problems.append("processes are left")
        for process in marked(str(job.folder)):
            send(process, signal.SIGKILL)
    if problems:
        check(False, name + ": " + "; ".join(problems), *job.texts, sorted(path.name for path in job.folder.iterdir()))
    restarts = sum(text.count("restarting all processes") for text in job.texts)
    resumes = sum(text.count("resuming from") for text in job.texts)
    shutil.rmtree(job.folder, ignore_errors=True)
    return not problems, restarts, resumes, job.starts - 1


def main():
    print(f"seed {SEED}", flush=True)
    random.seed(SEED)
    write_ids(DATA, 403, 7)
    shutil.copytree(options.model, MODEL)
    config = json.loads((MODEL / "config.json").read_text())
    (MODEL / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}))
    whole = {processes: whole_job(processes) for processes in options.processes}
    results = [trial(number, whole) for number in range(options.jobs)]
    good, restarts, resumes, by_hand = (sum(column) for column in zip(*results))
    check(good == options.jobs, f"{good} of {options.jobs} disturbed jobs ended with the undisturbed bits: {restarts} restarts by the launcher, "
                                f"{by_hand} by hand, {resumes} continued from a checkpoint")
    check(resumes > 0 and restarts > 0, "jobs were restarted and continued")


try:
    main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
