#!/usr/bin/env python3
"""The watchdog reports a late rank with its number, step, call and stack, within a second after the limit.

    watchdog.py HANG HASTEN
"""
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from checks import check, exit_code
from clean import CLEAN

HANG, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])
VARIABLES = CLEAN | {"OMP_NUM_THREADS": "1"}
CODE = 75  # docs/errors.md
LIMIT = 2  # seconds; a busy machine also needs this time to form the group


class Job:
    """A job that ran to its end: its output with the time of each line, and the exit codes of its processes.

    `errors` is the file for standard error; by default it is the output. `meanwhile` is called with the job, in a thread, when
    `ranks` ranks have begun. A job that still runs after `limit` seconds is killed.
    """

    def __init__(self, arguments, environments=({},), limit=60, errors=None, meanwhile=None, ranks=2):
        read, write = os.pipe()
        self.lines, self.processes, self.was_killed = [], {}, False
        self.started = [subprocess.Popen(list(map(str, arguments)), stdout=write, stderr=write if errors is None else errors,
                                         env=VARIABLES | environment) for environment in environments]
        os.close(write)
        killer = threading.Timer(limit, self.kill)
        killer.start()
        companion = None
        with os.fdopen(read, errors="replace") as output:
            for line in output:
                self.lines.append((time.time(), line.rstrip("\n")))
                if begun := re.search(r"rank (\d+) pid (\d+) begins", line):
                    self.processes[int(begun[1])] = int(begun[2])
                    if meanwhile and len(self.processes) == ranks:
                        companion = threading.Thread(target=meanwhile, args=(self,))
                        companion.start()
        self.ended = time.time()
        self.codes = [process.wait(timeout=limit) for process in self.started]
        killer.cancel()
        if companion:
            companion.join()
        self.text = "\n".join(line for _, line in self.lines)

    def send(self, number):
        for pid in [process.pid for process in self.started if process.poll() is None] + list(self.processes.values()):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.was_killed = True
        self.send(signal.SIGKILL)

    def suspend(self, seconds):
        """Stops and wakes all processes of the job, like a scheduler that runs jobs in turn."""
        time.sleep(0.5)
        self.send(signal.SIGSTOP)
        time.sleep(seconds)
        self.send(signal.SIGCONT)

    def waits_since(self, *ranks):
        """Returns the time at which the last of these ranks began to wait."""
        begun = [re.search(rf"rank {rank} pid \d+ begins at ([0-9.]+)", self.text) for rank in ranks]
        return max(float(each[1]) for each in begun) if all(begun) else float("nan")

    def reported_at(self):
        return next((at for at, line in self.lines if "error[process.late-rank]" in line), float("inf"))

    def left(self):
        until = time.time() + 3
        while True:
            alive = [pid for pid in self.processes.values() if os.path.exists(f"/proc/{pid}")]
            if not alive or time.time() > until:
                return alive
            time.sleep(0.05)


def launch(case, count, *arguments, limit=LIMIT, environment={}, **options):
    return Job([HASTEN, "launch", "--no_config_file", "-n", count, *arguments, HANG, case, limit], [environment], ranks=count, **options)


def check_report(job, name, waiting, *patterns, late=None):
    delay = job.reported_at() - job.waits_since(*waiting)
    check(LIMIT <= delay <= LIMIT + 1, f"{name}: the report comes {delay:.2f} s after the wait begins, the limit is {LIMIT} s", job.text)
    for pattern in patterns:
        check(re.search(pattern, job.text), f"{name}: /{pattern}/", job.text)
    reports = {line.split("error[process.late-rank]", 1)[1] for _, line in job.lines if "error[process.late-rank]" in line}
    # The launcher repeats the last lines with a bar before each.
    shown = [line for _, line in job.lines if "error[process.late-rank]" in line and "| " not in line]
    check(len(reports) == 1 and len(shown) == 1, f"{name}: there is one report", job.text)
    check(all(code == CODE for code in job.codes), f"{name}: the exit code is {CODE}", job.codes, job.text)
    check(not job.left(), f"{name}: no process remains", job.text)
    if late is not None:
        check(re.search(rf"rank {late} on \S+ \(pid \d+\) was ended by its watchdog \(code 75\)", job.text),
              f"{name}: the launcher names rank {late}", job.text)


