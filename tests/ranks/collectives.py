#!/usr/bin/env python3
"""Every collective between real processes, started by every launcher that is here.

    collectives.py COLLECTIVES HASTEN

hasten launch is always here; the others are told by "not here: NAME" where they are missing. torchrun is that of the Python
which HASTEN_REFERENCE_PYTHON names.
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


def good(what, count, by, words, **environment):
    global failures
    began = time.monotonic()
    done = subprocess.run([str(word) for word in words], env=VARIABLES | environment, capture_output=True, text=True, timeout=120)
    said = [int(rank) for rank in re.findall(rf"rank (\d+) of {count}, local \d+, attempt 0, by {by}: good", done.stdout)]
    holds = done.returncode == 0 and sorted(said) == list(range(count))
    failures += not holds
    print(f"{'ok     ' if holds else 'FAILED '} {what}: {count} ranks, {time.monotonic() - began:.1f} s", flush=True)
    if not holds:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")


def here(name, command):
    if command and shutil.which(str(command)):
        return True
    print(f"not here: {name}")
    return False


for count in (1, 2, 3, 4):
    good("hasten launch", count, "hasten launch", [HASTEN, "launch", "--no_config_file", "-n", count, PROGRAM])
for token in ({}, {"HASTEN_JOB_TOKEN": "0123456789abcdef0123456789abcdef"}):
    behind = " with the token" if token else " by TCPStore"
    if here("Open MPI", "mpirun.openmpi"):
        good("mpirun" + behind, 3, "Open MPI", ["mpirun.openmpi", "--oversubscribe", "-n", 3, PROGRAM], **token)
    if here("MPICH", "mpiexec.hydra"):
        good("mpiexec" + behind, 3, "PMI", ["mpiexec.hydra", "-n", 3, PROGRAM], **token)
peer = os.environ.get("HASTEN_REFERENCE_PYTHON", "")
torchrun = pathlib.Path(peer).parent / "torchrun" if peer else None
if here("torchrun", torchrun):
    good("torchrun", 2, "torchrun", [torchrun, "--nproc_per_node", 2, "--no-python", PROGRAM])
    good("torchrun's store", 2, "torchrun", [torchrun, "--standalone", "--nproc_per_node", 2, "--no-python", PROGRAM])
if here("Slurm", shutil.which("slurmd", path=os.environ.get("PATH", "") + ":/usr/sbin") and "srun"):
    folder = tempfile.mkdtemp(prefix="hs.", dir="/tmp")
    try:
        subprocess.run([HERE / "slurm_cluster.sh", "start", folder, str(os.getpid())], env=VARIABLES, check=True)
        good("srun", 4, "Slurm", ["srun", "-N2", "-n4", "--export=ALL", PROGRAM], SLURM_CONF=f"{folder}/slurm.conf")
        good("srun with the token", 4, "Slurm", ["srun", "-N2", "-n4", "--export=ALL", PROGRAM], SLURM_CONF=f"{folder}/slurm.conf",
             HASTEN_JOB_TOKEN="0123456789abcdef0123456789abcdef")
    finally:
        subprocess.run([HERE / "slurm_cluster.sh", "stop", folder], env=VARIABLES)
        shutil.rmtree(folder, ignore_errors=True)
sys.exit(1 if failures else 0)
