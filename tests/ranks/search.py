#!/usr/bin/env python3
"""hasten search runs trials in processes: at once, interrupted by Ctrl-C, killed, and continued with the same values.

    search.py HASTEN MODEL
"""
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, exit_code
from clean import CLEAN

HASTEN, MODEL = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
FOLDER = pathlib.Path(tempfile.mkdtemp())
LIMIT = 120  # seconds, for a busy machine
(FOLDER / "space.yaml").write_text("learning_rate: {log_uniform: [1e-5, 1e-3]}\nseed: {int: [1, 1000]}\n")


def start(name, *options, max_steps=4):
    command = [HASTEN, "search", FOLDER / "space.yaml", "--output_dir", FOLDER / name, *options, "--", "train", "--use_cpu", "--disable_tqdm", "--model", MODEL,
               "--data", "dummy", "--eval_data", "dummy", "--dummy_length", 8, "--dummy_rows", 16, "--max_steps", max_steps, "--eval_strategy", "steps",
               "--eval_steps", 2, "--save_strategy", "no", "--logging_strategy", "no"]
    return subprocess.Popen(list(map(str, command)), env=CLEAN | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def journal(name):
    """Returns the trials of a journal, by number."""
    lines = (FOLDER / name / "journal.jsonl").read_text().splitlines()[1:]
    trials = [json.loads(line) for line in lines]
    assert len({trial["trial"] for trial in trials}) == len(trials), "a trial is there twice"
    return {trial["trial"]: trial for trial in trials}


def wait_until(what, question):
    end = time.monotonic() + LIMIT
    while not question() and time.monotonic() < end:
        time.sleep(0.02)
    check(question(), what)


def runs_of(name):
    """Returns the processes that have the folder of a search in their arguments, except the search itself."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            arguments = (folder / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if any(argument.startswith(f"--output_dir={FOLDER / name}/") for argument in arguments):
            found.append(int(folder.name))
    return found


def end(process):
    try:
        output = process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0]
    return process.returncode, output


def evaluations(name, trial):
    file = FOLDER / name / f"run-{trial}" / "metrics.jsonl"
    return file.exists() and "eval/loss" in file.read_text()


def main():
    code, output = end(start("alone", "--n_trials", "4", "--pruner", "none"))
    check(code == 0, f"a search of four trials: exit code {code}", output)
    alone = journal("alone")
    code, output = end(start("together", "--n_trials", "4", "--n_jobs", "3", "--pruner", "none"))
    check(code == 0, f"three trials at once: exit code {code}", output)
    together = journal("together")
    check({number: trial["parameters"] for number, trial in together.items()} == {number: trial["parameters"] for number, trial in alone.items()},
          "trials at once get the same values")
    check(all(together[number]["value"] == alone[number]["value"] for number in alone), "and reach the same losses")

    # Ctrl-C stops two trials that would train for hours.
    hours = 10_000_000
    process = start("interrupted", "--n_trials", "4", "--n_jobs", "2", max_steps=hours)
    wait_until("two trials evaluate", lambda: evaluations("interrupted", 0) and evaluations("interrupted", 1))
    process.send_signal(signal.SIGINT)
    code, output = end(process)
    check(code == 130, f"Ctrl-C: exit code {code}", output)
    check("0 of 4 trials have ended" in output, "the search says how far it has come", output)
    check(runs_of("interrupted") == [], "no run is left")
    check(journal("interrupted") == {}, "stopped trials are not in the journal")
    check("training stops at step" in (FOLDER / "interrupted/run-0/log.txt").read_text(), "the run stopped at a step")

    # A search that is killed stops its runs. They hold its lock, so that no other search begins before they have ended.
    process = start("killed", "--n_trials", "2", max_steps=hours)
    wait_until("a trial evaluates", lambda: evaluations("killed", 0))
    files = [os.readlink(file) for run in runs_of("killed") for file in pathlib.Path(f"/proc/{run}/fd").iterdir()]
    check(str(FOLDER / "killed") in files, "the run holds the lock of the search", files)
    process.kill()
    end(process)
    wait_until("the run of a killed search ends", lambda: runs_of("killed") == [])
    lock = os.open(FOLDER / "killed", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    code, output = end(start("killed", "--n_trials", "2", max_steps=hours))
    check(code == 4 and "search.in-use" in output, f"a search in a locked folder: exit code {code}", output)
    os.close(lock)

    # A search that is continued after its first trial has the same trials as a search that was never stopped.
    process = start("continued", "--n_trials", "4", "--pruner", "none")
    wait_until("a trial ends", lambda: (FOLDER / "continued/journal.jsonl").exists() and len(journal("continued")) > 0)
    process.kill()
    end(process)
    wait_until("the run of a killed search ends", lambda: runs_of("continued") == [])
    before = journal("continued")
    code, output = end(start("continued", "--n_trials", "4", "--pruner", "none"))
    after = journal("continued")
    check(code == 0, f"the search continues: exit code {code}", output)
    check(all(after[number] == trial for number, trial in before.items()), "finished trials did not run again")
    check({number: (trial["parameters"], trial["value"]) for number, trial in after.items()} ==
          {number: (trial["parameters"], trial["value"]) for number, trial in alone.items()}, "it has the trials of a search that was never stopped")


main()
sys.exit(exit_code())
