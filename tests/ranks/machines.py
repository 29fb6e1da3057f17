#!/usr/bin/env python3
"""Launches over several machines, each a network namespace with its own address, and removes machines.

    machines.py HASTEN COLLECTIVES

Needs root and iproute2, or else prints "skipped: why". The time limits leave room for a machine that other programs keep
busy. Each limit is still shorter than the delay that it is meant to detect, such as a sleep of 60 s or the 10 s of a name server.
"""
import argparse
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from checks import check, exit_code
from clean import CLEAN

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("hasten")
parser.add_argument("collectives")
parser.add_argument("--part", choices=("launchers", "ranks"), help="run only the cases in which ranks wait, or only those in which ranks compute")
parser.add_argument("--only", help="run only the cases whose name contains this")
options = parser.parse_args()
HASTEN, COLLECTIVES = (os.path.abspath(path) for path in (options.hasten, options.collectives))
FOLDER = pathlib.Path(tempfile.mkdtemp())
TOKEN = "the secret of these machines 0123456789".replace(" ", "-")
VARIABLES = CLEAN | {"OMP_NUM_THREADS": "1"}


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True)


class Machines:
    """Network namespaces on one bridge. The bridge is also in a namespace, so that this machine's own network stays unchanged."""

    def __init__(self, count):
        self.mark = f"hst{os.getpid()}"
        self.hub, self.count = f"{self.mark}h", count
        self.names = [f"{self.mark}m{i}" for i in range(count)]

    def __enter__(self):
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        ip("-n", self.hub, "link", "set", "br0", "up")
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", self.hub, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", self.hub, "link", "set", f"port{i}", "master", "br0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def cable(self, machine, state):
        ip("-n", self.hub, "link", "set", f"port{machine}", state)

    def command(self, machine, arguments):
        inside = f'hostname node{machine}; exec "$@"'
        return ["ip", "netns", "exec", self.names[machine], "unshare", "-u", "sh", "-c", inside, "sh", *map(str, arguments)]


