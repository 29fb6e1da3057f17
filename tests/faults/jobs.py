#!/usr/bin/env python3
"""Disturbs whole training jobs at random moments, and compares their weights and hash chains with those of an undisturbed job.

    jobs.py HASTEN MODEL FAULTS-LIBRARY [--jobs N] [--seed S] [--processes 1 2 4]

Each job is `hasten launch --max_restarts` with one, two or four ranks of `hasten train`, with dropout, shuffling and asynchronous
checkpoints. It has one or two faults. A fault kills, aborts, stops, pauses or crashes a rank, kills the launcher (which also ends its ranks),
kills the launcher's cleanup process, or makes a call fail or all calls slow that write to the folder. Each rank counts such calls from its
start. A file reports that a rank has arrived at the disturbed call; without the report, a job that was not restarted counts as a failure.
Eight jobs in sequence have each of these faults once as their first fault, in random order and spread over the steps of a job. A job that
fails is started again with --resume, as a user would do. It must end in time without a damaged checkpoint, leave no processes, and reach
exactly the weights and the hash chain of the undisturbed job.
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
LIMIT = 120  # seconds for one job, enough for a busy machine
STOPPED = 5  # seconds until the watchdog ends a job with a rank that is stopped
WRITE_FAULTS = ("io", "full", "read_only", "short", "stays_full", "slow")
FIRST_CALL, LAST_CALL = 25, 4000  # range of the disturbed call among the calls of a rank below its folder; earlier calls only check the folder
STEPS, SAVE_STEPS = 200, 5
FAULTS = ("kill", "abort", "segmentation fault", "stop", "pause", "launcher", "cleanup_process", "write")

SIGNALS = {"kill": signal.SIGKILL, "cleanup_process": signal.SIGKILL, "abort": signal.SIGABRT, "segmentation fault": signal.SIGSEGV}


class Job:
    """A job with its own folder."""

    def __init__(self, name, processes):
        self.folder, self.processes = FOLDER / name, processes
        self.report = FOLDER / f"report-{name}"  # exists once a rank has arrived at the disturbed call
        self.texts, self.starts = [], 0
        self.deadline = time.monotonic() + LIMIT

    def start(self, fault=None):
        words = ["launch", "-n", self.processes, "--max_restarts", 4, "--no_config_file", "--grace_period", 2, *(["--resume"] if self.starts else []),
                 HASTEN, "train", "--use_cpu", "--disable_tqdm", "--model", MODEL, "--data", DATA, "--output_dir", self.folder, "--ddp_timeout", STOPPED,
                 "--per_device_train_batch_size", 8 // self.processes, "--max_steps", STEPS, "--save_steps", SAVE_STEPS, "--save_total_limit", 2, "--learning_rate", "1e-3",
                 "--async_save", "true", "--hash_chain_steps", SAVE_STEPS]
        environment = CLEAN | {"OMP_NUM_THREADS": "1"}
        if fault:
            environment |= {"LD_PRELOAD": str(LIBRARY), "HASTEN_FAULT": f"{fault[0]} {fault[1]} {self.folder} {self.report}"}
        self.starts += 1
        self.output = tempfile.TemporaryFile("w+")
        self.launcher = subprocess.Popen([str(HASTEN), *map(str, words)], env=environment, stdout=self.output, stderr=subprocess.STDOUT, text=True)

    def child(self, is_rank):
        """Returns the process number of a random running rank or of the launcher's cleanup process, or None if there is none."""
        try:
            children = map(int, pathlib.Path(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children").read_text().split())
            return random.choice([child for child in children if (b"\0LOCAL_RANK=" in pathlib.Path(f"/proc/{child}/environ").read_bytes()) == is_rank])
        except (OSError, IndexError):
            return None

    def step(self):
        """Returns the step of the newest checkpoint, or 0 if there is none."""
        return max((int(path.name.split("-")[1]) for path in self.folder.glob("checkpoint-*") if path.name.split("-")[1].isdigit()), default=0)

    def wait(self):
        """Returns the exit code, or None if the job exceeds the limit."""
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
        """Starts the job again until it succeeds. Returns whether it succeeded in time."""
        code = self.wait()
        while code not in (0, None) and self.starts < 6:
            until(lambda: not marked(str(self.folder)), 20)
            self.start()
            code = self.wait()
        return code == 0

    def results(self):
        """Returns the weights and the hash chain."""
        return [(self.folder / name).read_bytes() for name in ("model.safetensors", "hash_chain.jsonl")]


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def disturb_child(job, what):
    process = job.child(is_rank=what != "cleanup_process")
    if process is None:
        return
    if what in SIGNALS:
        send(process, SIGNALS[what])
        return
    send(process, signal.SIGSTOP)
    if what == "pause" or job.processes == 1:  # no other rank would notice that a single rank has stopped
        time.sleep(0.5)
        send(process, signal.SIGCONT)


def disturb(job, what, step, delay):
    """Waits for a checkpoint of that step, waits for the delay, and causes the fault unless the job has ended."""
    while job.step() < step and job.launcher.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    if job.launcher.poll() is not None:
        return
    if what == "launcher":
        job.launcher.kill()
    else:
        disturb_child(job, what)


def undisturbed_job(processes):
    """Returns the results of an undisturbed job, and the seconds between two checkpoints."""
    job = Job(f"undisturbed{processes}", processes)
    job.start((LAST_CALL, "none"))
    while not job.step() and job.launcher.poll() is None:
        time.sleep(0.002)
    began = time.monotonic()
    if job.wait() != 0:
        sys.exit(f"the undisturbed job of {processes} failed\n{job.texts}")
    check(job.report.exists(), f"a job of {processes} arrives at every call at which a fault is set", *job.texts)
    return job.results(), (time.monotonic() - began) / (STEPS // SAVE_STEPS - 1)


def faults_of_jobs(count):
    """Yields the faults of each job, and the step after which the first fault happens."""
    for first in range(0, count, len(FAULTS)):
        for position, what in enumerate(random.sample(FAULTS, len(FAULTS))[:count - first]):
            extra = random.choices(FAULTS, k=random.choice((0, 0, 1)))
            yield [what, *extra], int(STEPS * 0.95 * (position + random.random()) / len(FAULTS))


def trial(number, undisturbed, faults, step):
    processes = options.processes[number % len(options.processes)]
    expected, seconds = undisturbed[processes]
    job = Job(f"job{number}", processes)
    fault = None
    if "write" in faults:
        fault = random.randrange(FIRST_CALL, LAST_CALL), random.choice(WRITE_FAULTS)
    job.start(fault)
    for what in faults:
        if what != "write":
            disturb(job, what, step, random.random() * seconds)
            step = random.randint(step, STEPS)
    name = f"job {number} of {processes}: " + ", ".join(f"{fault[1]} at call {fault[0]}" if what == "write" else what for what in faults)
    in_time = job.finish()
    problems = [] if in_time else ["it did not end well" if time.monotonic() < job.deadline else "it hung"]
    if in_time:
        problems += [f"it ended with another {what}" for what, found, wanted in zip(("model", "hash chain"), job.results(), expected) if found != wanted]
    restarts = sum(text.count("restarting all processes") for text in job.texts)
    if fault and job.starts == 1 and not restarts and not job.report.exists():
        problems.append("no call was disturbed")
    if list(job.folder.glob("*damaged*")):
        problems.append("a damaged checkpoint was found")
    if not until(lambda: not marked(str(job.folder)), 20):
        problems.append("processes are left")
        for process in marked(str(job.folder)):
            send(process, signal.SIGKILL)
    if problems:
        check(False, name + ": " + "; ".join(problems), *job.texts, sorted(path.name for path in job.folder.iterdir()))
    resumes = sum(text.count("resuming from") for text in job.texts)
    shutil.rmtree(job.folder, ignore_errors=True)
    return not problems, restarts, resumes, job.starts - 1, fault is not None and job.report.exists()


def main():
    print(f"seed {SEED}", flush=True)
    random.seed(SEED)
    write_ids(DATA, 403, 7)
    shutil.copytree(options.model, MODEL)
    config = json.loads((MODEL / "config.json").read_text())
    (MODEL / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}))
    undisturbed = {processes: undisturbed_job(processes) for processes in options.processes}
    results = [trial(number, undisturbed, *faults) for number, faults in enumerate(faults_of_jobs(options.jobs))]
    good, restarts, resumes, by_hand, disturbed_calls = (sum(column) for column in zip(*results))
    check(good == options.jobs, f"{good} of {options.jobs} disturbed jobs ended with the undisturbed bits: {restarts} restarts by the launcher, "
                                f"{by_hand} by hand, {resumes} continued from a checkpoint, {disturbed_calls} with a disturbed call")
    check(resumes > 0 and restarts > 0, "jobs were restarted and continued")


try:
    main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
