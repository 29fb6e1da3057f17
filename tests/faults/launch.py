#!/usr/bin/env python3
"""Kills processes that `hasten launch` has started, and checks what remains.

    launch.py HASTEN [--trials N]     N restarts after a kill -9 (default: 200)
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from processes import marked, until

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("hasten")
parser.add_argument("--trials", type=int, default=200)
options = parser.parse_args()
HASTEN = os.path.abspath(options.hasten)
FOLDER = pathlib.Path(tempfile.mkdtemp())
failures = 0
os.environ.update(HASTEN_HOME=str(FOLDER), HF_HOME=str(FOLDER))  # so that hasten does not read the user's configuration file


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


def program(text):
    file = FOLDER / f"program_{random.getrandbits(32):08x}"
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    return file


def restarts():
    """A rank is killed in the first attempt while the others wait. All ranks must restart on a different port."""
    recovered, ports_differ, slowest = 0, 0, 0.0
    for trial in range(options.trials):
        victim = random.randrange(3)
        script = program(f'echo "$TORCHELASTIC_RESTART_COUNT $MASTER_PORT"\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n'
                         f'[ $RANK = {victim} ] && {{ sleep 0.0{random.randrange(10)}; kill -9 $$; }}\nexec sleep 60\n')
        began = time.monotonic()
        run = subprocess.run([HASTEN, "launch", "-n", "3", "--max_restarts", "1", script], capture_output=True, text=True, timeout=60)
        slowest = max(slowest, time.monotonic() - began)
        attempts = re.findall(r"\] ([01]) (\d+)", run.stdout)
        has_recovered = run.returncode == 0 and sum(attempt == "1" for attempt, _ in attempts) == 3
        has_new_port = len({port for _, port in attempts}) == 2
        if not has_recovered or not has_new_port:
            print(f"trial {trial} ended with {run.returncode}\n{run.stdout}{run.stderr}")
        recovered += has_recovered
        ports_differ += has_new_port
        script.unlink()
    check(recovered == options.trials, f"{recovered} of {options.trials} restarts after kill -9, the slowest in {slowest:.2f} s")
    check(ports_differ == options.trials, f"{ports_differ} of {options.trials} restarts use a new port")


def orphans():
    """2 s after a kill, no process of the job is alive. This includes ranks, their children, and children in other sessions."""
    for killed in ("launcher", "rank", "terminated launcher"):
        mark = f"{random.getrandbits(48):012x}"
        script = program(f"sh -c 'sleep 61; : {mark}' &\nsetsid sh -c 'sleep 62; : {mark}' &\nsh -c 'trap \"\" TERM INT; sleep 63; : {mark}'\n")
        launcher = subprocess.Popen([HASTEN, "launch", "-n", "2", "--grace_period", "1", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        check(until(lambda: len(marked(mark)) >= 6, 5), f"{killed}: six processes of two ranks are alive")
        ranks = [int(pid) for pid in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
                 if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == script.name[:15]]
        began = time.monotonic()
        if killed == "rank":
            os.kill(ranks[0], signal.SIGKILL)
        else:
            os.kill(launcher.pid, signal.SIGKILL if killed == "launcher" else signal.SIGTERM)
        gone = until(lambda: not marked(mark), 2)
        check(gone, f"{killed}: all have ended after {time.monotonic() - began:.2f} s")
        launcher.kill()
        launcher.wait()


def reports():
    """A killed rank is reported at once, even if the others hang."""
    script = program("[ $RANK = 1 ] && { sleep 0.3; echo last output; kill -9 $$; }\ntrap '' TERM\nwhile :; do sleep 60; done\n")
    launcher = subprocess.Popen([HASTEN, "launch", "-n", "3", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    began = time.monotonic()
    text = launcher.stderr.readline()
    delay = time.monotonic() - began - 0.3
    check(delay < 0.5, f"a killed rank is reported after {max(delay, 0):.2f} s while others hang")
    text += launcher.stderr.read()
    code = launcher.wait()
    check(code == 137, f"the launcher ends with the code of the first failure: {code}")
    check("rank 1" in text and "signal 9 (SIGKILL)" in text and "| last output" in text, "the report has the rank, the signal and the last output")


def signals():
    """Signals reach every rank, a second Ctrl-C kills the ranks, and the launcher's exit code corresponds to the signal."""
    script = program("trap 'echo usr1' USR1\ntrap 'echo term; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n")
    launcher = subprocess.Popen([HASTEN, "launch", "-n", "2", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(2):
        launcher.stdout.readline()
    launcher.send_signal(signal.SIGUSR1)
    received = [launcher.stdout.readline().split()[-1] for _ in range(2)]
    launcher.send_signal(signal.SIGTERM)
    rest = launcher.stdout.read().split()
    check(received == ["usr1", "usr1"] and rest.count("term") == 2, "SIGUSR1 and SIGTERM reach both ranks")
    check(launcher.wait() == 143, "the launcher ends with code 143")

    script = program("trap '' INT TERM\necho up\nwhile :; do sleep 60; done\n")
    launcher = subprocess.Popen([HASTEN, "launch", "-n", "2", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(2):
        launcher.stdout.readline()
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.2)
    check(launcher.poll() is None, "the grace period follows the first Ctrl-C")
    began = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    check(launcher.wait(5) == 130 and time.monotonic() - began < 1, "the second Ctrl-C kills the ranks")


for test in (orphans, reports, signals, restarts):
    test()
sys.exit(1 if failures else 0)
