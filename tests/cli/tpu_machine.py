#!/usr/bin/env python3
"""hasten on a machine that has TPUs: a folder of PCI devices stands in the system's, in a mount namespace of its own.

    tpu_machine.py HASTEN

Needs root, or a kernel that lets others make such namespaces; a machine without says "skipped: why".
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
TOLD = re.compile(r"(RANK|LOCAL_RANK|WORLD_SIZE|ACCELERATE_USE_TPU|ACCELERATE_USE_CPU|TORCH_TPU_\w+|TPU_VISIBLE_\w+)=(.*)")
CLEAN = {name: value for name, value in os.environ.items()
         if not re.match("(HASTEN|TPU|TORCH_TPU|ACCELERATE|CUDA|PET|OMPI|SLURM)_", name)}
CLEAN |= {"HOME": str(FOLDER), "HASTEN_NO_CONFIG_FILE": "1"}
failures = 0


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


def machine(generation, chips):
    """A folder such as /sys/bus/pci/devices, with a network card of Google's too."""
    folder = FOLDER / f"{generation}-{chips}"
    for number, device in enumerate(["0x0042"] + [IDS[generation]] * chips):
        place = folder / f"0000:00:{number:02x}.0"
        place.mkdir(parents=True)
        (place / "vendor").write_text("0x1ae0\n")
        (place / "device").write_text(device + "\n")
    return folder


def on(devices, *words, **variables):
    inside = 'mount --bind "$0" /sys/bus/pci/devices && exec "$@"'
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    return subprocess.run([*namespace, "sh", "-c", inside, str(devices), *map(str, words)], env=CLEAN | variables, text=True,
                          capture_output=True, timeout=60)


def launched(devices, *options, **variables):
    logs = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
    done = on(devices, HASTEN, "launch", "--log_dir", logs, *options, "env", **variables)
    found = [dict(TOLD.findall(file.read_text())) for file in sorted(logs.glob("attempt_0/*.log"))]
    return done, found


def chips_are_shared():
    for generation, chips, topology in [("v5e", 4, "2,2,1"), ("v4", 2, "1,2,1"), ("7x", 8, "2,2,1,2"), ("v5e", 8, "2,4,1")]:
        done, found = launched(machine(generation, chips))
        own = [rank["TPU_VISIBLE_DEVICES"] for rank in found]
        right = own == [str(chip) for chip in range(chips)] and {rank["TORCH_TPU_TOPOLOGY"] for rank in found} == {topology}
        right = right and {rank["ACCELERATE_USE_TPU"] for rank in found} == {"true"}
        addresses = {rank["TORCH_TPU_SLICEBUILDER_ADDRESSES"] for rank in found}
        right = right and len(addresses) == 1 and len(set(addresses.pop().split(","))) == chips
        check(done.returncode == 0 and right, f"{chips} of TPU {generation}, unasked: a process each: {own}{done.stderr}")


def fewer_and_none():
    four = FOLDER / "v5e-4"
    done, found = launched(four, "--tpu", "-n", "1")
    check(done.returncode == 0 and len(found) == 1 and found[0]["TORCH_TPU_TOPOLOGY"] == "1,1,1", "one process, the first chip")
    done, found = launched(four, "--tpu", TPU_VISIBLE_CHIPS="3")
    check(len(found) == 1 and found[0]["TPU_VISIBLE_DEVICES"] == "3", "one chip is left to share: one process")
    done, found = launched(four, "--cpu")
    check(len(found) == 1 and found[0]["ACCELERATE_USE_TPU"] == "false" and found[0]["ACCELERATE_USE_CPU"] == "true", "--cpu: none of them")
    done, found = launched(four, "--no_tpu", "-n", "3")
    check(len(found) == 3 and "TORCH_TPU_TOPOLOGY" not in found[0], "--no_tpu: any number")
    check({rank["ACCELERATE_USE_TPU"] for rank in found} == {"false"}, "--no_tpu: a program that would use them unasked does not")
    for number, expected in [("3", "one of 1, 4"), ("8", "at most 4")]:
        done, found = launched(four, "-n", number)
        said = "launch.tpu-processes" in done.stderr and expected in done.stderr
        check(done.returncode == 2 and said and not found, f"{number} processes on four chips: {done.stderr.strip()}")


def told_of():
    four = FOLDER / "v5e-4"
    packages = FOLDER / "packages"
    (packages / "torch_tpu-9.8.7.dist-info").mkdir(parents=True)
    (packages / "libtpu-0.0.1.dist-info").mkdir()
    said = on(four, HASTEN, "env", PYTHONPATH=str(packages)).stdout
    lines = ["tpu0: TPU v5e", "tpu3: TPU v5e", "torch_tpu: 9.8.7", "libtpu: 0.0.1"]
    check(all(line in said for line in lines) and "tpu4" not in said, "hasten env tells of chips and packages")
    file = FOLDER / "default.yaml"
    done = on(four, HASTEN, "config", "default", "--config_file", file)
    text = file.read_text() if file.exists() else done.stderr
    check("distributed_type: XLA\n" in text and "num_processes: 4\n" in text and "use_cpu: false\n" in text,
          "hasten config default: a process for each chip")
    done, found = launched(four, "--config_file", file)
    check(len(found) == 4 and found[3]["TPU_VISIBLE_CHIPS"] == "3", "which hasten launch reads")


probe = on(machine("v5e", 1), "cat", "/sys/bus/pci/devices/0000:00:01.0/device")
if probe.returncode != 0:
    print(f"skipped: no mount namespaces here: {probe.stderr.strip()}")
    sys.exit(0)
check(probe.stdout.strip() == "0x0063", "the folder stands in the system's")
chips_are_shared()
fewer_and_none()
told_of()
print(f"{failures} failures")
sys.exit(1 if failures else 0)
