#!/usr/bin/env python3
"""Tests hasten on a machine with TPUs. In a mount namespace, a folder of PCI devices replaces the system's folder.

    tpu_machine.py HASTEN

Needs root, or a kernel that lets other users create such namespaces; otherwise prints "skipped: REASON".
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HASTEN = os.path.abspath(sys.argv[1])
FOLDER = pathlib.Path(tempfile.mkdtemp())
IDS = {"v4": "0x005e", "v5e": "0x0063", "7x": "0x0076"}
VARIABLES = re.compile(r"(RANK|LOCAL_RANK|WORLD_SIZE|ACCELERATE_USE_TPU|ACCELERATE_USE_CPU|TORCH_TPU_\w+|TPU_VISIBLE_\w+)=(.*)")
CLEAN_ENVIRONMENT = {name: value for name, value in os.environ.items()
                     if not re.match("(HASTEN|TPU|TORCH_TPU|ACCELERATE|CUDA|PET|OMPI|SLURM)_", name)}
CLEAN_ENVIRONMENT |= {"HOME": str(FOLDER), "HASTEN_NO_CONFIG_FILE": "1"}
failures = 0


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


def make_machine(generation, chips):
    """Returns a folder like /sys/bus/pci/devices with the chips and a network card by Google."""
    folder = FOLDER / f"{generation}-{chips}"
    for number, device in enumerate(["0x0042"] + [IDS[generation]] * chips):
        place = folder / f"0000:00:{number:02x}.0"
        place.mkdir(parents=True)
        (place / "vendor").write_text("0x1ae0\n")
        (place / "device").write_text(device + "\n")
    return folder


def run_on(devices, *arguments, **variables):
    inside = 'mount --bind "$0" /sys/bus/pci/devices && exec "$@"'
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    return subprocess.run([*namespace, "sh", "-c", inside, str(devices), *map(str, arguments)], env=CLEAN_ENVIRONMENT | variables, text=True,
                          capture_output=True, timeout=60)


def launch_on(devices, *options, **variables):
    logs = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
    done = run_on(devices, HASTEN, "launch", "--log_dir", logs, *options, "env", **variables)
    found = [dict(VARIABLES.findall(file.read_text())) for file in sorted(logs.glob("attempt_0/*.log"))]
    return done, found


def check_default_launch():
    for generation, chips, topology in [("v5e", 4, "2,2,1"), ("v4", 2, "1,2,1"), ("7x", 8, "2,2,1,2"), ("v5e", 8, "2,4,1")]:
        done, found = launch_on(make_machine(generation, chips))
        own = [rank["TPU_VISIBLE_DEVICES"] for rank in found]
        right = own == [str(chip) for chip in range(chips)] and {rank["TORCH_TPU_TOPOLOGY"] for rank in found} == {topology}
        right = right and {rank["ACCELERATE_USE_TPU"] for rank in found} == {"true"}
        addresses = {rank["TORCH_TPU_SLICEBUILDER_ADDRESSES"] for rank in found}
        right = right and len(addresses) == 1 and len(set(addresses.pop().split(","))) == chips
        check(done.returncode == 0 and right, f"{chips} chips of TPU {generation}: a process for each by default: {own}{done.stderr}")


def check_options():
    four = FOLDER / "v5e-4"
    done, found = launch_on(four, "--tpu", "-n", "1")
    check(done.returncode == 0 and len(found) == 1 and found[0]["TORCH_TPU_TOPOLOGY"] == "1,1,1", "-n 1: one process with the first chip")
    done, found = launch_on(four, "--tpu", TPU_VISIBLE_CHIPS="3")
    check(len(found) == 1 and found[0]["TPU_VISIBLE_DEVICES"] == "3", "one visible chip: one process")
    done, found = launch_on(four, "--cpu")
    check(len(found) == 1 and found[0]["ACCELERATE_USE_TPU"] == "false" and found[0]["ACCELERATE_USE_CPU"] == "true", "--cpu: no chip is used")
    done, found = launch_on(four, "--no_tpu", "-n", "3")
    check(len(found) == 3 and "TORCH_TPU_TOPOLOGY" not in found[0], "--no_tpu: any number of processes")
    check({rank["ACCELERATE_USE_TPU"] for rank in found} == {"false"}, "--no_tpu: programs do not use the chips by default")
    for number, expected in [("3", "one of 1, 4"), ("8", "at most 4")]:
        done, found = launch_on(four, "-n", number)
        reported = "launch.tpu-processes" in done.stderr and expected in done.stderr
        check(done.returncode == 2 and reported and not found, f"{number} processes on four chips: {done.stderr.strip()}")


def check_reports():
    four = FOLDER / "v5e-4"
    packages = FOLDER / "packages"
    (packages / "torch_tpu-9.8.7.dist-info").mkdir(parents=True)
    (packages / "libtpu-0.0.1.dist-info").mkdir()
    output = run_on(four, HASTEN, "env", PYTHONPATH=str(packages)).stdout
    lines = ["tpu0: TPU v5e", "tpu3: TPU v5e", "torch_tpu: 9.8.7", "libtpu: 0.0.1"]
    check(all(line in output for line in lines) and "tpu4" not in output, "hasten env lists chips and packages")
    file = FOLDER / "default.yaml"
    done = run_on(four, HASTEN, "config", "default", "--config_file", file)
    text = file.read_text() if file.exists() else done.stderr
    check("distributed_type: XLA\n" in text and "num_processes: 4\n" in text and "use_cpu: false\n" in text,
          "hasten config default: a process for each chip")
    done, found = launch_on(four, "--config_file", file)
    check(len(found) == 4 and found[3]["TPU_VISIBLE_CHIPS"] == "3", "hasten launch reads that file")


probe = run_on(make_machine("v5e", 1), "cat", "/sys/bus/pci/devices/0000:00:01.0/device")
if probe.returncode != 0:
    print(f"skipped: mount namespaces are not available: {probe.stderr.strip()}")
    sys.exit(0)
check(probe.stdout.strip() == "0x0063", "the folder replaces the system's")
check_default_launch()
check_options()
check_reports()
print(f"{failures} failures")
sys.exit(1 if failures else 0)
