"""Memory that runs out, and signals."""
import json
import os
import signal

from cases import Case, Failed, Skipped
from part_tests import train_words

NAME = "faults"
SECONDS = 60
ABOUT = "out of memory in forward and in backward, kill -9, SIGTERM"
MEMORY_ERROR = 5  # docs/errors.md


def cases(place):
    out = [Case("SIGTERM", 30, sigterm, shares_gpu=True), Case("kill -9 and resume", 40, killed, shares_gpu=True)]
    if not place.on_cpu:
        out += [Case("out of memory in forward", 25, out_of_memory_in_forward), Case("out of memory in backward", 40, out_of_memory_in_backward)]
    return out


def endless(place, folder, *words):
    return place.start([place.program("hasten"), *train_words(place, folder, 10_000_000, *words)])


def sigterm(place):
    """The run stops after a step, saves, and returns 143."""
    folder = place.scratch / "sigterm"
    process = endless(place, folder, "--save_strategy", "no")
    place.await_text(process, "'loss'", 20)
    os.kill(process.pid, signal.SIGTERM)
    code = place.wait(process)
    if code != 128 + signal.SIGTERM:
        raise Failed(f"exit code {code}, expected 143: {place.last_line(process)}")
    if not (folder / "model.safetensors").exists():
        raise Failed("no model was saved")
    return {"steps": json.loads((folder / "trainer_state.json").read_text())["global_step"]}


def killed(place):
    """A killed run leaves a checkpoint from which another continues."""
    folder = place.scratch / "killed"
    process = endless(place, folder, "--save_strategy", "steps", "--save_steps", 4, "--save_total_limit", 2)
    place.await_text(process, "'loss'", 20)
    while not list(folder.glob("checkpoint-*/trainer_state.json")):
        if process.poll() is not None or place.left() < 2:
            raise Failed("no checkpoint was saved: " + place.last_line(process))
    place.kill(process)
    newest = max(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*") if path.name.split("-")[1].isdigit())
    text = place.hasten(*train_words(place, folder, newest + 4, "--save_strategy", "no", "--resume_from_checkpoint", "true"))
    state = json.loads((folder / "trainer_state.json").read_text())
    if state["global_step"] != newest + 4:
        raise Failed(f"step {state['global_step']} after the resumed run, expected {newest + 4}: {text[-200:]}")
    return {"resumed_at": newest}


def train_large(place, model, batch, length):
    return place.hasten("train", "--model", model, "--data", "dummy", "--dummy_rows", 2 * batch, "--dummy_length", length, "--max_length", length, "--do_train",
                        "--disable_tqdm", "--per_device_train_batch_size", batch, "--max_steps", 2, "--save_strategy", "no", "--output_dir",
                        place.scratch / f"memory-{batch}-{length}", codes=(MEMORY_ERROR,))


def check_report(text, phase):
    if phase not in text.lower():
        raise Failed(f"the report does not name the {phase} pass: {text[-400:]}")
    return {"report": text[-400:]}


def out_of_memory_in_forward(place):
    return check_report(train_large(place, "bert-large", 2048, 512), "forward")


def peaks(place, batch, length):
    """The most live bytes in the forward and in the backward pass of the first step."""
    report = place.json_of(place.hasten("estimate", "bert-large", "--batch", batch, "--seq", length, "--steps", 1, "--device", f"cuda:{place.gpu}", "--json"))
    gpu, phases = report["memory"]["gpu"], report["memory"]["peak_in_phase"]
    return phases["forward"], phases["backward"], gpu["capacity"] - gpu["context"]


def out_of_memory_in_backward(place):
    """Looks for a batch whose forward pass fits and whose backward pass does not."""
    for length in (512, 496, 448, 384):
        first, second = peaks(place, 8, length), peaks(place, 16, length)
        for batch in range(16, 1024):
            forward, backward = (first[i] + (second[i] - first[i]) * (batch - 8) / 8 for i in (0, 1))
            if forward * 1.005 < first[2] < backward * 0.995:
                return check_report(train_large(place, "bert-large", batch, length), "backward")
    raise Skipped("no batch is predicted to fit in the forward pass only")
