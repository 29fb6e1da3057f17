#!/usr/bin/env python3
"""Checks that Accelerate reads the files of `hasten config` with the same values, and that `hasten launch` reads the files of Accelerate.

    HASTEN_REFERENCE_PYTHON=PYTHON accelerate_config.py HASTEN      PYTHON has accelerate
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PYTHON = os.environ.get("HASTEN_REFERENCE_PYTHON", "")
HASTEN = os.path.abspath(sys.argv[1])
FOLDER = pathlib.Path(tempfile.mkdtemp())
failures = 0

LOAD = """
import json, sys
from accelerate.commands.config.config_args import load_config_from_file
for file in sys.argv[1:]:
    try:
        values = load_config_from_file(file).to_dict()
    except Exception as error:
        values = {"error": str(error)}
    print(json.dumps(values))
"""
WRITE = """
import sys
from accelerate.commands.config.default import write_basic_config
from accelerate.commands.config.config_args import ClusterConfig
write_basic_config("bf16", sys.argv[1])
common = dict(compute_environment="LOCAL_MACHINE", use_cpu=True, debug=False)
ClusterConfig(distributed_type="MULTI_CPU", mixed_precision="no", num_processes=2, **common).to_yaml_file(sys.argv[2])
ClusterConfig(distributed_type="XLA", mixed_precision="no", num_processes=4, downcast_bf16="no", tpu_env=[""], tpu_vm=[""], tpu_name="mine",
              tpu_zone="us-b", commands=["pwd"], compute_environment="LOCAL_MACHINE", use_cpu=False, debug=False).to_yaml_file(sys.argv[4])
ClusterConfig(distributed_type="NO", mixed_precision="bf16", num_processes=1, dynamo_config={"dynamo_backend": "INDUCTOR"},
              fp8_config={"backend": "TE"}, **common).to_yaml_file(sys.argv[3])
"""


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


def hasten(*arguments, answers=""):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HASTEN_")}
    environment.update(HOME=str(FOLDER), TPU_LIBRARY_PATH="/a/plugin.so")  # a dry run looks for TPUs
    return subprocess.run([HASTEN, *map(str, arguments)], input=answers, text=True, capture_output=True, env=environment)


def load_with_accelerate(*files):
    done = subprocess.run([PYTHON, "-c", LOAD, *map(str, files)], text=True, capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_files_of_hasten():
    # Each case has the name of the file, the answers to hasten config, and the values that Accelerate must read.
    cases = [
        ("one", ["", "yes", "1", "", "", "", "", ""], {"distributed_type": "NO", "num_processes": 1, "use_cpu": True}),
        ("cpus", ["", "yes", "4", "yes", "bf16", "yes", "", ""],
         {"distributed_type": "MULTI_CPU", "num_processes": 4, "mixed_precision": "bf16", "enable_cpu_affinity": True,
          "debug": True}),
        ("gpus", ["", "no", "no", "0,1", "2", "", "fp16", "", "", ""],
         {"distributed_type": "MULTI_GPU", "gpu_ids": "0,1", "mixed_precision": "fp16", "use_cpu": False}),
        ("machines", ["3", "2", "10.0.0.1", "29501", "c10d", "no", "yes", "6", "", "", "", "", ""],
         {"num_machines": 3, "machine_rank": 2, "main_process_ip": "10.0.0.1", "main_process_port": 29501, "rdzv_backend": "c10d",
          "same_network": False, "num_processes": 6, "mixed_precision": "no"}),
        ("tpus", ["", "no", "yes", "4", "A=1", "yes", "mine", "us-b", "none", "pwd", "", "", "bf16", "yes", "", "", ""],
         {"distributed_type": "XLA", "num_processes": 4, "mixed_precision": "bf16", "downcast_bf16": True, "tpu_name": "mine",
          "tpu_zone": "us-b", "commands": ["pwd"], "tpu_env": ["A=1"], "tpu_use_cluster": False, "main_training_function": "main"}),
        ("own", ["", "yes", "1", "", "", "", "3", "logs"], {"error": "log_dir"}),
    ]
    files, expected = [], []
    for ending in ("yaml", "json"):
        for name, answers, values in cases:
            files.append(FOLDER / f"{name}.{ending}")
            done = hasten("config", "--config_file", files[-1], answers="\n".join(answers) + "\n")
            check(done.returncode == 0, f"hasten writes {files[-1].name}{done.stderr}")
            expected.append(values)
        files.append(FOLDER / f"default.{ending}")
        check(hasten("config", "default", "--config_file", files[-1], "--mixed_precision", "bf16").returncode == 0, files[-1].name)
        expected.append({"mixed_precision": "bf16", "compute_environment": "LOCAL_MACHINE"})
    old = FOLDER / "old.yaml"
    old.write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nfp16: true\nuse_cpu: yes\ndynamo_backend: 'NO'\n"
                   "fsdp_config: {}\n")
    hasten("config", "update", "--config_file", old)
    files.append(old)
    expected.append({"mixed_precision": "fp16", "num_processes": 2, "use_cpu": True, "distributed_type": "MULTI_CPU"})
    for file, values, found in zip(files, expected, load_with_accelerate(*files)):
        if "error" in values:
            check(values["error"] in found.get("error", ""), f"Accelerate refuses {file.name}, as the file's comment says")
        else:
            same = all(found.get(key) == value for key, value in values.items())
            check(same, f"Accelerate reads {file.name}" + ("" if same else f": {found}"))


def check_files_of_accelerate():
    files = [FOLDER / "accelerate.json", FOLDER / "accelerate.yaml", FOLDER / "accelerate_sections.yaml", FOLDER / "accelerate_tpu.yaml"]
    subprocess.run([PYTHON, "-c", WRITE, *map(str, files)], check=True, capture_output=True)
    for file in files:
        done = hasten("launch", "--config_file", file, "--dry_run", "echo")
        check(done.returncode == 0, f"hasten reads Accelerate's {file.name}: {done.stderr}")
        done = hasten("config", "update", "--config_file", file)
        again = hasten("launch", "--config_file", file, "--dry_run", "echo")
        check(done.returncode == 0 and again.returncode == 0, f"hasten updates {file.name}: {done.stderr}{again.stderr}")
        check("is ignored" not in again.stderr.replace("same_network is ignored", "").replace("rdzv_backend is ignored", ""),
              f"hasten ignores no key of the updated {file.name}: {again.stderr}")
    check(all("error" not in found for found in load_with_accelerate(*files)), "Accelerate reads the updated files")


if not PYTHON:
    print("skipped: HASTEN_REFERENCE_PYTHON does not name a Python with accelerate")
    sys.exit(0)
check_files_of_hasten()
check_files_of_accelerate()
print(f"{failures} failures")
sys.exit(1 if failures else 0)
