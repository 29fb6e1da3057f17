#!/usr/bin/env python3
"""The Trainer on a stream of unknown size gives the same curve, scores and predictions in one, two and three processes, no matter how they share
it. Any number of processes can continue from a checkpoint, and processes with different streams end with one error.

    streams.py STREAMS HASTEN
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from checks import check, exit_code
from clean import CLEAN

STREAMS, HASTEN = (os.path.abspath(path) for path in sys.argv[1:3])
FOLDER = pathlib.Path(tempfile.mkdtemp())
READS_ALL, SPLITS = "accelerator_config=dispatch_batches=false", "accelerator_config=split_batches=true"
CLOSE = 1e-6
ROWS = 25


def launch(name, processes, *arguments):
    folder, result = FOLDER / name, FOLDER / f"{name}.json"
    result.unlink(missing_ok=True)
    start = [HASTEN, "launch", "-q", "-n", str(processes), "--no_config_file"]
    done = subprocess.run([*start, STREAMS, folder, result, *arguments], env=CLEAN | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120)
    return done, json.loads(result.read_text()) if result.exists() else None


def run(name, processes, batch, *arguments):
    done, result = launch(name, processes, f"per_device_train_batch_size={batch}", f"per_device_eval_batch_size={batch}", "learning_rate=0.05",
                          "adam_epsilon=1e-4", *arguments)
    if done.returncode != 0 or result is None:
        sys.exit(f"{name} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return result


def losses(result):
    return [entry["loss"] for entry in result["history"] if "loss" in entry]


def difference(result, other):
    ours, theirs = (losses(each) + [each["evaluation"]["eval_loss"]] + [number for values in each["weights"].values() for number in values]
                    for each in (result, other))
    return max(abs(a - b) for a, b in zip(ours, theirs)) if len(ours) == len(theirs) else float("inf")


def check_whole(what, result, reference, limit=CLOSE):
    most = difference(result, reference)
    check(most <= limit, f"{what}: losses, scores and weights agree within {most:.1e}", losses(result), losses(reference))
    scores = result["evaluation"]
    check(scores["eval_rows"] == ROWS and scores["eval_sum"] == sum(range(ROWS)), f"{what}: the evaluation counts each row once", scores)
    check(result["predicted"] == list(range(ROWS)), f"{what}: each row is predicted once, in order", result["predicted"])


def same_loss_curve():
    arguments = ["max_steps=11", "gradient_accumulation_steps=2"]
    single = run("single", 1, 6, *arguments)
    check(single["steps"] == 11 and len(losses(single)) == 11, "one process makes 11 steps")
    for processes in (2, 3):
        own = 6 // processes
        for name, batch, sharing in (("dispatched", own, []), ("read", own, [READS_ALL]), ("split", 6, [SPLITS]),
                                     ("split_read", 6, [SPLITS + ",dispatch_batches=false"])):
            result = run(f"{name}{processes}", processes, batch, *arguments, *sharing)
            check_whole(f"{name}, {processes} processes", result, single)
            readers = [rank for rank, each in enumerate(result["ranks"]) if each["reads"] > 0]
            expected = list(range(processes)) if "dispatch_batches=false" in " ".join(sharing) else [0]
            check(readers == expected, f"{name}, {processes} processes: the ranks {expected} read the stream", result["ranks"])
    check_whole("only rank 0 has rows", run("only", 2, 3, *arguments, "only_main=1"), single)


def size_of_main_process():
    """max_steps is not needed if the stream of rank 0 knows its size, even if no other stream does."""
    arguments = ["num_train_epochs=2", "sized=1"]
    single = run("sized1", 1, 6, *arguments)
    check(single["steps"] == 10, "two epochs of 25 rows are 10 steps", single["steps"])
    check_whole("sized by rank 0", run("sized2", 2, 3, *arguments, "only_main=1"), single)
    saves = ["save_strategy=steps", "save_steps=3", "only_main=1"]
    whole = run("sized_whole", 2, 3, *arguments, *saves)
    resumed = run("sized_resumed", 2, 3, *arguments, *saves, f"resume_from_checkpoint={FOLDER / 'sized_whole' / 'checkpoint-6'}")
    check_whole("sized by rank 0, resumed", resumed, whole, 0)
    done, _ = launch("unsized", 2, "num_train_epochs=2")
    check(done.returncode == 2 and "trainer.max-steps" in done.stderr, "without a size max_steps is required", done.stderr)


def resuming():
    arguments = ["max_steps=11", "save_strategy=steps", "save_steps=7"]
    for name, sharing in (("dispatched", []), ("read", [READS_ALL])):
        whole = run(f"{name}_whole", 3, 2, *arguments, *sharing)
        checkpoint = f"resume_from_checkpoint={FOLDER / f'{name}_whole' / 'checkpoint-7'}"
        for processes in (3, 2, 1):
            what = f"{name}: {processes} processes continue from the checkpoint of 3"
            result = run(f"{name}_resumed{processes}", processes, 6 // processes, *arguments, *sharing, checkpoint)
            check_whole(what, result, whole, 0 if processes == 3 else CLOSE)
            # Step 7 ends after 12 of the 25 rows of the second pass. Several processes read the first six, which may fill up the last step.
            skipped, own = [each["skipped"] for each in result["ranks"]], 12 if processes == 1 else 6
            expected = [own] * processes if sharing else [own] + [0] * (processes - 1)
            check(skipped == expected, f"{what}: the streams are asked to skip {expected} rows", skipped)


def parts():
    """Each of three processes reads its own part of the stream. The parts have 4, 10 and 11 rows, so a pass has six steps; each row counts once."""
    arguments = ["max_steps=15", "save_strategy=steps", "save_steps=4", "parts=1", READS_ALL]
    whole = run("parts_whole", 3, 2, *arguments)
    scores = whole["evaluation"]
    check(scores["eval_rows"] == ROWS and scores["eval_sum"] == sum(range(ROWS)), "parts: the evaluation counts each row once", scores)
    check(sorted(whole["predicted"]) == list(range(ROWS)), "parts: each row is predicted once", whole["predicted"])
    epochs = [round(entry["epoch"] * 15) for entry in whole["history"] if "loss" in entry]
    check(epochs == [*range(1, 7), *range(16, 22), *range(31, 34)], "parts: a pass has as many steps as the longest part needs", epochs)
    for step in (4, 8):  # after the first part's end, and exactly at it
        resumed = run(f"parts_resumed{step}", 3, 2, *arguments, f"resume_from_checkpoint={FOLDER / 'parts_whole' / f'checkpoint-{step}'}")
        check(difference(resumed, whole) == 0, f"parts: a run continues from step {step} bit for bit", losses(resumed), losses(whole))
    done, _ = launch("parts_other", 2, "per_device_train_batch_size=3", *arguments, f"resume_from_checkpoint={FOLDER / 'parts_whole' / 'checkpoint-4'}")
    check(done.returncode == 2 and "trainer.data-changed" in done.stderr, "parts: another number of processes is refused inside a pass", done.stderr)
    single, _ = launch("parts_one", 1, "per_device_train_batch_size=6", *arguments, f"resume_from_checkpoint={FOLDER / 'parts_whole' / 'checkpoint-4'}")
    check(single.returncode == 2 and "expected a stream in 3 parts, one for each process" in single.stderr,
          "parts: one process, which reads the whole stream, is refused inside a pass", single.stderr)
    whole_stream, _ = launch("parts_none", 3, "per_device_train_batch_size=2", *[argument for argument in arguments if argument != READS_ALL],
                             f"resume_from_checkpoint={FOLDER / 'parts_whole' / 'checkpoint-4'}")
    check(whole_stream.returncode == 2 and "got a stream that is not divided between processes" in whole_stream.stderr,
          "parts: processes for which rank 0 reads the whole stream are refused inside a pass", whole_stream.stderr)
    # A single process reads the whole stream, and so does rank 0 if it reads for all processes.
    check_whole("parts, rank 0 reads", run("parts_dispatched", 3, 2, "max_steps=7", "parts=1"), run("parts_single", 1, 6, "max_steps=7", "parts=1"))
    leaving_out = run("parts_drop_last", 3, 2, *arguments, "dataloader_drop_last=true", "save_strategy=no")
    epochs = [round(entry["epoch"] * 15) for entry in leaving_out["history"] if "loss" in entry]
    check(epochs[:4] == [1, 2, 16, 17], "parts: drop_last leaves out the steps that are not full in every process", epochs)


def streams_that_differ():
    """All processes end with one error, long before they would stop waiting for each other."""
    arguments = ["max_steps=11", "per_device_train_batch_size=2", "ddp_timeout=100"]
    for name, fault, errors in (("short", "short_rank=1", ["got 6 rows on rank 0, 4 rows on rank 1"]),
                                ("failing", "failing_rank=1", ["an error on rank 1", "the disk is gone"])):
        began = time.monotonic()
        done, _ = launch(name, 3, *arguments, READS_ALL, fault)
        check(done.returncode not in (0, 75) and any(error in done.stderr for error in errors) and time.monotonic() - began < 90,
              f"{name}: the ranks agree that their streams differ", done.stderr)
    done, _ = launch("failing_main", 3, *arguments, "failing_rank=0")
    check(done.returncode != 0 and "the disk is gone" in done.stderr, "an error of rank 0, which reads for all, ends all", done.stderr)
    done, _ = launch("indivisible", 3, "max_steps=2", "per_device_train_batch_size=4", SPLITS)
    check(done.returncode == 2 and "data.sharding" in done.stderr, "a batch that the processes cannot split is refused", done.stderr)


try:
    same_loss_curve()
    size_of_main_process()
    resuming()
    parts()
    streams_that_differ()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
