#!/usr/bin/env python3
"""`hasten test` passes on this machine, and names a rank that does not answer.

    hasten_test.py HASTEN
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, exit_code

HASTEN = os.path.abspath(sys.argv[1])
FOLDER = tempfile.mkdtemp()
os.environ.update(HASTEN_HOME=FOLDER, HF_HOME=FOLDER, OMP_NUM_THREADS="1")  # without the user's configuration file


def rank_process(launcher, rank):
    """Returns the process of a rank that a `hasten test` has started."""
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                variables = (folder / "environ").read_bytes().split(b"\0")
                parents = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                grandparent = int(pathlib.Path(f"/proc/{parents}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if b"test-rank" in arguments[:3] and f"RANK={rank}".encode() in variables and grandparent == launcher:
                return int(folder.name)
    return None


def four_ranks():
    done = subprocess.run([HASTEN, "test", "-n", "4", "--json"], capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, "four ranks pass", done.stdout, done.stderr)
    document = json.loads(done.stdout)
    check(document["passed"] and document["failed"] == 0 and len(document["checks"]) == 29, "the JSON document says so", done.stdout)
    check("All 29 checks passed: ready" in done.stderr, "standard error has the lines", done.stderr)
    bandwidth = next(each for each in document["checks"] if each["check"] == "all-reduce of 64 MB")
    check(bandwidth["numbers"]["bus_gb_s"] > 0, "the bandwidth is a number", bandwidth)


def check_stopped_rank(rank, named, *arguments):
    """`hasten test` must find one of three ranks that is stopped during the test."""
    began = time.monotonic()
    process = subprocess.Popen([HASTEN, "test", "-n", "3", "--timeout", "4", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text, stopped = "", None
    for line in process.stdout:
        text += line
        if stopped is None and re.match("ok +process state", line):
            stopped = rank_process(process.pid, rank)
            os.kill(stopped, signal.SIGSTOP)
    code = process.wait()
    check(code == 1, f"a stopped rank fails the test, after {time.monotonic() - began:.1f} s", text)
    check(re.search(named, text, re.M), "the report names it", text)
    check(re.search(r"^ok +rendezvous", text, re.M), "the machine's own checks are still reported", text)
    check(not os.path.exists(f"/proc/{stopped}"), "its process does not remain", text)


def stopped_rank():
    # Other ranks may wait for it in a collective until the collective's timeout, and then count as late, too.
    check_stopped_rank(1, r"^FAIL .*: got no answer from ranks? ([0-9], )*1.*, expected one within 4 s")


def stopped_main():
    check_stopped_rank(0, "^FAIL .*: no message from rank 0 for 14 s", "--grace_period", "1")


def killed_rank():
    process = subprocess.Popen([HASTEN, "test", "-n", "2", "--timeout", "20"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text, killed = "", False
    for line in process.stdout:
        text += line
        if not killed and re.match("ok +process state", line):
            os.kill(rank_process(process.pid, 1), signal.SIGKILL)
            killed = True
    check(process.wait() == 1 and re.search(r"^FAIL .*hasten launch ended with code 137", text, re.M), "a killed rank fails the test", text)
    check("rank 1 on" in text, "the launcher names it", text)


def interrupted():
    process = subprocess.Popen([HASTEN, "test", "-n", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process.stdout.readline()
    time.sleep(0.3)
    ranks = [rank for rank in (rank_process(process.pid, i) for i in range(2)) if rank]
    process.kill()
    process.wait()
    until = time.monotonic() + 5
    while time.monotonic() < until and any(os.path.exists(f"/proc/{rank}") for rank in ranks):
        time.sleep(0.02)
    check(ranks and not any(os.path.exists(f"/proc/{rank}") for rank in ranks), "a killed `hasten test` leaves no rank")


for case in (four_ranks, stopped_rank, stopped_main, killed_rank, interrupted):
    print(case.__name__, flush=True)
    case()
sys.exit(exit_code())
