#!/usr/bin/env python3
"""hasten launch gives a program on a TPU the variables that torch_tpu needs.

    launch.py HASTEN OPEN-PROGRAM           with the variables of tests/tpu, which name the plugin
"""
import json
import os
import subprocess
import sys

HASTEN, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:3])
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("HASTEN_") or name.startswith("HASTEN_TEST_")}
CLEAN |= {"HASTEN_NO_CONFIG_FILE": "1", "OMP_NUM_THREADS": "1"}
failures = 0


def check(holds, what, output=""):
    global failures
    print(("ok      " if holds else "FAILED  ") + what + ("" if holds else f": {output}"), flush=True)
    failures += not holds


def run(*arguments, **variables):
    return subprocess.run(arguments, env=CLEAN | variables, text=True, capture_output=True, timeout=120)


def main():
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    done = run(PROGRAM, ACCELERATE_USE_TPU="true", **alone)
    needed = "TORCH_TPU_SLICEBUILDER_ADDRESSES, TORCH_TPU_TOPOLOGY" in done.stdout
    # Shows why hasten launch sets these variables; later versions of torch_tpu may not need them.
    check(done.returncode == 0 or needed, "without hasten launch, the TPU opens or variables are missing", done.stdout + done.stderr)
    done = run(HASTEN, "launch", "--tpu", "-n", "1", PROGRAM)
    check(done.returncode == 0 and "opened tpu:0" in done.stdout, "hasten launch --tpu: the TPU opens", done.stdout + done.stderr)
    done = run(HASTEN, "test", "--tpu", "-n", "1", "--json")
    results = {result["check"]: result for result in json.loads(done.stdout or '{"checks": []}').get("checks", [])}
    found = results.get("tpu", {})
    check(done.returncode == 0 and found.get("result") == "ok" and "chip 0" in found.get("text", ""), "hasten test --tpu computes on the TPU",
          f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    done = run(HASTEN, "test", "-n", "1", "--cpu", "--json")
    check('"tpu"' not in done.stdout and done.returncode == 0, "hasten test --cpu does not use the TPU", done.stdout[-2000:])
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