def sleeps():
    job = launch("sleeps", 3)
    check_report(job, "a rank in a function of the program", (0, 2),
                 r"rank 1 has not reached the group's \d+\w\w collective within 2 s; the job ends",
                 r"rank 1 \(\S+, pid \d+\): 0 steps done, not in a collective; its last one \(the \d+\w\w, all_gather of 4 x 512 float\) ended 2\.\d s ago",
                 r"(at|by) .*waits_for_a_file_that_never_comes\(\) in hang\+0x[0-9a-f]+",
                 r"ranks 0, 2: 0 steps done, in the \d+\w\w collective, all_reduce of 3 float, for 2\.\d s", late=1)
    check("what was printed before" in job.text, "output from before the hang is not lost", job.text)


def stops_early():
    job = launch("stops early", 3)
    check_report(job, "a rank with fewer collectives", (0, 1), r"rank 2 has not reached the group's 6th collective",
                 r"waits_for_a_file_that_never_comes", r"ranks 0, 1: .*in the 6th collective, all_reduce of 6 float", late=2)


def is_stopped():
    job = launch("is stopped", 3)
    check_report(job, "a rank that is stopped", (0, 2), r"rank 1 does not answer, and the group's 2nd collective has not ended",
                 r"rank 1 \(\S+, pid \d+\): does not answer; its process is stopped by a signal",
                 r"ranks 0, 2: .*in the 2nd collective, barrier, for 2\.\d s", r"rank [02] on .*was ended by its watchdog \(code 75\)")


def skips_backward():
    job = launch("skips backward", 2)
    check_report(job, "a rank that skips backward", (0,), r"rank 1 has not reached", r"rank 1 \(.*\): 2 steps done, not in a collective",
                 r"waits_for_a_file_that_never_comes", r"rank 0: 2 steps done, in the \d+\w\w collective, all_reduce of \d+ float \(gradients, bucket 0\)",
                 late=1)


def calls_another():
    job = launch("calls another", 3)
    check_report(job, "a rank in another collective", (0, 2),
                 r"rank 1 called barrier as the group's 2nd collective, but ranks 0, 2 called all_reduce \(max\) of 6 float; one of these calls has not ended",
                 r"rank 1 \(.*\): 0 steps done, in its 2nd collective, barrier, for 2\.\d s",
                 r"ranks 0, 2: .*all_reduce \(max\) of 6 float \(fold 3\)", late=1)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run_without_launcher(case, count, **options):
    """Runs the processes without a launcher; they use c10d's own store."""
    port = free_port()
    place = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return Job([HANG, case, LIMIT], [place | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)], **options)


def without_launcher():
    job = run_without_launcher("sleeps", 3)
    check_report(job, "c10d's TCPStore", (0, 2), r"rank 1 has not reached", r"waits_for_a_file_that_never_comes\(\) in hang\+0x")
    job = run_without_launcher("works long", 2)
    check(job.codes == [0, 0] and "late-rank" not in job.text and "TCPStore" not in job.text,
          "work that no rank waits for may take longer than the limit", job.text)


