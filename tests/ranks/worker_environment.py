#!/usr/bin/env python3
"""Starts print_worker with real launchers and checks the workers that it prints.

    worker_environment.py PRINT_WORKER HASTEN LAUNCHER

LAUNCHER is hasten, open_mpi, mpich, slurm, torchrun or documented. A missing launcher is reported as "skipped: why". torchrun
belongs to the Python that HASTEN_REFERENCE_PYTHON names.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from clean import CLEAN
from rows import write_ids

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("print_worker")
parser.add_argument("hasten")
parser.add_argument("launcher")
options = parser.parse_args()
PROGRAM, HASTEN = (os.path.abspath(path) for path in (options.print_worker, options.hasten))
HERE = pathlib.Path(__file__).resolve().parent
failures = 0


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def run(*arguments, **more):
    """Runs a command in the environment CLEAN with the variables `more`."""
    return subprocess.run(list(map(str, arguments)), env=CLEAN | more, capture_output=True, text=True, timeout=120)


def workers_in(text):
    found = [json.loads(line) for line in re.findall(r"\{.*\}", text)]
    return sorted(found, key=lambda worker: worker["rank"])


def check_workers(what, workers, started_by, local_sizes, output=""):
    """Checks ranks 0 to n-1 once each, local ranks 0 to m-1 on each machine, and one address and port for all."""
    size = sum(local_sizes)
    right = [w["rank"] for w in workers] == list(range(size)) and {w["started_by"] for w in workers} == {started_by}
    expected = [(machine, local, count) for machine, count in enumerate(local_sizes) for local in range(count)]
    places = [(w["machine_rank"], w["local_rank"], w["local_world_size"]) for w in workers]
    right &= places == expected and all(w["world_size"] == size and w["num_machines"] == len(local_sizes) for w in workers)
    meeting = {(w["master_addr"], w["master_port"], w["job"], w["attempt"]) for w in workers}
    right &= len(meeting) == 1
    if right and size > 1:
        right &= bool(workers[0]["master_addr"]) and 1 <= workers[0]["master_port"] <= 65535
    where = f"{workers[0]['master_addr']}:{workers[0]['master_port']} by {workers[0]['port_source']}" if right and size > 1 else ""
    check(right, f"{what}: {size} of {started_by} on {len(local_sizes)} {where}")
    if not right:
        print(*workers, output, sep="\n")
    return workers


def check_run(what, started_by, local_sizes, *arguments, **more):
    result = run(*arguments, **more)
    return check_workers(what, workers_in(result.stdout), started_by, local_sizes, result.stdout + result.stderr)


def check_refused(what, message, *arguments, **more):
    result = run(*arguments, **more)
    output = result.stdout + result.stderr
    right = "launch.environment" in output and message in output and not workers_in(result.stdout)
    check(right, f"{what}: the error names {message}")
    if not right:
        print(output)


def with_hasten():
    one = check_run("hasten launch -n 1", "hasten launch", [1], HASTEN, "launch", "-q", "-n", 1, PROGRAM)
    four = check_run("hasten launch -n 4", "hasten launch", [4], HASTEN, "launch", "-q", "-n", 4, PROGRAM)
    check(bool(one and four) and one[0]["job"] != four[0]["job"], "two launches are two jobs")
    with tempfile.TemporaryDirectory() as folder:
        launches_at_once(pathlib.Path(folder))
        one_port_for_two(pathlib.Path(folder))


def waiting_program(folder):
    """A program that prints the worker and its store, and waits for the file `go`, so that all launches overlap."""
    file = folder / "waits"
    file.write_text(f'#!/bin/sh\n{PROGRAM}\necho "store $HASTEN_STORE"\nuntil [ -e {folder}/go ]; do sleep 0.02; done\n')
    file.chmod(0o755)
    return file


class Launch:
    """A hasten launch in the background that writes its output to a file."""
    count = 0

    def __init__(self, folder, *arguments):
        Launch.count += 1
        self.file = folder / f"launch-{Launch.count}"
        with self.file.open("w") as out:
            self.process = subprocess.Popen([HASTEN, "launch", *map(str, arguments)], env=CLEAN, stdout=out, stderr=subprocess.STDOUT, text=True)

    def text(self):
        return self.file.read_text()

    def prints(self, what, times=1):
        for _ in range(600):
            if len(re.findall(what, self.text())) >= times:
                return True
            time.sleep(0.05)
        return False


def launches_at_once(folder):
    program = waiting_program(folder)
    launches = [Launch(folder, "-q", "-n", 2, program) for _ in range(8)]
    check(all(launch.prints("store ", 2) for launch in launches), "eight launches run at once")
    (folder / "go").touch()
    codes = [launch.process.wait(60) for launch in launches]
    (folder / "go").unlink()
    check(codes == [0] * 8, f"all of them succeed: {codes}")
    print(*(launch.text() for launch, code in zip(launches, codes) if code != 0), sep="\n")
    ports, stores = set(), set()
    for launch in launches:
        workers = check_workers("one of the launches", workers_in(launch.text()), "hasten launch", [2], launch.text())
        ports |= {worker["master_port"] for worker in workers}
        stores |= set(re.findall(r"store (\S+)", launch.text()))
    check(len(ports) == 8 and len(stores) == 8, f"each has its own port and store: {sorted(ports)}")


def one_port_for_two(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = waiting_program(folder)
    first = Launch(folder, "-n", 2, "--main_process_port", port, program)
    check(first.prints("store ", 2), "a launch with a port runs")
    second = run(HASTEN, "launch", "-n", 2, "--main_process_port", port, program)
    check(second.returncode == 4 and "rendezvous.port-taken" in second.stderr and "store" not in second.stdout,
          "another launch with the same port is refused before it starts anything")
    (folder / "go").touch()
    check(first.process.wait(60) == 0, "the first launch is not disturbed")
    workers = check_workers("the first launch", workers_in(first.text()), "hasten launch", [2], first.text())
    check({worker["master_port"] for worker in workers} == {port}, "it has the requested port")


def check_launcher_refused(what, by, *arguments, **more):
    """Checks that one of several launchers starts nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "file"
        result = run(*arguments, HASTEN, "launch", "-n", 2, "touch", file, **more)
        output = result.stdout + result.stderr
        right = result.returncode != 0 and "launch.one-of-many" in output and f"started by {by}" in output and not file.exists()
        check(right, f"{what} hasten launch is refused and starts nothing")
        if not right:
            print(output)


