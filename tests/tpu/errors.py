#!/usr/bin/env python3
"""Checks the errors of programs that cannot open a TPU: each reason has its code, names what is missing, and is reported quickly.

    errors.py OPEN-PROGRAM LIBHASTEN.so ENGINE-FOLDER PLUGIN.so
"""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM, LIBRARY, ENGINE, PLUGIN = (Path(a) for a in sys.argv[1:5])
CPU_ENGINE = ENGINE / "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"
GOOD = {"ACCELERATE_USE_TPU": "true", "TPU_LIBRARY_PATH": str(PLUGIN), "PYTHONPATH": str(ENGINE), "HASTEN_TEST_ENGINE": str(CPU_ENGINE)}
failures = []


def has_tpu():
    """Returns whether a PCI device of Google exists. tests/tpu/torch/opened_tpu_test.cpp checks how TPUs are recognized."""
    return any(p.read_text().strip() == "0x1ae0" for p in Path("/sys/bus/pci/devices").glob("*/vendor"))


def check(name, words, code, limit, **changes):
    """Runs the program with the variables GOOD and the changes (None unsets a variable). It must print the words within `limit` seconds."""
    environment = {k: v for k, v in {**os.environ, **GOOD, **changes}.items() if v is not None}
    begin = time.monotonic()
    run = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    seconds = time.monotonic() - begin
    missing = [word for word in words if word not in run.stdout]
    bad = missing or run.returncode != code or seconds > limit
    print(f"{'FAILED' if bad else 'ok'} {name}: {seconds:.2f} s, code {run.returncode}: {run.stdout.strip()[:400]}")
    if bad:
        failures.append(name)
        print(f"  missing words: {missing}; {run.stderr[-2000:]}")


def package(folder, requires, body=""):
    """Writes a package torch_tpu that has only metadata and the code `body`."""
    (folder / "torch_tpu").mkdir(parents=True)
    (folder / "torch_tpu/__init__.py").write_text(body)
    (folder / "torch_tpu-9.8.7.dist-info").mkdir()
    (folder / "torch_tpu-9.8.7.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch_tpu\nVersion: 9.8.7\nRequires-Dist: {requires}\n")
    return str(folder)


def main():
    check("the TPU opens", ["opened tpu:0"], 0, 60)
    check("the TPU opens without Python in PATH", ["opened tpu:0"], 0, 60, PATH="/nowhere")
    if not has_tpu():
        check("no TPU", ["device.tpu-missing"], 4, 1, TPU_LIBRARY_PATH=None)
        check("no TPU, with Google's plugin", ["device.tpu-missing"], 4, 1, TPU_LIBRARY_PATH="/nowhere/libtpu.so")
    check("no package", ["device.tpu-package", "torch_tpu", "pip install"], 4, 1.5, PYTHONPATH=None)
    check("a missing plugin", ["device.tpu-failed", "/nowhere/plugin.so"], 4, 1, TPU_LIBRARY_PATH="/nowhere/plugin.so")
    check("a plugin without a client", ["device.tpu-failed", "PJRT_Client_Create"], 4, 60, HASTEN_TEST_REFUSED="1")
    check("a library that is not a plugin", ["device.tpu-failed", "GetPjrtApi"], 4, 1, TPU_LIBRARY_PATH=str(LIBRARY))
    several = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555",
               "HASTEN_PROCESS_GROUP_BACKEND": "tpu_dist"}
    check("several machines without host names", ["device.tpu-job", "TPU_WORKER_HOSTNAMES"], 2, 1, **several, TPU_WORKER_HOSTNAMES=None)
    check("several machines without a topology", ["device.tpu-job", "TORCH_TPU_TOPOLOGY"], 2, 1, **several, TPU_WORKER_HOSTNAMES="one,two")
    check("an invalid port", ["device.tpu-job", "TORCH_TPU_BASE_PORT"], 2, 1, **several, TPU_WORKER_HOSTNAMES="one,two", TORCH_TPU_BASE_PORT="x")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        check("incompatible versions", ["device.tpu-versions", "torch_tpu 9.8.7", "torch>=7.1"], 4, 1.5,
              PYTHONPATH=package(folder / "later", "torch>=7.1"))
        check("a package without a dependency", ["device.tpu-package", "no_such_module"], 4, 60,
              PYTHONPATH=os.pathsep.join([package(folder / "broken", "torch>=2", "import no_such_module\n"), str(ENGINE)]))
        alone = folder / "alone"
        alone.mkdir()
        for library in (LIBRARY, LIBRARY.parent / "libhasten_core.so"):
            (alone / library.name).symlink_to(library)
        check("a build without Python", ["device.tpu-module", "python3-dev"], 4, 1, LD_LIBRARY_PATH=str(alone))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