def store_is_stopped():
    """Rank 0 serves the store; the other rank cannot reach it, and still ends."""
    port = free_port()
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    stopped = subprocess.Popen([HANG, "store is stopped", str(LIMIT)], env=VARIABLES | place | {"RANK": "0", "LOCAL_RANK": "0"},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    job = Job([HANG, "store is stopped", LIMIT], [place | {"RANK": "1", "LOCAL_RANK": "1"}])
    os.kill(stopped.pid, signal.SIGKILL)
    stopped.communicate()
    check_report(job, "a store that is stopped", (1,), r"rank 0 does not answer", r"rank 0: does not answer; neither does the job's store",
                 r"rank 1: .*in the 2nd collective, barrier")


def switched_off():
    began = time.time()
    command = [HASTEN, "launch", "--no_config_file", "-n", 2, HANG, "sleeps", LIMIT]
    job = Job(command, [{"HASTEN_WATCHDOG": "off"}])
    check("late-rank" not in job.text and re.search(r"error\[process.rank-missing\]: .* rank 1 has not reached it", job.text) and job.codes == [4],
          f"off: the waiting collective throws, after {time.time() - began:.1f} s", job.text)
    job = Job(command, [{"HASTEN_WATCHDOG": "off", "HASTEN_SHARED_MEMORY": "off"}])
    check("late-rank" not in job.text and re.search(r"error\[process.rank-missing\]: a message between ranks.* within 2000 ms", job.text) and job.codes == [4],
          "off, by messages: the waiting message throws", job.text)


def never_there():
    job = launch("is never there", 2)
    check(re.search(r"error\[process.rank-missing\]: forming a group of 2 processes, on rank 0: got nothing from rank 1 within 2 s", job.text) and job.codes == [4],
          "a rank that never comes is named", job.text)


def is_suspended():
    """All processes of the job are stopped for longer than the limit, while one rank waits for the other."""
    limit, asleep = 5, 7  # the watchdog's clock counts at most two seconds of a suspension
    for name, environment in (("shared memory", {}), ("messages", {"HASTEN_SHARED_MEMORY": "off"}),
                              ("no watchdog", {"HASTEN_WATCHDOG": "off"})):
        job = launch("waits a little", 2, limit=limit, environment=environment, meanwhile=lambda job: job.suspend(asleep))
        check(job.codes == [0] and "rank 1 pid" in job.text and job.text.count(" ends at ") == 2,
              f"a job that is suspended for {asleep} s and woken continues, with {name}; the limit is {limit} s", job.codes, job.text)


def hangs_and_is_suspended():
    """The time that the job runs between its suspensions adds up."""
    def suspend_repeatedly(job):
        while any(process.poll() is None for process in job.started):
            job.suspend(2.5)
            time.sleep(1)

    job = launch("sleeps", 2, limit=4, meanwhile=suspend_repeatedly)
    check(job.codes == [CODE] and not job.was_killed and "error[process.late-rank]" in job.text,
          "a job that hangs is ended although it is suspended repeatedly", job.codes, job.text)


def hangs_in_the_loader():
    job = launch("hangs in the loader", 2)
    check_report(job, "a rank in the loader", (0,), r"rank 1 has not reached", r"by \(anonymous namespace\)::NeverReady::NeverReady\(\) in \S*hang_on_load.so\+0x", late=1)
    job = run_without_launcher("hangs in the loader", 2)
    check(job.codes == [CODE, CODE] and not job.was_killed, "each rank ends itself, also the one in the loader", job.codes, job.text)


def throws_with_work_under_way():
    job = launch("throws with work under way", 2)
    check(job.codes == [CODE] and not job.was_killed and "rank 1 has not reached the group's 2nd collective" in job.text,
          "a group whose destructor waits for a late rank is still watched", job.codes, job.text)


def cannot_print():
    """Standard error is a full pipe without a reader."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b" " * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    job = run_without_launcher("sleeps", 2, errors=write, limit=30)
    os.close(read)
    os.close(write)
    late = job.ended - job.waits_since(0)
    check(job.codes == [CODE, CODE] and not job.was_killed and late < LIMIT + 10,
          f"a report without a reader does not delay the end, {late:.1f} s", job.codes, job.text)


CASES = (sleeps, stops_early, is_stopped, skips_backward, calls_another, without_launcher, store_is_stopped, switched_off, never_there,
         is_suspended, hangs_and_is_suspended, hangs_in_the_loader, throws_with_work_under_way, cannot_print)
for case in CASES:
    if len(sys.argv) < 4 or case.__name__ in sys.argv[3:]:
        case()
sys.exit(exit_code())