def with_open_mpi():
    mpirun = shutil.which("mpirun.openmpi")
    if not mpirun:
        skip("Open MPI is missing (Debian: openmpi-bin)")
    print(run(mpirun, "--version").stdout.splitlines()[0])
    start = [mpirun, "--allow-run-as-root", "--oversubscribe"]
    ports = set()
    for count in (1, 2, 4):
        for worker in check_run(f"mpirun -n {count}", "Open MPI", [count], *start, "-n", count, PROGRAM):
            ports.add(worker["master_port"])
    check(len(ports) == 3, "each mpirun has its own port")
    placed = check_run("mpirun -x MASTER_ADDR", "Open MPI", [2], *start, "-n", 2, "-x", "MASTER_ADDR=localhost", "-x", "MASTER_PORT=4242", PROGRAM)
    check({(w["master_addr"], w["master_port"]) for w in placed} == {("localhost", 4242)}, "an address and port from the caller are used")
    check_run("mpirun -x WORLD_SIZE=2", "Open MPI", [2], *start, "-n", 2, "-x", "WORLD_SIZE=2", PROGRAM)
    check_refused("mpirun -n 2 -x WORLD_SIZE=3", "WORLD_SIZE: got 3", *start, "-n", 2, "-x", "WORLD_SIZE=3", PROGRAM)
    check_launcher_refused("mpirun -n 2", "Open MPI", *start, "-n", 2)
    single = run(*start, "-n", 1, HASTEN, "launch", "-q", "-n", 2, PROGRAM)
    check_workers("mpirun -n 1 hasten launch -n 2", workers_in(single.stdout), "hasten launch", [2], single.stdout + single.stderr)
    example = HERE.parents[1] / "examples/launching/open_mpi.sh"
    found = check_run(example.name, "Open MPI", [4], "bash", example, "localhost:4", 4, PROGRAM, OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    check({(w["master_addr"], w["master_port"]) for w in found} == {("localhost", 29500)}, "the processes meet at its first host")


def with_mpich():
    mpiexec = shutil.which("mpiexec.hydra")
    if not mpiexec:
        skip("MPICH's Hydra is missing (Debian: mpich)")
    print("Hydra " + re.search(r"Version: +(\S+)", run(mpiexec, "--version").stdout)[1])
    for count in (1, 2, 4):
        check_run(f"mpiexec.hydra -n {count}", "PMI", [count], mpiexec, "-n", count, PROGRAM)
    check_launcher_refused("mpiexec.hydra -n 2", "PMI", mpiexec, "-n", 2)
    placed = check_run("mpiexec.hydra -genv", "PMI", [2], mpiexec, "-genv", "MASTER_PORT", "4242", "-n", 2, PROGRAM)
    check({w["master_port"] for w in placed} == {4242}, "a port from the caller is used")


def with_torchrun():
    python = os.environ.get("HASTEN_REFERENCE_PYTHON", "")
    if not python or run(python, "-c", "import torch.distributed.run").returncode != 0:
        skip("HASTEN_REFERENCE_PYTHON names no Python with torch")
    print("torch " + run(python, "-c", "import torch; print(torch.__version__)").stdout.strip())
    torchrun = [python, "-m", "torch.distributed.run", "--no-python"]
    single = check_run("torchrun --nproc-per-node 1", "torchrun", [1], *torchrun, "--nproc-per-node", 1, PROGRAM)
    check(bool(single) and not single[0]["store_is_served"], "a single process needs no store")
    served = check_run("torchrun --standalone", "torchrun", [2], *torchrun, "--standalone", "--nproc-per-node", 2, PROGRAM)
    check(all(w["store_is_served"] for w in served), "its agent serves the store")
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    both = [subprocess.Popen([*torchrun, "--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1",
                              "--master-port", str(port), PROGRAM], env=CLEAN, stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    check_workers("torchrun --nnodes 2", workers_in("".join(one.communicate(timeout=120)[0] for one in both)), "torchrun", [2, 2])


def documented():
    """Checks the variables in the launchers' manuals; these launchers do not run here."""
    endpoint = {"MASTER_ADDR": "head", "MASTER_PORT": "23456"}

    def check_ranks(what, started_by, local_sizes, environment_of):
        outputs = [run(PROGRAM, **environment_of(rank)) for rank in range(sum(local_sizes))]
        check_workers(what, workers_in("".join(one.stdout for one in outputs)), started_by, local_sizes, "".join(one.stderr for one in outputs))

    check_ranks("MVAPICH2, mpirun_rsh", "MVAPICH", [2, 2], lambda rank: endpoint | {
        "MV2_COMM_WORLD_RANK": str(rank), "MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_LOCAL_RANK": str(rank % 2),
        "MV2_COMM_WORLD_LOCAL_SIZE": "2"})
    check_ranks("Intel MPI", "PMI", [2, 2], lambda rank: endpoint | {
        "PMI_RANK": str(rank), "PMI_SIZE": "4", "PMI_FD": "9", "MPI_LOCALRANKID": str(rank % 2), "MPI_LOCALNRANKS": "2",
        "I_MPI_MPIRUN": "mpirun"})
    check_ranks("Kubeflow's PyTorchJob", "Kubernetes", [1, 1, 1], lambda rank: endpoint | {
        "RANK": str(rank), "WORLD_SIZE": "3", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "PYTHONUNBUFFERED": "1"})
    check_ranks("an indexed job", "Kubernetes", [1, 1, 1], lambda rank: endpoint | {
        "JOB_COMPLETION_INDEX": str(rank), "WORLD_SIZE": "3", "KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    check_ranks("Volcano", "Kubernetes", [1, 1], lambda rank: endpoint | {
        "VC_TASK_INDEX": str(rank), "VK_TASK_INDEX": str(rank), "WORLD_SIZE": "2"})


class Slurm:
    """A cluster of two machines that runs during the block."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hs.", dir="/tmp"))
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        began = time.monotonic()
        started = subprocess.run([HERE / "slurm_cluster.sh", "start", self.folder, str(os.getpid())], env=CLEAN)
        if started.returncode != 0:
            self.__exit__()
            sys.exit("the cluster does not start")
        print(f"{self.run('sinfo', '--version').stdout.strip()}, up in {time.monotonic() - began:.1f} s")
        return self

    def __exit__(self, *_):
        subprocess.run([HERE / "slurm_cluster.sh", "stop", self.folder], env=CLEAN, check=True)
        shutil.rmtree(self.folder)

    def run(self, *arguments, **more):
        return run(*arguments, **self.variables, **more)

    def check_run(self, what, started_by, local_sizes, *arguments):
        return check_run(what, started_by, local_sizes, *arguments, **self.variables)

    def batch(self, script, *flags):
        """Runs a script and returns its output, all tasks of an array together."""
        file = self.folder / "script.sh"
        file.write_text("#!/bin/bash\n" + script)
        for old in self.folder.glob("out.*"):
            old.unlink()
        submitted = self.run("sbatch", "--parsable", "-D", self.folder, "-o", self.folder / "out.%j", *flags, file)
        self.wait_for(submitted.stdout.strip())
        return "".join(out.read_text() for out in sorted(self.folder.glob("out.*"))) + submitted.stderr

    def wait_for(self, job):
        """Waits for the end of a job and returns the text of scontrol; sbatch --wait polls only every few seconds."""
        for _ in range(600):
            shown = self.run("scontrol", "show", "job", job).stdout
            if shown and not re.search("JobState=(PENDING|CONFIGURING|RUNNING|COMPLETING)", shown):
                return shown
            time.sleep(0.1)
        raise TimeoutError(f"job {job}: {shown}")

    def check_batch(self, what, started_by, local_sizes, script, *flags):
        text = self.batch(script, *flags)
        return check_workers(what, workers_in(text), started_by, local_sizes, text)


def steps(slurm):
    """Tasks of srun, outside and inside a script."""
    srun = ["srun", "-N2", "-n4", "--ntasks-per-node=2"]
    first = slurm.check_run("srun -N2 -n4", "Slurm", [2, 2], *srun, PROGRAM)
    check({w["master_addr"] for w in first} == {"127.0.0.1"}, "the processes meet on the first machine")
    check({w["address_source"] for w in first} == {"the first host of SLURM_STEP_NODELIST"}, "the address comes from the step")
    second = slurm.check_run("a second srun", "Slurm", [2, 2], *srun, PROGRAM)
    check(bool(first and second) and first[0]["master_port"] != second[0]["master_port"], "two jobs have two ports")
    slurm.check_run("srun -N2 -n3", "Slurm", [2, 1], "srun", "-N2", "-n3", PROGRAM)
    slurm.check_run("srun -n1", "Slurm", [1], "srun", "-n1", PROGRAM)
    listed = slurm.run("srun", "--mpi=list")
    if "pmi2" in listed.stdout + listed.stderr:
        slurm.check_run("srun --mpi=pmi2", "Slurm", [2, 2], "srun", "--mpi=pmi2", *srun[1:], PROGRAM)
    last = slurm.check_run("srun on the second machine only", "Slurm", [2], "srun", "-w", "127.0.0.2", "-n2", PROGRAM)
    check({w["master_addr"] for w in last} == {"127.0.0.1"}, "processes of one machine meet there")


def scripts(slurm):
    """sbatch starts one process, whatever Slurm's variables say; srun inside it starts several."""
    slurm.check_batch("sbatch without srun", "no launcher", [1], f"{PROGRAM}\n", "-N2", "-n4")
    slurm.check_batch("sbatch with srun", "Slurm", [2, 2], f"srun {PROGRAM}\n", "-N2", "-n4", "--ntasks-per-node=2")
    text = slurm.batch(f"srun --exact -N2 -n2 {PROGRAM} & srun --exact -N2 -n2 {PROGRAM} & wait\n", "-N2", "-n4")
    found = workers_in(text)
    check(len(found) == 4 and len({w["master_port"] for w in found}) == 2, "two simultaneous steps of one job have two ports")
    text = slurm.batch(f"srun {PROGRAM}\n", "-N1", "-n2", "--array=0-1")
    found = workers_in(text)
    check(len(found) == 4 and len({w["master_port"] for w in found}) == 2, "two tasks of an array have two ports")
    check(sorted({w["job"].split("_")[1] for w in found if "_" in w["job"]}) == ["0", "1"], "the tasks of an array have their own numbers")
    script = slurm.folder / "inner.sh"
    script.write_text(f"#!/bin/bash\n{PROGRAM}\n")
    out = slurm.folder / "inner"
    submitted = slurm.run("srun", "-N2", "-n2", "sh", "-c", f"[ $SLURM_PROCID = 1 ] || sbatch --parsable -n3 -o {out} {script}")
    slurm.wait_for(submitted.stdout.strip())
    check_workers("sbatch inside a step", workers_in(out.read_text()), "no launcher", [1])


def mpi_inside(slurm):
    """mpirun and mpiexec start their helpers with srun. hasten must use the variables of mpirun and mpiexec, not the helpers'."""
    if shutil.which("mpirun.openmpi"):
        found = slurm.check_batch("mpirun in a script", "Open MPI", [2, 2],
                                  f"mpirun.openmpi --allow-run-as-root -n 4 {PROGRAM}\n", "-N2", "-n4", "--ntasks-per-node=2")
        check({w["address_source"] for w in found} == {"the first host of SLURM_JOB_NODELIST"}, "the processes meet on the job's first machine")
    else:
        print("not tested: mpirun in a script (Debian: openmpi-bin)")
    if shutil.which("mpiexec.hydra"):
        slurm.check_batch("mpiexec.hydra in a script", "PMI", [2, 2], f"mpiexec.hydra -n 4 {PROGRAM}\n", "-N2", "-n4",
                          "--ntasks-per-node=2")
    else:
        print("not tested: mpiexec.hydra in a script (Debian: mpich)")


def host_lists(slurm):
    """Lists of hosts are expanded as Slurm expands them."""
    lists = ["gpu[08-11]", "gpu[1,3-5,09],login", "r[1-2]n[01-02]", "a,b,c[7]", "n[098-101]", "127.0.0.[1-2]", "x[1-3],y[1-3]", "node5"]
    same = 0
    for text in lists:
        expected, got = slurm.run("scontrol", "show", "hostnames", text).stdout, run(PROGRAM, "--hosts", text).stdout
        same += expected == got != ""
        if expected != got:
            print(text, expected.split(), got.split())
    check(same == len(lists), f"{same} of {len(lists)} lists of hosts are expanded as scontrol expands them")


def script_of_launch(slurm):
    """Submits the script of hasten launch --slurm; a script instead of hasten prints the arguments that each machine gets."""
    stand_in = slurm.folder / "hasten"
    stand_in.write_text('#!/bin/bash\ntrap "echo heard USR1 on $SLURM_NODEID" USR1\necho "machine $SLURM_NODEID: $HASTEN_JOB_TOKEN $*"\n'
                        'for i in $(seq 100); do [ -e go ] && exit 7; sleep 0.1; done\n')
    stand_in.chmod(0o755)
    arguments = ["launch", "--slurm", "--num_machines", 2, "--num_processes", 4, "--slurm_time", "10:00", "./train", "a b", "$x"]
    text = run(HASTEN, *arguments).stdout
    script = slurm.folder / "train.sbatch"
    script.write_text(text.replace(HASTEN, str(stand_in)))
    job = int(slurm.run("sbatch", "--parsable", "-D", slurm.folder, script).stdout)
    log = slurm.folder / f"train-{job}.log"
    for _ in range(100):
        if log.exists() and log.read_text().count("launch --machine_rank") == 2:
            break
        time.sleep(0.1)
    slurm.run("scancel", "--signal=USR1", job)
    for _ in range(50):
        if log.read_text().count("heard") == 2:
            break
        time.sleep(0.1)
    time.sleep(0.3)  # a second signal would come at once
    (slurm.folder / "go").touch()
    shown = slurm.wait_for(job)
    text = log.read_text()
    lines = sorted(re.findall(r"machine (\d): ([0-9a-f]{64}) (.*)", text))
    check([line[0] for line in lines] == ["0", "1"] and len({line[1] for line in lines}) == 1, "each machine has one launcher, and all have one token")
    starts = [f"launch --machine_rank {rank} " for rank in (0, 1)]
    endpoint = f"--main_process_ip 127.0.0.1 --main_process_port {20000 + job % 9973} --num_processes 4 "
    check(all(line[2].startswith(start) and endpoint in line[2] and line[2].endswith("-- ./train a b $x") for line, start in zip(lines, starts)),
          "each has its number, one address, the job's port and the program's arguments")
    check(sorted(re.findall(r"heard USR1 on (\d)", text)) == ["0", "1"], "the signal reaches each launcher once")
    check("ExitCode=7:0" in shown, "the job's exit code is the launchers' code: " + (re.search(r"ExitCode=\S+", shown) or [""])[0])
    if failures:
        print(script.read_text(), text, shown, sep="\n")


def submitted_launch(slurm, program, *options, words=()):
    """Submits the script of hasten launch --slurm for two machines, and returns the job's number and its log. `words` are the program's."""
    script = slurm.folder / "real.sbatch"
    script.write_text(run(HASTEN, "launch", "--slurm", "--num_machines", 2, "--slurm_time", "10:00", *options, program, *words).stdout)
    # The user's configuration file on the machines must not be read; nothing would start with this file.
    (slurm.folder / "default_config.yaml").write_text("num_machines: 77\n")
    job = slurm.run("sbatch", "--parsable", "-D", slurm.folder, script, HASTEN_HOME=str(slurm.folder), HASTEN_NO_CONFIG_FILE="").stdout.strip()
    return job, slurm.folder / f"{pathlib.Path(program).name}-{job}.log"


def until(condition, seconds):
    for _ in range(int(seconds * 20)):
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def marked_processes(mark):
    """Returns the processes that have the mark in their environment or command line."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append(folder.name)
        except OSError:
            pass
    return found


def real_launch(slurm):
    """hasten launch runs on two machines: all ranks once, a restart after a failure, and an end by scancel."""
    job, log = submitted_launch(slurm, PROGRAM, "--num_processes", 4)
    shown = slurm.wait_for(job)
    text = log.read_text()
    workers = check_workers("a submitted hasten launch --slurm", workers_in(text), "hasten launch", [2, 2], text)
    check("ExitCode=0:0" in shown and {w["attempt"] for w in workers} == {0}, "the job succeeds")

    # Its last line is not UTF-8, and must still reach the other machine.
    fails = slurm.folder / "fails_once"
    fails.write_text(f'#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec {PROGRAM}\n[ $RANK = 3 ] || exec sleep 60\n'
                     "printf 'caf\\351\\n'\nexit 5\n")
    fails.chmod(0o755)
    job, log = submitted_launch(slurm, fails, "--num_processes", 4, "--max_restarts", 1)
    shown = slurm.wait_for(job)
    text = log.read_bytes().decode(errors="replace")
    workers = check_workers("a job with a rank that fails once", workers_in(text), "hasten launch", [2, 2], text)
    check("ExitCode=0:0" in shown and {w["attempt"] for w in workers} == {1}, "all ranks have restarted")
    check(text.count("ended with code 5") == 2, "each machine's launcher reports the failure once")

    sleeps = slurm.folder / "sleeps"
    sleeps.write_text('#!/bin/sh\ntrap "" TERM\necho up\nsetsid sleep 300 &\nwhile :; do sleep 1; done\n')
    sleeps.chmod(0o755)
    job, log = submitted_launch(slurm, sleeps, "--num_processes", 4, "--grace_period", 1)
    check(until(lambda: log.exists() and log.read_text().count("] up\n") == 4, 20), "four ranks that ignore SIGTERM run")
    mark = f"SLURM_JOB_ID={job}"
    check(len(marked_processes(mark)) >= 8, "their children run too")
    began = time.monotonic()
    slurm.run("scancel", job)
    ended = until(lambda: not marked_processes(mark), 20)
    check(ended, f"scancel ends all processes, after {time.monotonic() - began:.1f} s")
    shown = slurm.wait_for(job)
    check("JobState=CANCELLED" in shown, "the job is cancelled")
    check_launcher_refused("srun -n2", "Slurm", "srun", "-N2", "-n2", **slurm.variables)


def check_requeued(slurm, what, job):
    """Sends USR1 to the job, checks that Slurm requeues it, and lets it run again at once. Returns the text of scontrol at its end."""
    slurm.run("scancel", "--signal=USR1", job)
    is_pending = until(lambda: re.search("JobState=PENDING(.|\n)*Restarts=1", slurm.run("scontrol", "show", "job", job).stdout), 30)
    check(is_pending, f"{what} is requeued after USR1")
    # Slurm takes the late end of the first script for the end of a job that it has started again meanwhile.
    until(lambda: not marked_processes(f"SLURM_JOB_ID={job}"), 20)
    time.sleep(1)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm would wait for two minutes
    return slurm.wait_for(job)


def requeued_launch(slurm):
    """The signal before the time limit stops a job; its script requeues it, and the ranks learn that they have restarted. The ranks of one machine
    need longer than the others to save: neither srun nor a launcher ends them meanwhile."""
    for slow, restarts in ((0, 0), (1, 0), (1, 1)):
        what = f"a job whose machine {slow} stops last, with {restarts} restarts,"
        waits = slurm.folder / f"waits{slow}{restarts}"
        waits.write_text(f'#!/bin/bash\n[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exec {PROGRAM}\n'
                         f'stop() {{ if [ $GROUP_RANK = {slow} ]; then for i in 1 2 3 4; do sleep 0.5; done; fi; echo saved; exit 138; }}\n'
                         'trap stop USR1\ntrap "echo ended; exit 143" TERM\necho up\nwhile :; do sleep 0.1; done\n')
        waits.chmod(0o755)
        job, log = submitted_launch(slurm, waits, "--num_processes", 4, "--slurm_signal", "USR1@120", "--max_restarts", restarts)
        check(until(lambda: log.exists() and log.read_text().count("] up\n") == 4, 20), f"{what} has four ranks")
        shown = check_requeued(slurm, what, job)
        text = log.read_text()
        check(text.count("] saved\n") == 4 and "] ended" not in text, f"{what} saves in all ranks")
        if failures:
            print(text)
        workers = check_workers(what, workers_in(text), "hasten launch", [2, 2], text)
        check("ExitCode=0:0" in shown and {(w["job"], w["attempt"]) for w in workers} == {(job, 1)}, "all ranks know the job's number and its restart")


def requeued_training(slurm):
    """hasten train stops at the signal, and continues in the requeued job with the bits of an undisturbed job."""
    if not pathlib.Path(HASTEN).with_name("hasten-torch").exists():
        return print("not tested: hasten train needs hasten-torch")
    data = slurm.folder / "rows.safetensors"
    write_ids(data, 403, 7)

    def submitted(name):
        """Returns the job's number, its log and its folder."""
        out = slurm.folder / name
        words = ["train", "--use_cpu", "--disable_tqdm", "--model", HERE.parent / "oracle/data/models/sequence_single_label", "--data", data, "--output_dir", out,
                 "--per_device_train_batch_size", 2, "--max_steps", 400, "--save_steps", 10, "--hash_chain_steps", 50]
        return *submitted_launch(slurm, HASTEN, "--num_processes", 4, "--num_cpu_threads_per_process", 1, "--slurm_signal", "USR1@120", words=words), out

    def results(out):
        return [(out / name).read_bytes() for name in ("model.safetensors", "hash_chain.jsonl") if (out / name).exists()]
    job, log, straight = submitted("straight")
    check("ExitCode=0:0" in slurm.wait_for(job), "an undisturbed training job succeeds")
    job, log, stopped = submitted("stopped")
    check(until(lambda: (stopped / "checkpoint-10").exists(), 60), "a training job saves a checkpoint")
    shown = check_requeued(slurm, "a training job", job)
    text = log.read_text()
    check("ExitCode=0:0" in shown and "resuming from" in text, "the requeued job continues from its checkpoint")
    check(len(results(straight)) == 2 and results(stopped) == results(straight), "its weights and its hash chain are those of the undisturbed job")
    if failures:
        print(text)



def with_slurm():
    for name in ("munged", "slurmctld", "slurmd", "srun", "sbatch"):
        if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            skip(f"{name} is missing (Debian: slurm-wlm, munge)")
    with Slurm() as slurm:
        for part in (steps, scripts, mpi_inside, host_lists, script_of_launch, real_launch, requeued_launch, requeued_training):
            part(slurm)


# The cluster is stopped even if the test runs out of time.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
began = time.monotonic()
{"hasten": with_hasten, "open_mpi": with_open_mpi, "mpich": with_mpich, "torchrun": with_torchrun, "slurm": with_slurm,
 "documented": documented}[options.launcher]()
print(f"{options.launcher}: {failures} failures, {time.monotonic() - began:.1f} s")
sys.exit(1 if failures else 0)