class Launch:
    """The launcher of one machine, with its output."""

    def __init__(self, machines, machine, *arguments, token=TOKEN, command="launch", **environment):
        self.began = time.monotonic()
        self.process = subprocess.Popen(machines.command(machine, [HASTEN, command, *arguments]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env=VARIABLES | {"HASTEN_JOB_TOKEN": token} | environment)
        self.text, self.ended_after = "", None
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line
        self.process.wait()
        self.ended_after = time.monotonic() - self.began

    def prints(self, what, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if re.search(what, self.text):
                return True
            time.sleep(0.01)
        return False

    def end(self, seconds=60):
        self.reader.join(seconds)
        if self.reader.is_alive():
            self.process.kill()
            self.reader.join(5)
            return "it did not end"
        return self.process.returncode


def program(text):
    file = FOLDER / f"program_{time.monotonic_ns()}"
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    return file


def alive(mark):
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                if len(arguments) > 1 and str(mark).encode() in arguments[:3] and b"launch" not in arguments:
                    found.append(int(folder.name))
            except OSError:
                pass
    return found


def have_ended(mark, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not alive(mark):
            return True
        time.sleep(0.02)
    return False


PRINT_RANK = ('echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, machine $GROUP_RANK of $GROUP_WORLD_SIZE, '
              '$MASTER_ADDR:$MASTER_PORT, attempt $TORCHELASTIC_RESTART_COUNT, store $HASTEN_STORE"\n')


def static(number, rank, *arguments):
    return ["--num_machines", number, "--machine_rank", rank, "--main_process_ip", "10.77.0.1", *arguments]


def elastic(numbers, *arguments):
    return ["--nnodes", numbers, "--rdzv_endpoint", "10.77.0.1:29555", "--rdzv_conf", "last_call_timeout=1,keep_alive_timeout=2", *arguments]


def rank_lines(launches):
    return sorted(line for launch in launches for line in re.findall(r"rank \d+ of \d+, local.*", launch.text))


def static_machines(machines):
    ranks = program(PRINT_RANK)
    first = Launch(machines, 1, *static(3, 1), "--num_processes", 6, ranks)
    check(first.prints(r"waiting at 10.77.0.1:29500: Connection refused, from 10.77.0.2 \(eth0\)"),
          "a machine that waits for the rendezvous reports the address, the reason and its interface", first.text)
    host = Launch(machines, 0, *static(3, 0), "--num_processes", 6, ranks)
    check(host.prints(r"2 of 3 machines are present: .*node1 \(10.77.0.2\).*; missing: machine_rank 2; 59\d s left"),
          "a machine that waits for the others reports which are missing, and for how long", host.text)
    launches = [first, host, Launch(machines, 2, *static(3, 2), "--num_processes", 6, ranks)]
    check([launch.end() for launch in launches] == [0, 0, 0], "all launchers succeed", *(launch.text for launch in launches))
    lines = rank_lines(launches)
    places = [re.match(r"rank (\d) of 6, local (\d) of 2, machine (\d) of 3", line) for line in lines]
    check([tuple(map(int, place.groups())) for place in places if place] == [(i, i % 2, i // 2) for i in range(6)],
          "three machines have six ranks, in order", *lines)
    check(len({line.split(",")[3] for line in lines}) == 1 and "10.77.0.1:" in lines[0], "all have the same address and port of rank 0", *lines)
    check(all("store 10.77.0.1:29500" in line for line in lines), "all have the same store")


def collectives_over_machines(machines):
    launches = [Launch(machines, rank, *static(3, rank), "--nproc_per_node", 2, COLLECTIVES, 2) for rank in range(3)]
    check([launch.end() for launch in launches] == [0, 0, 0] and sum(launch.text.count("good") for launch in launches) == 6,
          "every collective is right for six ranks on three machines", *(launch.text for launch in launches))
    # Without hasten launch, rank 0 serves the store and requires the token.
    def rank(i, token=TOKEN):
        return subprocess.Popen(machines.command(i, [COLLECTIVES]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=VARIABLES | {"RANK": str(i), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(i),
                                             "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29501"} |
                                    ({"HASTEN_JOB_TOKEN": token} if token else {}))
    ranks = [rank(0), rank(1)]
    texts = [each.communicate(timeout=60)[0] for each in ranks]
    check([each.returncode for each in ranks] == [0, 0], "two ranks without a launcher meet with the token", *texts)
    ranks = [rank(0, None), rank(1, None)]
    texts = [each.communicate(timeout=60)[0] for each in ranks]
    check([each.returncode for each in ranks] == [0, 0], "they also meet without a token, by c10d's TCPStore", *texts)
    ranks = [rank(0), rank(1, "some other token than the first".replace(" ", "-"))]
    text = ranks[1].communicate(timeout=60)[0]
    check(ranks[1].returncode == 3 and "has refused this process" in text, "a rank with another token is refused", text)
    ranks[0].kill()
    ranks[0].communicate()


def unauthorized_clients(machines):
    sleeper = program(PRINT_RANK + "sleep 6\n")
    job = [Launch(machines, rank, *static(2, rank), sleeper) for rank in range(2)]
    check(all(launch.prints("rank") for launch in job), "a job is running", *(launch.text for launch in job))
    wrong = Launch(machines, 2, *static(2, 1), sleeper, token="a token of another job, 1234".replace(" ", "-"))
    check(wrong.end() == 2 and "has refused this machine" in wrong.text and wrong.ended_after < 6,
          f"a launcher with another token is refused, after {wrong.ended_after:.2f} s", wrong.text)
    for what, arguments, expected in [
            ("machine_rank", static(2, 1), "machine_rank of node2 .*: got 1, which node1 .* already has"),
            ("num_machines", static(3, 2), "number of machines given on node2: got 3:3, expected 2:2"),
    ]:
        other = Launch(machines, 2, *arguments, sleeper)
        check(other.end() == 2 and re.search(expected, other.text), f"a launcher with another {what} is refused", other.text)
    other = Launch(machines, 2, *static(2, 1), program("sleep 6 # other\n"))
    check(other.end() == 2, "a launcher with another program is refused", other.text)
    noise = subprocess.run(machines.command(2, [sys.executable, "-c", (
        "import socket, os\n"
        "for i in range(50):\n"
        "    s = socket.create_connection(('10.77.0.1', 29500), 2); s.sendall(os.urandom(300)); s.close()\n"
        "idle = [socket.create_connection(('10.77.0.1', 29500), 2) for i in range(300)]\n")]), capture_output=True, text=True, timeout=30)
    check(noise.returncode == 0, "an unauthorized client sends noise and holds hundreds of silent connections", noise.stderr)
    check([launch.end() for launch in job] == [0, 0], "none of them disturbs the job", *(launch.text for launch in job))


def different_program(machines):
    job = [Launch(machines, 0, *static(2, 0), program("exit 0\n"))]
    time.sleep(0.3)
    other = Launch(machines, 1, *static(2, 1), program("exit 0 # other\n"))
    check(other.end() == 2 and "program on node1: got" in other.text, "a launcher with another program is refused before the job starts", other.text)
    same = Launch(machines, 1, *static(2, 1), program("exit 0\n"))
    check(same.end() == 0 and job[0].end() == 0, "a launcher with the same program is still accepted", same.text, job[0].text)


def failure(machines):
    fails = program('[ "$RANK" = 3 ] || exec sleep 60\nsleep 0.3; head -c 9000 /dev/zero | tr "\\0" x; echo; echo "last words"; kill -SEGV $$\n')
    launches = [Launch(machines, rank, *static(2, rank), "--nproc_per_node", 2, fails) for rank in range(2)]
    check([launch.end() for launch in launches] == [139, 139], "every launcher returns the exit code of the failed rank", *(launch.text for launch in launches))
    check("rank 3 on node1" in launches[0].text and "SIGSEGV" in launches[0].text and "| last words" in launches[0].text,
          "the other machine reports the rank, its machine, the reason and its last lines", launches[0].text)
    check(re.search(r"\| x{1024} \.\.\.\n", launches[0].text) and "x" * 9000 in launches[1].text,
          "a long line is truncated in the report, and complete on its own machine", launches[0].text[:3000])
    seconds = max(launch.ended_after for launch in launches)
    check(seconds < 20, f"all launchers end {seconds:.1f} s after the start")


def restart(machines):
    dies = program(PRINT_RANK + '[ "$TORCHELASTIC_RESTART_COUNT" -ge 2 ] && exit 0\n[ "$RANK" = 2 ] && sleep 0.2 && kill -9 $$\nexec sleep 60\n')
    launches = [Launch(machines, rank, *static(2, rank), "--nproc_per_node", 2, "--max_restarts", 2, dies) for rank in range(2)]
    check([launch.end() for launch in launches] == [0, 0], "ranks that are killed twice start three times", *(launch.text for launch in launches))
    ports = set(re.findall(r"10.77.0.1:(\d+), attempt", "".join(launch.text for launch in launches)))
    check(len(ports) == 3, f"each start has another port: {sorted(ports)}")
    check("stopping the processes: rank 2 on node1" in launches[0].text, "the other machine reports the reason", launches[0].text)
    check("stopping the processes" not in launches[1].text, "the machine of the failure does not repeat the reason", launches[1].text)
    check(launches[0].text.count("restarting all processes on 2 machines\n") == 2, "each restart is reported", launches[0].text)


def elastic_machines(machines):
    waits = program(PRINT_RANK + f"while [ ! -e {FOLDER}/go ]; do sleep 0.05; done\n")
    launches = [Launch(machines, i, *elastic("2:3"), "--nproc_per_node", 2, "--max_restarts", 1, waits) for i in range(2)]
    check(all(launch.prints("rank . of 4", 30) for launch in launches), "two of at most three machines start after the last call", *(l.text for l in launches))
    third = Launch(machines, 2, *elastic("2:3"), "--nproc_per_node", 2, "--max_restarts", 1, waits)
    check(third.prints("rank [45] of 6", 30) and launches[0].prints("rank 0 of 6", 30), "a third machine is admitted", third.text, launches[0].text)
    check("node2 has joined" in launches[0].text, "the others report it")
    began = time.monotonic()
    third.process.kill()
    third.end()
    check(launches[0].prints("attempt 2", 30), f"after it is killed, two continue, {time.monotonic() - began:.2f} s later", launches[0].text)
    check("is lost" in launches[0].text and launches[1].prints("rank 2 of 4.*attempt 2", 30), "they report the reason", launches[1].text)
    (FOLDER / "go").touch()
    check([launch.end() for launch in launches] == [0, 0], "the job succeeds", *(l.text for l in launches))
    (FOLDER / "go").unlink()


def stopped_by_signal(machines):
    """USR1 to both launchers stops the job with the code 138. No launcher disturbs ranks that still save, and none starts again."""
    stops = program('stop() { if [ $GROUP_RANK = $SLOW ]; then for i in 1 2 3 4; do sleep 0.5; done; fi; echo saved; exit 138; }\n'
                    'trap stop USR1\ntrap "echo ended; exit 143" TERM\necho up\nwhile :; do sleep 0.1; done\n')
    for slow, restarts, order in ((0, 0, (0, 1)), (1, 0, (0, 1)), (0, 1, (1, 0)), (1, 1, (0, 1)), (0, 2, (0, 1))):
        launches = [Launch(machines, rank, *static(2, rank), "--nproc_per_node", 2, "--max_restarts", restarts, stops, SLOW=str(slow)) for rank in range(2)]
        check(all(launch.prints(r"up\n(.|\n)*up\n") for launch in launches), "two machines run", *(launch.text for launch in launches))
        launches[order[0]].process.send_signal(signal.SIGUSR1)
        time.sleep(0.7)  # the signal comes late to the second machine, as it may in Slurm
        launches[order[1]].process.send_signal(signal.SIGUSR1)
        codes = [launch.end(30) for launch in launches]
        saved, ended = (sum(launch.text.count(word) for launch in launches) for word in ("] saved\n", "] ended\n"))
        check((codes, saved, ended) == ([138, 138], 4, 0), f"USR1 stops both machines, of which {slow} is slow, with {restarts} restarts left: {codes}",
              *(launch.text for launch in launches))


def leaving(machines):
    waits = program(PRINT_RANK + f"while [ ! -e {FOLDER}/go ]; do sleep 0.05; done\n")
    launches = [Launch(machines, i, *elastic("1:2"), waits) for i in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
    launches[1].process.send_signal(signal.SIGTERM)
    check(launches[1].end() == 143, "SIGTERM ends one launcher with code 143", launches[1].text)
    check(launches[0].prints("rank 0 of 1.*attempt 1", 30), "the other one continues alone, without using a restart", launches[0].text)
    (FOLDER / "go").touch()
    check(launches[0].end() == 0, "the job succeeds", launches[0].text)
    (FOLDER / "go").unlink()
    launches = [Launch(machines, rank, *static(2, rank), program(PRINT_RANK + "exec sleep 60\n")) for rank in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "a fixed number of machines is running", *(l.text for l in launches))
    launches[1].process.send_signal(signal.SIGINT)
    check([launch.end() for launch in launches] == [130, 130], "with a fixed number of machines, no machine continues", *(l.text for l in launches))


def preempted(machines):
    """A machine that leaves by SIGTERM does no more harm than one that is killed."""
    waits = program(PRINT_RANK + f"while [ ! -e {FOLDER}/go ]; do sleep 0.05; done\n")
    arguments = [*elastic("2:3"), "--max_restarts", 1, waits]
    launches = [Launch(machines, i, *arguments) for i in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "two of two to three machines are running", *(l.text for l in launches))
    launches[1].process.send_signal(signal.SIGTERM)
    check(launches[1].end() == 143, "SIGTERM ends one launcher with code 143", launches[1].text)
    check(launches[0].prints("1 of 2 to 3 machines are present", 30), "the other one waits for another machine", launches[0].text)
    third = Launch(machines, 2, *arguments)
    check(third.prints("of 2, local.*attempt 1", 30), "it continues with the new machine", third.text, launches[0].text)
    (FOLDER / "go").touch()
    check([launches[0].end(), third.end()] == [0, 0], "the job succeeds", launches[0].text, third.text)
    (FOLDER / "go").unlink()

    launches = [Launch(machines, rank, *static(2, rank), "--max_restarts", 1, waits) for rank in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "a fixed number of machines with a restart left is running", *(l.text for l in launches))
    launches[1].process.send_signal(signal.SIGTERM)
    check(launches[1].end() == 143 and launches[0].prints("1 of 2 machines are present.*missing: machine_rank 1", 30),
          "if one leaves, the other waits for it", launches[0].text)
    again = Launch(machines, 2, *static(2, 1), "--max_restarts", 1, waits)
    check(again.prints("rank 1 of 2.*attempt 1", 30), "it restarts with the machine that replaces it", again.text, launches[0].text)
    (FOLDER / "go").touch()
    check([launches[0].end(), again.end()] == [0, 0], "the job succeeds", launches[0].text, again.text)
    (FOLDER / "go").unlink()


def saving_program():
    """Returns a program for ranks that save for $SAVES seconds at the first SIGTERM, and end at once at a second one."""
    return program(f"""exec {sys.executable} -uc '
import os, signal, time
signals = []
def on_signal(*_):
    signals.append(time.monotonic())
    if len(signals) > 1:
        print("second signal: not saved")
        os._exit(9)
signal.signal(signal.SIGTERM, on_signal)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "runs, attempt", os.environ["TORCHELASTIC_RESTART_COUNT"])
while not signals or time.monotonic() < signals[0] + float(os.environ["SAVES"]):
    time.sleep(0.02)
print("saved")
'
""")


def saving_while_leaving(machines):
    """Ranks have grace_period to save, no matter what happens to the other machines in the meantime, and get only one signal."""
    def job(seconds, arguments):
        ranks = saving_program()
        return [Launch(machines, i, *arguments(i), "--grace_period", 20, ranks, SAVES=str(seconds[i])) for i in range(2)]
    # The ranks of node1 save for three times keep_alive_timeout. On a busy machine a launcher may not run for more than a second.
    one = job((0, 9), lambda _: [*elastic("1:2"), "--rdzv_conf", "last_call_timeout=1,keep_alive_timeout=3"])
    both = job((0, 3), lambda i: static(2, i, "--main_process_port", 29600))
    later = job((4, 4), lambda i: static(2, i, "--main_process_port", 29601))
    for launches in (one, both, later):
        check(all(launch.prints("of 2 runs", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
    for launch in (one[1], both[1], both[0], later[1]):
        launch.process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    later[0].process.send_signal(signal.SIGTERM)
    for what, launches in (("both at once", both), ("one after the other", later)):
        check([launch.end(40) for launch in launches] == [143, 143], f"two machines leave, {what}", *(l.text for l in launches))
        check([launch.text.count("saved") for launch in launches] == [1, 1] and "second signal" not in launches[0].text + launches[1].text,
              "the ranks of both machines have saved", *(l.text for l in launches))
    check(one[1].end(40) == 143 and "] saved" in one[1].text, "the ranks of a machine that leaves may save for longer than keep_alive_timeout", one[1].text)
    check(one[0].prints("of 1 runs, attempt 1", 30), "the other machine has continued", one[0].text)
    one[0].process.send_signal(signal.SIGTERM)
    check(one[0].end(40) == 143, "it runs until its own SIGTERM", one[0].text)


def silent_while_leaving(machines):
    """The machine that hosts the rendezvous waits for the others until grace_period is over or the next signal arrives."""
    obeys, refuses = program(PRINT_RANK + "exec sleep 60\n"), program("trap '' TERM\n" + PRINT_RANK + "while :; do sleep 0.05; done\n")
    def job(port, grace, ranks):
        return [Launch(machines, i, *static(2, i, "--main_process_port", port), "--grace_period", grace, ranks) for i in range(2)]
    jobs = [job(29600, 30, obeys), job(29601, 4, refuses)]
    for launches in jobs:
        check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
        launches[1].process.send_signal(signal.SIGSTOP)
        launches[0].process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    time.sleep(1)
    jobs[0][0].process.send_signal(signal.SIGTERM)
    check(jobs[0][0].end(25) == 143, f"it ends at the second signal, {time.monotonic() - began:.1f} s after the first one", jobs[0][0].text)
    check(jobs[1][0].end(25) == 143 and time.monotonic() - began < 20, f"without a second signal it ends {time.monotonic() - began:.1f} s after the first one", jobs[1][0].text)
    for launches in jobs:
        launches[1].process.send_signal(signal.SIGKILL)
        launches[1].end()


def cannot_start(machines):
    """Ranks that cannot be started on one machine end the job at once, with the reason on every machine."""
    ranks = program("trap '' TERM\n" + PRINT_RANK + "while :; do sleep 0.05; done\n")
    for number, (what, restarts) in enumerate((("no restart", 0), ("a restart", 1))):
        arguments = ["--main_process_port", 29600 + number, "--max_restarts", restarts, "--grace_period", 20]
        launches = [Launch(machines, 0, *static(2, 0), *arguments, "--log_dir", "/proc/none", ranks), Launch(machines, 1, *static(2, 1), *arguments, ranks)]
        check(launches[1].prints("stopping the processes: node0: .*/proc/none", 30), f"with {what} left, the other machine reports the reason", launches[1].text)
        if restarts:
            launches[0].process.send_signal(signal.SIGTERM)
        check(launches[0].end() == 4 and "error[io.write]" in launches[0].text, "the machine itself reports it, also after a signal", launches[0].text)
        check(launches[1].end() != 0 and max(launch.ended_after for launch in launches) < 18,
              f"both launchers end after {max(launch.ended_after for launch in launches):.1f} s", launches[1].text)


def stop_reason_is_reported(machines):
    """The reason for stopping the ranks is reported before the next round."""
    launches = [Launch(machines, i, *static(2, i), "--max_restarts", 1, program(PRINT_RANK + "exec sleep 60\n")) for i in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
    launches[1].process.kill()
    check(launches[0].prints(r"stopping the processes: machine 1 \(node1, 10.77.0.2\) is lost", 30), "a lost machine is reported", launches[0].text)
    check(launches[0].prints("1 of 2 machines are present", 30), "its place is free", launches[0].text)
    launches[0].process.send_signal(signal.SIGTERM)
    check(launches[0].end(30) == 143, "the launcher ends by a signal while the place is free", launches[0].text)


def spare_machine(machines):
    waits = program(PRINT_RANK + f"while [ ! -e {FOLDER}/go ]; do sleep 0.05; done\n")
    launches = [Launch(machines, i, *elastic("1:2"), waits) for i in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
    third = Launch(machines, 2, *elastic("1:2"), waits)
    time.sleep(2.5)  # longer than last_call_timeout
    third.process.send_signal(signal.SIGTERM)
    check(third.end() == 143, "a machine that waits for a place ends by SIGTERM", third.text)
    time.sleep(1)
    (FOLDER / "go").touch()
    check([launch.end() for launch in launches] == [0, 0] and "attempt 1" not in "".join(l.text for l in launches),
          "the others have continued", *(l.text for l in launches))
    (FOLDER / "go").unlink()


def disconnected_machine(machines):
    sleeper = program(PRINT_RANK + "exec sleep 77\n")
    launches = [Launch(machines, i, *elastic("3"), sleeper) for i in range(3)]
    check(all(launch.prints("of 3, local", 30) for launch in launches), "three machines are running", *(l.text for l in launches))
    began = time.monotonic()
    machines.cable(2, "down")
    check([launches[0].end(60), launches[1].end(60)] == [1, 1], f"a disconnected machine ends the job, after {time.monotonic() - began:.1f} s",
          *(l.text for l in launches))
    check(re.search(r"machine . \(node2, 10.77.0.3\) is lost: no message for 2.0 s", launches[0].text), "the report names it", launches[0].text)
    check(launches[2].prints("lost the connection to the coordinator at .*: it sends no messages", 30), "it notices itself that it is disconnected", launches[2].text)
    machines.cable(2, "up")
    check(launches[2].end(40) == 1 and "is lost: it sends no messages" in launches[2].text, "it ends when it finds no coordinator", launches[2].text)


def reconnecting_machine(machines):
    """A disconnected launcher returns to its place in the job, and its ranks continue in the meantime."""
    for what, timeout, restarts, seconds, attempt in (("still counts it", 60, 0, 4, 0), ("has given it up", 2, 1, 6, 1)):
        waits = program(PRINT_RANK + f"while [ ! -e {FOLDER}/go ]; do sleep 0.05; done\n")
        arguments = ["--max_restarts", restarts, "--rdzv_conf"]
        launches = [Launch(machines, 0, *static(2, 0), *arguments, f"keep_alive_timeout={timeout}", waits),
                    Launch(machines, 1, *static(2, 1), *arguments, "keep_alive_timeout=1", waits)]
        check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
        machines.cable(1, "down")
        check(launches[1].prints("lost the connection to the coordinator", 30), "a disconnected launcher reports it", launches[1].text)
        time.sleep(seconds - 3)
        machines.cable(1, "up")
        check(launches[1].prints("connected to the coordinator at .* again", 60), f"it returns to a coordinator that {what}", launches[1].text)
        if attempt:
            check(launches[1].prints("rank 1 of 2.*attempt 1", 30), "both restart", launches[1].text, launches[0].text)
        (FOLDER / "go").touch()
        check([launch.end() for launch in launches] == [0, 0], "the job succeeds", *(l.text for l in launches))
        attempts = set(re.findall(r"attempt (\d)", launches[1].text))
        check(attempts == {str(i) for i in range(attempt + 1)}, f"its ranks start {attempt + 1} times", launches[1].text)
        (FOLDER / "go").unlink()


def suspended(machines):
    """The time in which a launcher is suspended does not count as silence of the other launchers."""
    for what, stopped in (("all launchers", (0, 1)), ("the launcher that hosts the rendezvous", (0,))):
        waits = program(PRINT_RANK + f"while [ ! -e {FOLDER}/go ]; do sleep 0.05; done\n")
        launches = [Launch(machines, i, *static(2, i), "--rdzv_conf", "keep_alive_timeout=2", waits) for i in range(2)]
        check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
        for i in stopped:
            launches[i].process.send_signal(signal.SIGSTOP)
        time.sleep(8)
        for i in stopped:
            launches[i].process.send_signal(signal.SIGCONT)
        time.sleep(4)
        (FOLDER / "go").touch()
        check([launch.end() for launch in launches] == [0, 0] and "attempt 1" not in "".join(l.text for l in launches),
              f"the job survives a suspension of 8 s of {what}", *(l.text for l in launches))
        (FOLDER / "go").unlink()


def dead_name_server(machines):
    """A name server that does not answer delays neither a signal nor join_timeout."""
    settings = pathlib.Path(f"/etc/netns/{machines.names[1]}")  # ip netns mounts these files over the machine's own
    settings.mkdir(parents=True)
    (settings / "resolv.conf").write_text("nameserver 10.77.0.99\n")
    (settings / "nsswitch.conf").write_text("hosts: files dns\n")
    ip("-n", machines.names[1], "neigh", "add", "10.77.0.99", "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
    for arguments in (["--num_machines", 2, "--machine_rank", 1, "--main_process_ip", "train-0.train"],
                      ["--nnodes", "1:2", "--rdzv_endpoint", "train-0.train:29500"]):
        launch = Launch(machines, 1, *arguments, program("exit 0\n"), KUBERNETES_SERVICE_HOST="1")
        time.sleep(1)
        launch.process.send_signal(signal.SIGTERM)
        check(launch.end(30) == 143 and launch.ended_after < 9, f"SIGTERM ends a lookup, {launch.ended_after - 1:.2f} s later", launch.text)
        late = Launch(machines, 1, *arguments, "--rdzv_conf", "join_timeout=2", program("exit 0\n"))
        check(late.end(30) == 4 and late.ended_after < 9, f"join_timeout=2 ends after {late.ended_after:.1f} s", late.text)
    ip("-n", machines.names[1], "neigh", "del", "10.77.0.99", "dev", "eth0")
    shutil.rmtree(settings)


def all_connections_occupied(machines):
    """If a machine outside the job holds all connections, a launcher is delayed, but not refused."""
    first = Launch(machines, 0, *static(2, 0), program("exit 0\n"))
    check(first.prints("waiting at"), "a launcher waits for another one", first.text)
    idle = subprocess.Popen(machines.command(2, [sys.executable, "-c", (
        "import socket, sys, time\n"
        "idle = [socket.create_connection(('10.77.0.1', 29500), 2) for i in range(400)]\n"
        "print('connected', flush=True); time.sleep(60)\n")]), stdout=subprocess.PIPE, text=True)
    idle.stdout.readline()
    second = Launch(machines, 1, *static(2, 1), program("exit 0\n"))
    check([second.end(30), first.end(30)] == [0, 0], f"it is admitted after {second.ended_after:.1f} s", second.text, first.text)
    idle.kill()
    idle.communicate()


def killed_coordinator_host(machines):
    sleeper = program("sleep 88 &\n" + PRINT_RANK + "exec sleep 88\n")
    launches = [Launch(machines, i, *static(2, i), sleeper) for i in range(2)]
    check(all(launch.prints("of 2, local", 30) for launch in launches), "two machines are running", *(l.text for l in launches))
    began = time.monotonic()
    launches[0].process.kill()
    check(launches[1].end(30) == 1 and "is lost" in launches[1].text, f"the other launcher ends after {time.monotonic() - began:.2f} s", launches[1].text)
    launches[0].end()
    check(have_ended(88, 2), f"no process remains, {time.monotonic() - began:.2f} s after the kill")


def bad_endpoints(machines):
    ranks = program(PRINT_RANK)
    unknown_host = pathlib.Path(f"/etc/netns/{machines.names[1]}/nsswitch.conf")  # ip netns mounts this file over the machine's own
    unknown_host.parent.mkdir(parents=True)
    unknown_host.write_text("hosts: files\n")
    unknown = Launch(machines, 1, "--num_machines", 2, "--machine_rank", 1, "--main_process_ip", "no.such.host.invalid", ranks)
    check(unknown.end(30) == 4 and "rendezvous.host" in unknown.text, "an unknown host is reported", unknown.text)
    shutil.rmtree(unknown_host.parent)
    unanswered = Launch(machines, 1, *static(2, 1), "--rdzv_conf", "join_timeout=2", ranks)
    check(unanswered.end(30) == 4 and "rendezvous.connect" in unanswered.text and unanswered.ended_after < 9, "a missing coordinator is reported in time", unanswered.text)
    alone = Launch(machines, 0, *static(2, 0), "--rdzv_conf", "join_timeout=2", ranks)
    check(alone.end(30) == 1 and "too few machines within join_timeout: 1 of 2" in alone.text, "missing machines are reported in time", alone.text)
    first = Launch(machines, 0, *static(2, 0), ranks)
    first.prints("waiting")
    second = Launch(machines, 0, *static(2, 0), ranks)
    check(second.end(30) == 4 and "rendezvous.port-taken" in second.text, "a port that is taken is reported", second.text)
    first.process.send_signal(signal.SIGTERM)
    check(first.end(30) == 143, "a waiting launcher can be stopped", first.text)


def enter(namespace):
    """Moves the calling thread into a network namespace."""
    file = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(file, 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(file)


def capture_traffic(machines, *arguments):
    """Runs the collectives on two machines and returns all bytes on the bridge between them."""
    seen, over, ready = bytearray(), threading.Event(), threading.Event()

    def listen():
        enter(machines.hub)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)) as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
            wire.settimeout(0.2)
            ready.set()
            while not over.is_set():
                try:
                    seen.extend(wire.recv(65535))
                except TimeoutError:
                    pass

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait()
    launches = [Launch(machines, rank, *static(2, rank), *arguments, COLLECTIVES, COLLECTIVES_BY_MESSAGES="1") for rank in range(2)]
    codes = [launch.end() for launch in launches]
    over.set()
    listener.join()
    check(codes == [0, 0] and len(seen) > 10000, f"the bridge carries {len(seen)} bytes", *(launch.text for launch in launches))
    return seen


# The tensor that rank 1 of the collectives sends, as long and as double.
TENSORS = [struct.pack("<6q", *range(100, 106)), struct.pack("<6d", *range(100, 106))]


def encrypted_traffic(machines):
    """The traffic between two machines contains no secrets in plain text."""
    seen = capture_traffic(machines)
    for text in (TOKEN.encode(), b"machine_rank", b"attempt 0/", b"gloo/", b"world_size", b"node1"):
        check(text not in seen, f"{text.decode()} is not readable")
    check(not any(tensor in seen for tensor in TENSORS), "no tensor is readable")
    check(b"\x17\x03\x03" in seen, "there are records of TLS")
    open_tensors = capture_traffic(machines, "--encrypt=no")
    check(all(tensor in open_tensors for tensor in TENSORS), "--encrypt=no: the tensors are readable")
    check(TOKEN.encode() not in open_tensors and b"world_size" not in open_tensors, "--encrypt=no: the token and the store are still not readable")
    launches = [Launch(machines, rank, *static(2, rank), "--encrypt=" + ("yes", "no")[rank], COLLECTIVES) for rank in range(2)]
    check([launch.end() for launch in launches] == [3, 3] and all("encryption between the ranks of a group: got" in launch.text for launch in launches),
          "machines that differ in encryption refuse each other", *(launch.text for launch in launches))


def listening_ports(machines, machine):
    """Returns the listening TCP ports of a machine."""
    table = subprocess.run(["ip", "netns", "exec", machines.names[machine], "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                           capture_output=True, text=True, check=True).stdout
    return {int(fields[1].rpartition(":")[2], 16) for fields in map(str.split, table.splitlines()) if fields[3] == "0A"}


def connection_flood(machines):
    """A machine outside the job connects to every listener, before, during and after the rendezvous."""
    over, made = threading.Event(), [0]

    def attack():
        enter(machines.names[2])
        sockets = []
        while not over.is_set():
            addresses = [(f"10.77.0.{machine + 1}", port) for machine in range(2) for port in listening_ports(machines, machine)]
            for address in addresses * 100:
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(address)
                sockets.append(client)
                made[0] += 1
                if made[0] % 2:
                    try:
                        client.send(os.urandom(8))
                    except OSError:
                        pass
            while len(sockets) > 500:
                sockets.pop(0).close()

    attacker = threading.Thread(target=attack)
    attacker.start()
    launches = [Launch(machines, 0, *static(2, 0), "--nproc_per_node", 2, COLLECTIVES, 100, COLLECTIVES_BY_MESSAGES="1")]
    while made[0] < 10000 and launches[0].process.poll() is None:
        time.sleep(0.05)
    launches.append(Launch(machines, 1, *static(2, 1), "--nproc_per_node", 2, COLLECTIVES, 100, COLLECTIVES_BY_MESSAGES="1"))
    codes = [launch.end(100) for launch in launches]
    over.set()
    attacker.join()
    check(codes == [0, 0], f"{made[0]} connections of an unauthorized client change nothing", *(launch.text for launch in launches))
    runs = [Launch(machines, rank, *static(2, rank), COLLECTIVES, 2000) for rank in range(2)]
    time.sleep(1.5)  # by then all ranks are connected, and they still run
    check(listening_ports(machines, 1) == set(), "no rank listens once all are connected", str(listening_ports(machines, 1)))
    check([run.end(100) for run in runs] == [0, 0], "the job succeeds", *(run.text for run in runs))


def hasten_test(machines):
    """hasten test runs on each machine."""
    tests = [Launch(machines, rank, *static(2, rank), "--nproc_per_node", 2, command="test") for rank in range(2)]
    check([test.end(120) for test in tests] == [0, 0], "hasten test passes on two machines", *(test.text for test in tests))
    check("local ranks: 0 to 1 on node0, 0 to 1 on node1" in tests[0].text and "All 29 checks passed: ready" in tests[0].text,
          "the machine of the main process prints the checks", tests[0].text)
    check(not re.search("^ok", tests[1].text, re.M) and "All 6 checks of this machine passed" in tests[1].text,
          "the other one prints only its own sum", tests[1].text)
    tests = [Launch(machines, rank, *static(2, rank), "--rdzv_conf", "join_timeout=4", command="test", token=token)
             for rank, token in enumerate((TOKEN, "some other token than the first".replace(" ", "-")))]
    check([test.end(60) for test in tests] == [1, 1], "hasten test with two tokens fails on both machines", *(test.text for test in tests))
    check("has refused this machine" in tests[1].text and "FAIL start: hasten launch ended with code 2" in tests[1].text,
          "the refused machine prints the reason", tests[1].text)
    check("missing: machine_rank 1" in tests[0].text and "FAIL start" in tests[0].text, "the other one names the missing machine", tests[0].text)


PARTS = {"launchers": [static_machines, unauthorized_clients, different_program, failure, restart, elastic_machines, stopped_by_signal, leaving, preempted,
                       saving_while_leaving, silent_while_leaving, cannot_start, stop_reason_is_reported, spare_machine, disconnected_machine,
                       reconnecting_machine, suspended, killed_coordinator_host, dead_name_server, all_connections_occupied, bad_endpoints],
         "ranks": [collectives_over_machines, encrypted_traffic, connection_flood, hasten_test]}


def main():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        print("skipped: network namespaces need root, iproute2 and util-linux")
        return 0
    try:
        with Machines(1):
            pass
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"skipped: no network namespaces here: {getattr(error, 'stderr', error)}")
        return 0
    with Machines(3) as machines:
        for case in (case for part, cases in PARTS.items() if options.part in (None, part) for case in cases):
            if options.only and options.only not in case.__name__:
                continue
            began = time.monotonic()
            print(f"{case.__name__}", flush=True)
            case(machines)
            print(f"        {time.monotonic() - began:.1f} s", flush=True)
    return exit_code()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main())
