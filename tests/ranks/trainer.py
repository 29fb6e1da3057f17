#!/usr/bin/env python3
"""hasten train gives the same curve, scores, predictions and weights in one, two and four processes, no matter which rows
have labels. Any number of processes can continue from a checkpoint.

    trainer.py HASTEN MODEL
    trainer.py HASTEN MODEL ENGINE-FOLDER PLUGIN BACKEND     compares two processes on device tpu, each with its own CPU engine, with one on the
                                                             CPU; BACKEND is tpu_dist or gloo
"""
import array
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from checks import check, exit_code
from clean import CLEAN
from rows import texts, write_rows

HASTEN, MODEL = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
ENVIRONMENT = CLEAN | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FOLDER = pathlib.Path(tempfile.mkdtemp())
EXPORTED = MODEL.parents[1] / "exported"
CLOSE = 1e-5
SMOOTH = "1e-4"  # some gradients are zero except for rounding errors, which AdamW would turn into steps


def tensors(file):
    content = file.read_bytes()
    size, = struct.unpack("<Q", content[:8])
    kinds = {"F32": "f", "I64": "q"}
    found = {}
    for name, tensor in json.loads(content[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        found[name] = tensor["shape"], array.array(kinds[tensor["dtype"]], content[8 + size + begin:8 + size + end])
    return found


def launch(processes, arguments, by="hasten", environment=None):
    starts = {"hasten": [HASTEN, "launch", "-n", processes, "--no_config_file"],
              "torchrun": ["torchrun", "--nproc-per-node", processes, "--no-python"],
              "mpirun": ["mpirun.openmpi", "--oversubscribe", "-n", processes]}
    start = [] if processes == 1 else starts[by]
    return subprocess.run(list(map(str, [*start, HASTEN, "train", *arguments])), env=ENVIRONMENT | (environment or {}), capture_output=True, text=True, timeout=300)


def train(name, processes, batch, model, data, *arguments, by="hasten", environment=None):
    """Returns the run's log and its folder."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    device = [] if environment else ["--use_cpu"]
    done = launch(processes, [*device, "--disable_tqdm", "--model", model, "--data", data, "--output_dir", folder, "--logging_steps", 1,
                                "--per_device_train_batch_size", batch, "--learning_rate", "2e-3", "--adam_epsilon", SMOOTH, *arguments], by, environment)
    if done.returncode != 0:
        sys.exit(f"{name} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    state = json.loads((folder / "trainer_state.json").read_text())
    return state["log_history"], folder


TIMES = re.compile(".*(runtime|per_second)$")


def log_difference(log, other):
    """Returns the largest difference between two logs, relative for large numbers, or infinity if they have different keys."""
    if len(log) != len(other):
        return float("inf")
    most = 0.0
    for a, b in zip(log, other):
        if a.keys() != b.keys():
            return float("inf")
        for name in a:
            if not TIMES.match(name):
                most = max(most, abs(a[name] - b[name]) / max(1.0, abs(b[name])))
    return most


def tensor_difference(folder, other, file="model.safetensors"):
    ours, theirs = tensors(folder / file), tensors(other / file)
    if {name: shape for name, (shape, _) in ours.items()} != {name: shape for name, (shape, _) in theirs.items()}:
        return float("inf")
    return max(abs(a - b) for name in ours for a, b in zip(ours[name][1], theirs[name][1]))


def check_same(what, run, reference, limit=CLOSE):
    logs, weights = log_difference(run[0], reference[0]), tensor_difference(run[1], reference[1])
    check(logs <= limit and weights <= limit, f"{what}: the logs agree within {logs:.1e}, the weights within {weights:.1e}",
          "\n".join(f"{a}\n{b}" for a, b in zip(run[0], reference[0]) if log_difference([a], [b]) > limit))


def same_loss_curve(kind, model, with_gaps):
    """Trains on 403 rows in steps of 8: the last step of an epoch has three rows, too few for four processes."""
    data, unseen = FOLDER / f"{kind}.safetensors", FOLDER / f"{kind}_eval.safetensors"
    write_rows(data, texts(403, 1, with_gaps))
    write_rows(unseen, texts(37, 2, with_gaps))
    arguments = ["--eval_data", unseen, "--max_steps", 60, "--eval_strategy", "steps", "--eval_steps", 25, "--per_device_eval_batch_size", 5,
                 "--save_strategy", "no", "--do_train", "--do_predict", "--include_num_input_tokens_seen", "all"]
    single = train(f"{kind}1", 1, 8, model, data, *arguments)
    check(len([entry for entry in single[0] if "loss" in entry]) == 60, f"{kind}: there are 60 steps")
    for processes in (2, 4):
        together = train(f"{kind}{processes}", processes, 8 // processes, model, data, *arguments)
        check_same(f"{kind}, {processes} processes", together, single)
        difference = tensor_difference(together[1], single[1], "predictions.safetensors")
        check(difference <= CLOSE, f"{kind}, {processes} processes: the predictions agree within {difference:.1e}")
    return data


def windows(model):
    """The rows of a step have equal weight, whether processes or micro-batches divide them."""
    data = FOLDER / "windows.safetensors"
    write_rows(data, texts(396, 3, with_gaps=True))
    arguments = ["--max_steps", 30, "--save_strategy", "no", "--train_sampling_strategy", "sequential"]
    single = train("window1", 1, 12, model, data, *arguments)
    check_same("6 micro-batches", train("window6", 1, 2, model, data, *arguments, "--gradient_accumulation_steps", 6), single)
    check_same("2 processes, 2 micro-batches", train("window22", 2, 3, model, data, *arguments, "--gradient_accumulation_steps", 2), single)
    check_same("3 processes, 4 micro-batches", train("window34", 3, 1, model, data, *arguments, "--gradient_accumulation_steps", 4), single)


def with_dropout(model):
    """Returns the same model with dropout. A checkpoint must keep the random streams of every process for it."""
    other = FOLDER / "dropout"
    shutil.copytree(model, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}))
    return other


def checkpoints(model, data):
    arguments = ["--max_steps", 24, "--save_strategy", "steps", "--save_steps", 9, "--num_train_epochs", 3]
    dropping = with_dropout(model)
    for start, changes in ((dropping, (2,)), (model, (1, 4))):
        whole = train("whole", 2, 4, start, data, *arguments)
        check(sorted(path.name for path in whole[1].glob("checkpoint-*")) == ["checkpoint-18", "checkpoint-24", "checkpoint-9"], "the checkpoints are complete")
        for processes in changes:
            log, folder = train("resumed", processes, 8 // processes, start, data, *arguments, "--resume_from_checkpoint", whole[1] / "checkpoint-9")
            check_same(f"{processes} processes continue from the checkpoint of 2", (log, folder), whole, 0 if processes == 2 else CLOSE)
    resume_from_earlier_checkpoint(model, data, arguments)
    other = train("other", 2, 4, dropping, data, *arguments, "--seed", 43)
    check(log_difference(other[0], train("other1", 1, 8, dropping, data, *arguments, "--seed", 43)[0]) > 1e-3, "dropout differs between processes")
    done = launch(2, ["--use_cpu", "--model", model, "--data", data, "--output_dir", FOLDER / "no", "--per_device_train_batch_size", 8,
                        "--resume_from_checkpoint", FOLDER / "whole" / "checkpoint-9", "--max_steps", 24])
    check(done.returncode == 2 and "got a batch of 16 (8 in each of 2 processes), expected 8 (4 in each of 2 processes)" in done.stderr,
          "another batch size is refused", done.stderr)


def resume_from_earlier_checkpoint(model, data, arguments):
    """Two processes resume from an earlier checkpoint of the folder that they write to, and abandon the later ones."""
    folder = train("back", 2, 4, model, data, *arguments)[1]
    (folder / ".checkpoint-18.partial-999999999").mkdir()  # from another machine, where it may still be running
    again = ["--use_cpu", "--disable_tqdm", "--model", model, "--data", data, "--output_dir", folder, "--logging_steps", 1, "--per_device_train_batch_size", 4,
             "--learning_rate", "2e-3", "--adam_epsilon", SMOOTH, *arguments, "--resume_from_checkpoint", folder / "checkpoint-9", "--max_steps", 20, "--save_total_limit", 2]
    done = launch(2, again)
    left = sorted(path.name for path in folder.iterdir() if "checkpoint" in path.name)
    check(done.returncode == 0 and left == [".checkpoint-18.partial-999999999", "checkpoint-18", "checkpoint-20"], f"after going back, the folder has {left}", done.stderr)
    check(done.stderr.count("max_steps is 20 and was 24") == 1, "a changed argument is reported once for all processes", done.stderr)
    (folder / "train_results.json").write_text("as it was")
    done = launch(2, [*again, "--resume_from_checkpoint", "true"])
    check(done.returncode == 0 and done.stderr.count("nothing is left to train") == 1 and (folder / "train_results.json").read_text() == "as it was",
          "two processes with nothing left to do write nothing", done.stderr)


def failure_of_main_process(model, data):
    """An error in the main process ends all processes with that error."""
    obstacle = FOLDER / "obstacle"
    obstacle.write_text("a file at the path of a folder")
    arguments = ["--use_cpu", "--model", model, "--data", data, "--output_dir", obstacle]
    single, began = launch(1, arguments), time.monotonic()
    together = launch(2, arguments)
    code = re.search(r"error\[(.*?)\]", single.stderr)
    check(code and together.returncode == single.returncode != 0 and together.stderr.count(code[0]) >= 1 and time.monotonic() - began < 20,
          "if the main process cannot write, all processes end with its error", together.stderr)


def other_launchers(model, data):
    arguments = ["--max_steps", 10, "--save_strategy", "no"]
    single = train("launched1", 1, 8, model, data, *arguments)
    for by, program in (("mpirun", "mpirun.openmpi"), ("torchrun", "torchrun")):
        if shutil.which(program):
            check_same(f"started by {by}", train(by, 2, 4, model, data, *arguments, by=by), single)
        else:
            print(f"not installed: {by}")


def on_tpu(model, engine, plugin, backend):
    """Trains on 75 rows: the last step of an epoch has three rows, for two processes that take four rows each."""
    data, unseen = FOLDER / "rows.safetensors", FOLDER / "unseen.safetensors"
    write_rows(data, texts(75, 1, with_gaps=True))
    write_rows(unseen, texts(37, 2, with_gaps=True))
    environment = {"ACCELERATE_USE_TPU": "true", "TPU_LIBRARY_PATH": str(plugin), "PYTHONPATH": str(engine), "HASTEN_TEST_EXCHANGE_FOLDER": str(FOLDER),
                   "HASTEN_TEST_ENGINE": f"{engine}/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "HASTEN_PROCESS_GROUP_BACKEND": backend}
    arguments = ["--eval_data", unseen, "--max_steps", 20, "--eval_strategy", "steps", "--eval_steps", 12, "--per_device_eval_batch_size", 5,
                 "--save_strategy", "no", "--do_train", "--do_predict", "--include_num_input_tokens_seen", "all", "--attn_implementation", "eager"]
    single = train("cpu", 1, 8, model, data, *arguments)
    check_same(f"two processes on device tpu by {backend}", train(backend, 2, 4, model, data, *arguments, environment=environment), single)
    # Trains a language model, because attention in one operator needs a kernel that the CPU engine does not have.
    data, draw = FOLDER / "language.safetensors", random.Random(5)
    ids = [[draw.randint(0, 10) for _ in range(6)] for _ in range(46)]
    write_rows(data, {"input_ids": ids, "labels": ids})
    arguments = ["--max_steps", 12, "--save_strategy", "no"]
    check_same("an exported program on device tpu", train("tpu_exported", 2, 4, EXPORTED / "tied.pt2", data, *arguments, environment=environment),
               train("cpu_exported", 1, 8, EXPORTED / "tied.pt2", data, *arguments))


def exported_program():
    """Trains a program that Python has exported for batches of at least two rows, in two processes, and continues from a checkpoint."""
    model, data, draw = EXPORTED / "transformer.pt2", FOLDER / "exported.safetensors", random.Random(5)
    ids = [[draw.randint(0, 10) for _ in range(6)] for _ in range(46)]
    write_rows(data, {"input_ids": ids, "attention_mask": [[1] * 6 for _ in ids], "labels": [sum(row) % 3 for row in ids]})
    arguments = ["--eval_data", data, "--max_steps", 18, "--eval_strategy", "epoch", "--save_steps", 4]
    single = train("exported1", 1, 8, model, data, *arguments)
    together = train("exported2", 2, 4, model, data, *arguments)
    check_same("an exported program in 2 processes", together, single)
    resumed = train("exported3", 2, 4, model, data, *arguments, "--resume_from_checkpoint", together[1] / "checkpoint-4")
    check_same("an exported program continues from a checkpoint", resumed, together, 0)


def on_cpu():
    rows = same_loss_curve("labels", MODEL, with_gaps=False)
    same_loss_curve("gaps", MODEL, with_gaps=True)
    windows(MODEL)
    checkpoints(MODEL, rows)
    failure_of_main_process(MODEL, rows)
    other_launchers(MODEL, rows)
    exported_program()


try:
    if len(sys.argv) > 3:
        on_tpu(MODEL, *(pathlib.Path(path).resolve() for path in sys.argv[3:5]), sys.argv[5])
    else:
        on_cpu()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
