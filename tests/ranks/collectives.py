#!/usr/bin/env python3
"""Runs every collective between real processes, started by every installed launcher.

    collectives.py COLLECTIVES HASTEN

A missing launcher is reported as "not installed: NAME". torchrun belongs to the Python that HASTEN_REFERENCE_PYTHON names.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from clean import CLEAN

PROGRAM, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])
HERE = pathlib.Path(__file__).resolve().parent
VARIABLES = CLEAN | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
failures = 0


def check_ranks(what, count, by, arguments, **environment):
    global failures
    began = time.monotonic()
    done = subprocess.run(list(map(str, arguments)), env=VARIABLES | environment, capture_output=True, text=True, timeout=120)
    ranks = [int(rank) for rank in re.findall(rf"rank (\d+) of {count}, local \d+, attempt 0, by {by}: good", done.stdout)]
    holds = done.returncode == 0 and sorted(ranks) == list(range(count))
    failures += not holds
    print(f"{'ok     ' if holds else 'FAILED '} {what}: {count} ranks, {time.monotonic() - began:.1f} s", flush=True)
    if not holds:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")


def is_installed(name, command):
    if command and shutil.which(str(command)):
        return True
    print(f"not installed: {name}")
    return False


for count in (1, 2, 3, 4):
    check_ranks("hasten launch", count, "hasten launch", [HASTEN, "launch", "--no_config_file", "-n", count, PROGRAM])
for token in ({}, {"HASTEN_JOB_TOKEN": "0123456789abcdef0123456789abcdef"}):
    suffix = " with the token" if token else " by TCPStore"
    if is_installed("Open MPI", "mpirun.openmpi"):
        check_ranks("mpirun" + suffix, 3, "Open MPI", ["mpirun.openmpi", "--oversubscribe", "-n", 3, PROGRAM], **token)
    if is_installed("MPICH", "mpiexec.hydra"):
        check_ranks("mpiexec" + suffix, 3, "PMI", ["mpiexec.hydra", "-n", 3, PROGRAM], **token)
reference_python = os.environ.get("HASTEN_REFERENCE_PYTHON", "")
torchrun = pathlib.Path(reference_python).parent / "torchrun" if reference_python else None
if is_installed("torchrun", torchrun):
    check_ranks("torchrun", 2, "torchrun", [torchrun, "--nproc_per_node", 2, "--no-python", PROGRAM])
    check_ranks("torchrun's store", 2, "torchrun", [torchrun, "--standalone", "--nproc_per_node", 2, "--no-python", PROGRAM])
if is_installed("Slurm", shutil.which("slurmd", path=os.environ.get("PATH", "") + ":/usr/sbin") and "srun"):
    folder = tempfile.mkdtemp(prefix="hs.", dir="/tmp")
    try:
        subprocess.run([HERE / "slurm_cluster.sh", "start", folder, str(os.getpid())], env=VARIABLES, check=True)
        check_ranks("srun", 4, "Slurm", ["srun", "-N2", "-n4", "--export=ALL", PROGRAM], SLURM_CONF=f"{folder}/slurm.conf")
        check_ranks("srun with the token", 4, "Slurm", ["srun", "-N2", "-n4", "--export=ALL", PROGRAM], SLURM_CONF=f"{folder}/slurm.conf",
             HASTEN_JOB_TOKEN="0123456789abcdef0123456789abcdef")
    finally:
        subprocess.run([HERE / "slurm_cluster.sh", "stop", folder], env=VARIABLES)
        shutil.rmtree(folder, ignore_errors=True)
sys.exit(1 if failures else 0)
