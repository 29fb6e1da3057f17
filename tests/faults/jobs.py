#!/usr/bin/env python3
"""Disturbs whole training jobs at random moments, and compares their weights and hash chains with those of an undisturbed job.

    jobs.py HASTEN MODEL FAULTS-LIBRARY [--jobs N] [--seed S] [--processes 1 2 4 4-2-4]

Each job is `hasten launch --max_restarts` with one, two or four ranks of `hasten train`, with dropout, shuffling and asynchronous
checkpoints. A job 4-2-4 has elastic ranks: it is started with four processes, killed, continued with two, killed, and continued with four.
Each job also has one or two faults. A fault kills, aborts, stops, pauses or crashes a rank, makes an allocation of a step throw an exception in
a rank, kills the launcher (which also ends its ranks), kills the launcher's cleanup process, or makes a call fail or all calls slow that write
to the folder. Each rank counts such calls from its start. A file reports that a rank has arrived at the disturbed call; without the report, a
job that was not restarted counts as a failure. Nine jobs in sequence have each of these faults once as their first fault, in random order and
spread over the steps of a job. A job that fails is started again with --resume, as a user would do. It must end in time without a damaged
checkpoint, leave no processes, and reach exactly the weights and the hash chain of the undisturbed job.
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
parser.add_argument("--processes", nargs="+", default=["1", "2", "4", "4-2-4"], help="numbers of processes; several with - for elastic ranks")
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
VIRTUAL_RANKS = 4  # of a job with elastic ranks
FAULTS = ("kill", "abort", "segmentation fault", "exception", "stop", "pause", "launcher", "cleanup_process", "write")
RESIZE = "another number of processes"  # an event of a job with elastic ranks
# LibTorch's message if an allocation fails, and the Trainer's if it is one of the copy for an asynchronous checkpoint: that does not end the run.
THROWN, THROWN_IN_SAVE = "can't allocate memory", "too little memory for the copy of an asynchronous checkpoint"
# A rank is at most two checkpoints ahead of the newest one on the disk. After a checkpoint of this step or an earlier one, it still allocates.
LAST_THROWING_STEP = STEPS - 3 * SAVE_STEPS
LAST_EXCEPTION = STEPS // 2  # an exception that is the first fault of a job is planned after this step at the latest

# The library of faults makes the next allocation fail when it receives SIGRTMIN.
SIGNALS = {"kill": signal.SIGKILL, "cleanup_process": signal.SIGKILL, "abort": signal.SIGABRT, "segmentation fault": signal.SIGSEGV,
           "exception": signal.SIGRTMIN}


class Job:
    """A job with its own folder."""

    def __init__(self, name, kind):
        self.folder = FOLDER / name
        self.sizes = [int(count) for count in kind.split("-")]  # the numbers of processes to come, the current one first
        self.is_elastic = len(self.sizes) > 1
        self.report = FOLDER / f"report-{name}"  # exists once a rank has arrived at the disturbed call
        self.texts, self.starts = [], 0
        self.deadline = time.monotonic() + LIMIT

    def start(self, fault=None):
        ranks = VIRTUAL_RANKS if self.is_elastic else self.processes()
        words = ["launch", "-n", self.processes(), "--max_restarts", 4, "--no_config_file", "--grace_period", 2, *(["--resume"] if self.starts else []),
                 HASTEN, "train", "--use_cpu", "--disable_tqdm", "--model", MODEL, "--data", DATA, "--output_dir", self.folder, "--ddp_timeout", STOPPED,
                 "--per_device_train_batch_size", 8 // ranks, "--max_steps", STEPS, "--save_steps", SAVE_STEPS, "--save_total_limit", 2, "--learning_rate", "1e-3",
                 "--async_save", "true", "--hash_chain_steps", SAVE_STEPS, *(["--elastic_ranks", VIRTUAL_RANKS] if self.is_elastic else [])]
        environment = CLEAN | {"OMP_NUM_THREADS": "1", "LD_PRELOAD": str(LIBRARY)}
        if fault:
            environment |= {"HASTEN_FAULT": f"{fault[0]} {fault[1]} {self.folder} {self.report}"}
        self.starts += 1
        self.first_step = self.step()
        self.output = tempfile.TemporaryFile("w+")
        self.launcher = subprocess.Popen([str(HASTEN), *map(str, words)], env=environment, stdout=self.output, stderr=subprocess.STDOUT, text=True)

    def processes(self):
        return self.sizes[0]

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

    def start_again(self):
        until(lambda: not marked(str(self.folder)), 20)
        self.start()

    def resize(self):
        """Kills the job, and continues it with the next number of processes."""
        self.launcher.kill()
        self.wait()
        self.sizes.pop(0)
        self.start_again()

    def finish(self):
        """Starts the job again until it succeeds. Returns whether it succeeded in time."""
        code = self.wait()
        while code not in (0, None) and self.starts < 8:
            self.start_again()
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


def throw_in_rank(job):
    """Makes an allocation of a rank fail, and waits for its end, so that no other fault ends it first. Returns whether it had steps left."""
    # Before its first checkpoint, a rank may still replace its program, which would forget the signal.
    until(lambda: job.step() > job.first_step or job.launcher.poll() is not None, 60)
    process = job.child(is_rank=True)
    if process is None:
        return False
    has_steps_left = job.step() <= LAST_THROWING_STEP
    send(process, SIGNALS["exception"])
    until(lambda: not pathlib.Path(f"/proc/{process}").exists(), 20)
    return has_steps_left


def disturb_child(job, what):
    process = job.child(is_rank=what != "cleanup_process")
    if process is None:
        return
    if what in SIGNALS:
        send(process, SIGNALS[what])
        return
    send(process, signal.SIGSTOP)
    if what == "pause" or job.processes() == 1:  # no other rank would notice that a single rank has stopped
        time.sleep(0.5)
        send(process, signal.SIGCONT)


def disturb(job, what, step, delay):
    """Waits for a checkpoint of that step, waits for the delay, and causes the fault unless the job has ended. Returns whether a rank must throw."""
    while job.step() < step and job.launcher.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    if what == RESIZE:
        job.resize()
    elif job.launcher.poll() is not None:
        return False
    elif what == "exception":
        return throw_in_rank(job)
    elif what == "launcher":
        job.launcher.kill()
    else:
        disturb_child(job, what)
    return False


def undisturbed_job(kind):
    """Returns the results of an undisturbed job, and the seconds between two checkpoints."""
    job = Job(f"undisturbed{kind}", kind)
    job.start((LAST_CALL, "none"))
    while not job.step() and job.launcher.poll() is None:
        time.sleep(0.002)
    began = time.monotonic()
    if job.wait() != 0:
        sys.exit(f"the undisturbed job of {kind} failed\n{job.texts}")
    check(job.report.exists(), f"a job of {kind} arrives at every call at which a fault is set", *job.texts)
    return job.results(), (time.monotonic() - began) / (STEPS // SAVE_STEPS - 1)


def faults_of_jobs(count):
    """Yields the faults of each job, each with the step after which it happens."""
    for first in range(0, count, len(FAULTS)):
        for position, what in enumerate(random.sample(FAULTS, len(FAULTS))[:count - first]):
            step = int(STEPS * 0.95 * (position + random.random()) / len(FAULTS))
            if what == "exception":
                step = min(step, LAST_EXCEPTION)
            extra = random.choices(FAULTS, k=random.choice((0, 0, 1)))
            yield [(step, what), *((random.randint(step + 1, STEPS), other) for other in extra)]


def resizes(job):
    """Returns the events in which a job with elastic ranks gets another number of processes, spread over its first steps."""
    return [(int(STEPS * 0.8 * (position + random.random()) / len(job.sizes)), RESIZE) for position in range(len(job.sizes) - 1)]


def trial(number, undisturbed, faults):
    kind = options.processes[number % len(options.processes)]
    expected, seconds = undisturbed[kind]
    job = Job(f"job{number}", kind)
    events = sorted(faults + resizes(job))
    fault = None
    if any(what == "write" for _, what in faults):
        fault = random.randrange(FIRST_CALL, LAST_CALL), random.choice(WRITE_FAULTS)
    job.start(fault)
    must_throw, earlier = False, set()
    for step, what in events:
        if what == "write":
            continue
        throws = disturb(job, what, step, random.random() * seconds)
        # After another fault the rank may wait for one that has stopped, until the watchdog ends both.
        must_throw |= throws and not earlier
        earlier |= {what} - {RESIZE}
    name = f"job {number} of {kind}: " + ", ".join(f"{fault[1]} at call {fault[0]}" if what == "write" else f"{what} after step {step}"
                                                   for step, what in events)
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
    if (number + 1) % 25 == 0:
        print(f"{number + 1} of {options.jobs} jobs have ended", flush=True)
    has_thrown = any(THROWN in text or THROWN_IN_SAVE in text for text in job.texts)
    if must_throw and not has_thrown:
        check(False, name + ": no exception was thrown", *job.texts)
    return not problems, restarts, resumes, job.starts - 1, fault is not None and job.report.exists(), has_thrown, must_throw, must_throw and has_thrown


def main():
    print(f"seed {SEED}", flush=True)
    random.seed(SEED)
    write_ids(DATA, 403, 7)
    shutil.copytree(options.model, MODEL)
    config = json.loads((MODEL / "config.json").read_text())
    (MODEL / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}))
    undisturbed = {kind: undisturbed_job(kind) for kind in options.processes}
    faults_of_all = list(faults_of_jobs(options.jobs))
    results = [trial(number, undisturbed, faults) for number, faults in enumerate(faults_of_all)]
    good, restarts, resumes, by_hand, disturbed_calls, exceptions, due, thrown = (sum(column) for column in zip(*results))
    check(good == options.jobs, f"{good} of {options.jobs} disturbed jobs ended with the undisturbed bits: {restarts} restarts by the launcher, "
                                f"{by_hand} by hand, {resumes} continued from a checkpoint, {disturbed_calls} with a disturbed call, "
                                f"{exceptions} with an exception")
    check(resumes > 0 and restarts > 0, "jobs were restarted and continued")
    check(thrown == due, f"an exception was thrown in {thrown} of {due} jobs that had one as their first fault")
    planned = sum(faults[0][1] == "exception" for faults in faults_of_all)
    check(due > 0 or planned == 0, f"of {planned} jobs with an exception as their first fault, {due} had steps left when it was due")


try:
    main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
