"""Memory that runs out, and signals."""
import json
import os
import signal

from cases import Case, Failed, Skipped, concurrent_case
from part_tests import train_arguments

NAME = "faults"
SECONDS = 120
ABOUT = "out of memory in forward and in backward, kill -9, SIGTERM"
MEMORY_ERROR = 5  # docs/errors.md


def cases(context):
    out = [concurrent_case("SIGTERM", 30, sigterm), concurrent_case("kill -9 and resume", 40, killed)]
    if not context.on_cpu:
        out += [Case("out of memory in forward", 50, out_of_memory_in_forward), Case("out of memory in backward", 90, out_of_memory_in_backward)]
    return out


def start_endless_run(context, folder, *arguments):
    return context.start([context.program("hasten"), *train_arguments(context, folder, 10_000_000, *arguments)])


def sigterm(context):
    """The run stops after a step, saves, and returns 143."""
    folder = context.scratch / "sigterm"
    process = start_endless_run(context, folder, "--save_strategy", "no")
    context.wait_for_text(process, "'loss'", 20)
    os.kill(process.pid, signal.SIGTERM)
    code = context.wait(process)
    if code != 128 + signal.SIGTERM:
        raise Failed(f"exit code {code}, expected 143: {context.last_line(process)}")
    if not (folder / "model.safetensors").exists():
        raise Failed("no model was saved")
    return {"steps": json.loads((folder / "trainer_state.json").read_text())["global_step"]}


def killed(context):
    """A killed run leaves a checkpoint, and another run continues from it."""
    folder = context.scratch / "killed"
    process = start_endless_run(context, folder, "--save_strategy", "steps", "--save_steps", 4, "--save_total_limit", 2)
    context.wait_for_text(process, "'loss'", 20)
    while not list(folder.glob("checkpoint-*/trainer_state.json")):
        if process.poll() is not None or context.left() < 2:
            raise Failed("no checkpoint was saved: " + context.last_line(process))
    context.kill(process)
    newest = max(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*") if path.name.split("-")[1].isdigit())
    text = context.hasten(*train_arguments(context, folder, newest + 4, "--save_strategy", "no", "--resume_from_checkpoint", "true"))
    state = json.loads((folder / "trainer_state.json").read_text())
    if state["global_step"] != newest + 4:
        raise Failed(f"step {state['global_step']} after the resumed run, expected {newest + 4}: {text[-200:]}")
    return {"resumed_at": newest}


def train_large(context, model, batch, length, *arguments):
    return context.hasten("train", "--model", model, "--data", "dummy", "--dummy_rows", 2 * batch, "--dummy_length", length, "--max_length", length, "--do_train",
                        "--disable_tqdm", "--per_device_train_batch_size", batch, "--max_steps", 2, "--save_strategy", "no", "--output_dir",
                          context.scratch / f"memory-{batch}-{length}", *arguments, codes=(MEMORY_ERROR,))


def check_report(text, phase):
    expected = [f"memory runs out in the {phase} pass, in aten::", ": it requests ", " are allocated (", "a batch of "]
    missing = [each for each in expected if each not in text]
    if missing:
        raise Failed(f"the report lacks {missing}: {text[-600:]}")
    if "PYTORCH_CUDA_ALLOC_CONF" in text:
        raise Failed("the report repeats LibTorch's advice: " + text[-600:])
    return {"report": text[-600:]}


def out_of_memory_in_forward(context):
    return check_report(train_large(context, "bert-large", 2048, 512), "forward")


# With recomputed activations, the peak is in the backward pass by a wide margin.
RECOMPUTING = ("bert-base", 512, ("--activation_checkpointing",))


def peaks(context, batch):
    """Returns the peak bytes in the forward and in the backward pass of the first step, and the bytes that the GPU has for tensors."""
    model, length, options = RECOMPUTING
    report = context.json_of(context.hasten("estimate", model, "--batch", batch, "--seq", length, "--steps", 1, "--precision", "bf16", *options, "--device",
                                          f"cuda:{context.gpu}", "--json"))
    gpu, phases = report["memory"]["gpu"], report["memory"]["peak_in_phase"]
    return phases["forward"], phases["backward"], gpu["capacity"] - gpu["context"]


def out_of_memory_in_backward(context):
    """Uses the middle of the batch sizes for which the forward pass fits and the backward pass does not."""
    few, many = 64, 128
    first, second = peaks(context, few), peaks(context, many)
    fitting = [(first[2] - first[i]) * (many - few) / (second[i] - first[i]) + few for i in (0, 1)]
    if fitting[0] < 1.05 * fitting[1]:
        raise Skipped(f"{fitting[0]:.0f} rows fit in the forward pass and {fitting[1]:.0f} in the backward pass")
    model, length, options = RECOMPUTING
    return check_report(train_large(context, model, int(sum(fitting) / 2), length, "--bf16", *options), "backward")
