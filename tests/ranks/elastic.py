#!/usr/bin/env python3
"""hasten train with elastic ranks computes the same bits in one, two and four processes. Any number of processes can continue from a checkpoint
of another number, even after kill -9.

    elastic.py HASTEN MODEL
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, exit_code
from clean import CLEAN
from rows import texts, write_rows

HASTEN, MODEL = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
FOLDER = pathlib.Path(tempfile.mkdtemp())
VIRTUAL = 4
# These change with the clock.
TIMES = ("runtime", "per_second")


def with_dropout():
    other = FOLDER / "model"
    shutil.copytree(MODEL, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}))
    return other


def command(processes, arguments):
    start = [] if processes == 1 else [HASTEN, "launch", "-n", processes, "--no_config_file"]
    return list(map(str, [*start, HASTEN, "train", *arguments]))


def launch(processes, arguments, threads="2"):
    # Without elastic ranks, the number of threads would depend on this variable; elastic ranks set their own number.
    return subprocess.run(command(processes, arguments), env=CLEAN | {"OMP_NUM_THREADS": threads}, capture_output=True, text=True, timeout=300)


def session(leader):
    """Returns the living processes of a session."""
    members = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # the process has ended in the meantime
        if int(fields[3]) == leader and fields[0] != "Z":
            members.append(int(process.name))
    return members


def checkpoints_of(folder):
    return {each.name for each in folder.glob("checkpoint-*")}


def kill_after_save(folder, processes, arguments):
    """Starts a run in the folder, and kills all of its processes once it has saved a checkpoint. Returns True unless the run ended before."""
    before = checkpoints_of(folder)
    run = subprocess.Popen(command(processes, arguments), env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while run.poll() is None and not checkpoints_of(folder) - before:
        time.sleep(0.001)
    was_running = run.poll() is None
    while left := session(run.pid):
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        run.poll()
    run.wait()
    return was_running and bool(checkpoints_of(folder) - before)


def kill_before(last, folder, processes, arguments):
    """Kills a run after it has saved a checkpoint and before it saves that of step `last`. On a busy machine the run may be faster than this program: it is
    then repeated from the same state of the folder. Returns False if all attempts were too late."""
    saved = FOLDER / "before_the_kill"
    if folder.exists():
        shutil.copytree(folder, saved)
    is_killed = False
    for _ in range(10):
        is_killed = kill_after_save(folder, processes, arguments) and not (folder / f"checkpoint-{last}").exists()
        if is_killed:
            break
        shutil.rmtree(folder, ignore_errors=True)
        if saved.exists():
            shutil.copytree(saved, folder)
    shutil.rmtree(saved, ignore_errors=True)
    return is_killed


def train_arguments(name, data, *arguments, model=None):
    return ["--use_cpu", "--disable_tqdm", "--model", model or FOLDER / "model", *data, "--output_dir", FOLDER / name, "--logging_steps", 1, "--max_steps", 10,
            "--per_device_train_batch_size", 2, "--per_device_eval_batch_size", 3, "--gradient_accumulation_steps", 2, "--learning_rate", "2e-3",
            "--eval_strategy", "steps", "--eval_steps", 4, "--save_steps", 2, "--hash_chain_steps", 3, "--max_grad_norm", "0.5", "--lr_scheduler_type", "cosine",
            "--warmup_steps", 2, "--dataloader_num_workers", 1, "--elastic_ranks", VIRTUAL, *arguments]


def train(name, processes, data, *arguments, model=None):
    """Trains, and returns the results that two runs are compared by and the run's folder."""
    done = launch(processes, train_arguments(name, data, *arguments, model=model), threads=str(processes % 3 + 1))
    if done.returncode != 0:
        sys.exit(f"{name} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return result_of(FOLDER / name), FOLDER / name


def result_of(folder):
    log = [{key: value for key, value in entry.items() if not key.endswith(TIMES)} for entry in json.loads((folder / "trainer_state.json").read_text())["log_history"]]
    states = {name: (folder / "checkpoint-10" / name).read_bytes() for name in ("optimizer.safetensors", "random_state.safetensors")}
    return {"log": log, "chain": (folder / "hash_chain.jsonl").read_bytes(), **states}


def check_equal(what, result, expected):
    differing = [name for name in expected if result[name] != expected[name]]
    check(not differing, f"{what}: logs, hash chain (with all weights) and states are equal", f"different: {differing}\n{result['log']}\n{expected['log']}")


def check_refused(what, done, code, text):
    check(done.returncode in (2, 3) and f"error[{code}]" in done.stderr and text in done.stderr, f"{what} is refused", done.stderr[-2000:])


def on_cpu():
    with_dropout()
    rows, unseen = FOLDER / "train.safetensors", FOLDER / "eval.safetensors"
    write_rows(rows, texts(61, 1, with_gaps=True))   # an epoch has four steps; the last one has 13 rows, and some virtual ranks have none
    write_rows(unseen, texts(23, 2, with_gaps=False))
    data = ["--data", rows, "--eval_data", unseen]
    whole, folder = train("four", 4, data)
    losses = [entry["loss"] for entry in whole["log"] if "loss" in entry]
    check(len(losses) == 10 and len(set(losses)) == 10 and sum("eval_loss" in entry for entry in whole["log"]) >= 2, "ten steps and two evaluations are logged", str(whole["log"]))
    for processes in (1, 2):
        check_equal(f"{processes} of 4 processes", train(f"again{processes}", processes, data)[0], whole)
    # The number of processes changes from 4 to 2, to 1 and to 4, in the middle of epochs.
    shutil.copytree(folder, FOLDER / "moving")
    for processes, start in ((2, 2), (1, 4), (4, 8)):
        result, moving = train("moving", processes, data, "--resume_from_checkpoint", FOLDER / "moving" / f"checkpoint-{start}")
        check_equal(f"{processes} processes continue from step {start}", result, whole)
    # 4 processes are killed; 2 processes continue and are killed; 4 processes continue.
    again = FOLDER / "killed"
    check(kill_before(6, again, 4, train_arguments("killed", data)), "4 processes are killed before step 6")
    check(kill_before(10, again, 2, train_arguments("killed", data, "--resume_from_checkpoint", "true")), "2 processes continue, and are killed before the last step")
    check_equal("4 processes continue what 2 and 4 have left behind", train("killed", 4, data, "--resume_from_checkpoint", "true")[0], whole)
    check(json.loads((folder / "checkpoint-4" / "training_position.json").read_text())["elastic"] == {"ranks": 4, "seed": 42, "threads": 1}, "the checkpoint names the virtual ranks")
    for arguments, code, text in ((["--elastic_ranks", 2], "checkpoint.elastic", "expected 4, as in the checkpoint"),
                                  (["--elastic_ranks", 0], "checkpoint.elastic", "expected 4, as in the checkpoint"),
                                  (["--num_threads", 2], "checkpoint.elastic", "got 2, expected 1, as in the checkpoint")):
        check_refused(" ".join(map(str, arguments)), launch(1, train_arguments("moving", data, *arguments, "--resume_from_checkpoint", "true", "--max_steps", 12)), code, text)
    check_refused("a number of processes that does not divide it", launch(3, train_arguments("no", data)), "prepare.elastic", "expected a multiple of 3, the number of processes")
    check_refused("a number that is no power of two", launch(1, train_arguments("no", data, "--elastic_ranks", 6)), "config.out-of-range", "expected 0, or a power of two")
    check_refused("lbfgs", launch(1, train_arguments("no", data, "--optim", "lbfgs", "--gradient_accumulation_steps", 1)), "config.contradiction", "elastic_ranks and optim lbfgs")
    check_refused("buffers of each process", launch(1, train_arguments("no", data, "--ddp_broadcast_buffers", "false")), "prepare.elastic", "broadcast_buffers = false")
    check(not (FOLDER / "no").exists() or not any((FOLDER / "no").iterdir()), "a refused run writes nothing")


def stopped_by_signal():
    """A signal inside a window stops the run at the end of its step, where any number of processes can continue."""
    arguments = ["--data", FOLDER / "train.safetensors", "--eval_strategy", "no", "--max_steps", 120, "--logging_steps", 40, "--hash_chain_steps", 10, "--save_steps", 1000,
                 "--enable_jit_checkpoint"]
    straight, stopped = (FOLDER / name / "hash_chain.jsonl" for name in ("straight", "stopped"))
    done = launch(1, train_arguments("straight", arguments))
    check(done.returncode == 0, "one process trains", done.stderr[-2000:])
    run = subprocess.Popen(command(2, train_arguments("stopped", arguments)), env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not (stopped.exists() and stopped.read_text()):
        time.sleep(0.01)
    run.terminate()
    check("was received" in run.communicate(timeout=60)[1] and run.returncode == 143, "a signal stops two processes")
    done = launch(1, train_arguments("stopped", arguments, "--resume_from_checkpoint", "true"))
    check(done.returncode == 0 and stopped.read_bytes() == straight.read_bytes(), "one process continues what a signal has stopped in two: the hash chains are equal",
          done.stderr[-2000:])


def exported_program():
    """Tests a program that Python has exported for batches of at least two rows. With 46 rows, one virtual rank of the last step has no row, and with
    45 rows, another one has a single row."""
    model, draw = MODEL.parents[1] / "exported" / "transformer.pt2", random.Random(5)
    ids = [[draw.randint(0, 10) for _ in range(6)] for _ in range(46)]

    def arguments(count):
        data = FOLDER / f"exported{count}.safetensors"
        write_rows(data, {"input_ids": ids[:count], "attention_mask": [[1] * 6] * count, "labels": [sum(row) % 3 for row in ids[:count]]})
        return ["--data", data, "--eval_strategy", "no", "--gradient_accumulation_steps", 1]

    refused = launch(1, train_arguments("no", arguments(45), model=model))
    check_refused("a last step that leaves a virtual rank too few rows", refused, "exported.inputs", "set --dataloader_drop_last")
    for name, rest in [("every row", []), ("whole steps", ["--dataloader_drop_last"])]:
        whole = train(f"exported4 {name}", 4, arguments(46), *rest, model=model)[0]
        check_equal(f"an exported program in 1 process, {name}", train(f"exported1 {name}", 1, arguments(46), *rest, model=model)[0], whole)


def estimate():
    """A process that runs V virtual ranks has at most log2(V) + 1 gradients, as the estimate predicts."""
    def memory(virtual, *arguments):
        done = subprocess.run(list(map(str, [HASTEN, "estimate", FOLDER / "model", "--batch", 2, "--seq", 12, "--elastic_ranks", virtual, "--json", *arguments])),
                              env=CLEAN, capture_output=True, text=True, timeout=100)
        found = json.loads(done.stdout)["memory"]
        return {key: found[key] for key in ("peak", "max_bytes", "before", "after", "trained_parameters")}
    for virtual, gradients in ((2, 2), (4, 3), (8, 4)):
        predicted = memory(virtual)
        check(predicted["max_bytes"]["gradients"] == gradients * 4 * predicted["trained_parameters"], f"{virtual} virtual ranks have {gradients} gradients", str(predicted))
    check(memory(4) == memory(4, "--measure"), "the estimate equals the measurement")


try:
    on_cpu()
    stopped_by_signal()
    exported_program()
    estimate()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
