#!/usr/bin/env python3
"""Kills what `hasten launch` has started, in every way, and looks at what is left.

    launch.py HASTEN [--trials N]     N restarts after a kill -9 (default 200)
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
os.environ.update(HASTEN_HOME=str(FOLDER), HF_HOME=str(FOLDER))  # no configuration file of the user's


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
    """A rank is killed at the first attempt while the others wait: all start again, on another port."""
    recovered, ports_differ, slowest = 0, 0, 0.0
    for trial in range(options.trials):
        victim = random.randrange(3)
        script = program(f'echo "$TORCHELASTIC_RESTART_COUNT $MASTER_PORT"\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n'
                         f'[ $RANK = {victim} ] && {{ sleep 0.0{random.randrange(10)}; kill -9 $$; }}\nexec sleep 60\n')
        began = time.monotonic()
        run = subprocess.run([HASTEN, "launch", "-n", "3", "--max_restarts", "1", script], capture_output=True, text=True, timeout=60)
        slowest = max(slowest, time.monotonic() - began)
        said = re.findall(r"\] ([01]) (\d+)", run.stdout)
        recovered += run.returncode == 0 and sum(attempt == "1" for attempt, _ in said) == 3
        ports_differ += len({port for _, port in said}) == 2
        script.unlink()
    check(recovered == options.trials, f"{recovered} of {options.trials} restarts after kill -9, the slowest in {slowest:.2f} s")
    check(ports_differ == options.trials, f"{ports_differ} of {options.trials} with a port of their own at each attempt")


def orphans():
    """Whoever is killed, nothing of the job is alive 2 s later: ranks, their children, and children in sessions of their own."""
    for who in ("launcher", "rank", "terminated launcher"):
        mark = f"{random.getrandbits(48):012x}"
        script = program(f"sh -c 'sleep 61; : {mark}' &\nsetsid sh -c 'sleep 62; : {mark}' &\nsh -c 'trap \"\" TERM INT; sleep 63; : {mark}'\n")
        launcher = subprocess.Popen([HASTEN, "launch", "-n", "2", "--grace_period", "1", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        check(until(lambda: len(marked(mark)) >= 6, 5), f"{who}: six processes of two ranks are alive")
        ranks = [int(pid) for pid in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
                 if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == script.name[:15]]
        began = time.monotonic()
        if who == "rank":
            os.kill(ranks[0], signal.SIGKILL)
        else:
            os.kill(launcher.pid, signal.SIGKILL if who == "launcher" else signal.SIGTERM)
        gone = until(lambda: not marked(mark), 2)
        check(gone, f"{who}: all of them are gone after {time.monotonic() - began:.2f} s")
        launcher.kill()
        launcher.wait()


def reports():
    """A killed rank is told of at once, though the others hang."""
    script = program("[ $RANK = 1 ] && { sleep 0.3; echo last words; kill -9 $$; }\ntrap '' TERM\nwhile :; do sleep 60; done\n")
    launcher = subprocess.Popen([HASTEN, "launch", "-n", "3", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    began = time.monotonic()
    text = launcher.stderr.readline()
    told = time.monotonic() - began - 0.3
    check(told < 0.5, f"a killed rank is told after {max(told, 0):.2f} s, while others hang")
    text += launcher.stderr.read()
    code = launcher.wait()
    check(code == 137, f"the first failure's code is the launcher's: {code}")
    check("rank 1" in text and "signal 9 (SIGKILL)" in text and "| last words" in text, "the report names rank, signal and last words")


def signals():
    """Signals reach every rank; a second Ctrl-C kills; the launcher's code is the signal's."""
    script = program("trap 'echo usr1' USR1\ntrap 'echo term; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n")
    launcher = subprocess.Popen([HASTEN, "launch", "-n", "2", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(2):
        launcher.stdout.readline()
    launcher.send_signal(signal.SIGUSR1)
    heard = [launcher.stdout.readline().split()[-1] for _ in range(2)]
    launcher.send_signal(signal.SIGTERM)
    rest = launcher.stdout.read().split()
    check(heard == ["usr1", "usr1"] and rest.count("term") == 2, "SIGUSR1 and SIGTERM reach both ranks")
    check(launcher.wait() == 143, "and the code is 143")

    script = program("trap '' INT TERM\necho up\nwhile :; do sleep 60; done\n")
    launcher = subprocess.Popen([HASTEN, "launch", "-n", "2", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(2):
        launcher.stdout.readline()
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.2)
    check(launcher.poll() is None, "ranks that ignore a first Ctrl-C have their grace")
    began = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    check(launcher.wait(5) == 130 and time.monotonic() - began < 1, "a second one kills them")


for test in (orphans, reports, signals, restarts):
    test()
sys.exit(1 if failures else 0)
