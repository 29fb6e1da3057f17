#!/usr/bin/env python3
"""Every program of the training test compiles for real TPUs with libtpu's compiler, which needs no TPU.

    topologies.py TPU-TESTS          with the variables of the test tpu/training

libtpu is proprietary. If it is not installed (HASTEN_LIBTPU, or the Python package) this test is skipped.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOPOLOGIES = ("v5e:2x2", "v6e:2x4", "v5p:2x2x2", "tpu7x:2x2x1")


def find_libtpu():
    named = os.environ.get("HASTEN_LIBTPU")
    package = importlib.util.find_spec("libtpu")
    return named or (package and str(Path(package.origin).parent / "libtpu.so"))


def compiles(program, library, topology):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "programs.json"
        environment = {**os.environ, "HASTEN_TEST_LIBTPU": library, "HASTEN_TEST_TOPOLOGY": topology, "HASTEN_TEST_PROGRAMS": str(report),
                       "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
        run = subprocess.run([program, "--source-file=*training_test.cpp", "--no-intro"], env=environment, capture_output=True, text=True, timeout=600)
        if run.returncode != 0:
            print(run.stdout[-2000:], run.stderr[-2000:])
        found = json.loads(report.read_text()) if report.exists() else {"programs": 0, "compiled_for_tpu": 0, "failed": [], "compiled": []}
    most = {part: max((program[part] for program in found["compiled"]), default=0) for part in ("arguments", "temporaries", "code")}
    print(f"{topology}: {found['programs']} programs, {found['compiled_for_tpu']} compiled, the largest in bytes: {most}", flush=True)
    for failure in found["failed"]:
        print(f"  program {failure['program']}: {failure['error'][:500]}")
    return run.returncode == 0 and 0 < found["programs"] == found["compiled_for_tpu"]


def main():
    library = find_libtpu()
    if not library:
        print("skipped: libtpu is not installed (HASTEN_LIBTPU=.../libtpu.so, or python3 -m pip install libtpu)")
        return 0
    return 0 if all([compiles(sys.argv[1], library, topology) for topology in TOPOLOGIES]) else 1


if __name__ == "__main__":
    sys.exit(main())
