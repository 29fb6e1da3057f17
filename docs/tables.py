#!/usr/bin/env python3
"""Fills the tables of docs/anatomy.md, docs/exported.md, docs/gpu.md and docs/techniques.md, which are between "<!-- table NAME -->" and "<!-- end -->", with the output of hasten.

    docs/tables.py build/release/bin            writes the tables
    docs/tables.py build/release/bin --check    reports a table that differs; skips tables that depend on the machine

HASTEN_REFERENCE_PYTHON names a Python with torch and transformers, which exports the model of the table three-models.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE / "anatomy.md"
EXPORTED_PAGE = HERE / "exported.md"
GPU_PAGE = HERE / "gpu.md"
TECHNIQUES_PAGE = HERE / "techniques.md"
MAX_COLUMNS = 150  # of a line of a page
ARCHITECTURES = HERE.parent / "tests" / "oracle" / "data" / "architectures"
COMPONENTS = {"model_weights": "model weights", "optimizer_states": "optimizer states", "gradients": "gradients",
              "activations": "activations", "temporary_buffers": "temporary buffers", "functionality": "functionality"}
REASONS = {
    "model_weights": "as in the textbook",
    "optimizer_states": "8 B, plus one byte for each 4,096 numbers of the word table, which records where the table has moments",
    "gradients": "4 B at the end of the step; at the peak, early in the backward pass, few exist",
    "activations": "attention stores no probabilities and dropout no masks ([001](design/001-cpu-operators.md))",
    "temporary_buffers": "operands packed for matrix products, and intermediate gradients", "functionality": "the batch"}
PYTHON = os.environ.get("HASTEN_REFERENCE_PYTHON")
TYPICAL = ["cuda:" + name for name in ("t4", "v100-16gb", "rtx4090", "a10g", "l40s", "a100-80gb", "h100-80gb", "b200")]
BERT_LARGE = ["bert-large", "--batch", "4", "--seq", "512"]


@functools.cache  # several tables show the same prediction
def estimate(*arguments):
    return json.loads(subprocess.run([BIN / "hasten", "estimate", *arguments, "--json"], check=True, capture_output=True, text=True).stdout)


def output(*command):
    return subprocess.run([BIN / command[0], *command[1:]], check=True, capture_output=True, text=True).stdout.rstrip()


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def bert_large_on_cpu():
    memory = estimate(*BERT_LARGE)["memory"]
    rows = [[title, f"{memory['at_peak'][name]:,}", f"{memory['at_peak'][name] / memory['parameters']:.2f} B", REASONS[name]]
            for name, title in COMPONENTS.items()]
    rows.append(["**peak**", f"**{memory['peak']:,}**", f"{memory['peak'] / memory['parameters']:.2f} B",
                 "16 B (18 B with mixed precision) plus activations"])
    return markdown(["Component", "Bytes at the peak", "Per parameter", "Compared with the textbook"], rows)


def comparison_with_documentation():
    return "```\n$ anatomy_bert_large --page\n" + output("anatomy_bert_large", "--page") + "\n```"


def list_of_gpus():
    return "```\n$ hasten estimate --devices\n" + output("hasten", "estimate", "--devices") + "\n```"


def excerpt(*arguments, beginnings):
    """Shows the lines of `hasten estimate` that have one of these beginnings, and "..." for the others. Leaves out blank lines."""
    lines = []
    for line in filter(None, output("hasten", "estimate", *arguments).split("\n")):
        if line.startswith(beginnings):
            lines += textwrap.wrap(line, MAX_COLUMNS, break_on_hyphens=False)
        elif lines[-1:] != ["..."]:
            lines.append("...")
    return "\n".join(["```", "$ hasten estimate " + " ".join(arguments), *lines, "```"])


def expected_step():
    return excerpt(*BERT_LARGE, "--device", "cuda:h200", beginnings=("Predicted on", "Lower bound", "Expected for"))


def predicted_steps():
    """Returns the time that today's program expects for the steps that were measured on Hopper."""
    steps = {"BERT-large, 4 rows of 512, float": BERT_LARGE, "BERT-large, 4 rows of 512, TF32": [*BERT_LARGE, "--tf32", "true"],
             "BERT-large, 64 rows of 512, bf16": ["bert-large", "--batch", "64", "--seq", "512", "--precision", "bf16"],
             "BERT-base, 64 rows of 128, bf16": ["bert-base", "--batch", "64", "--seq", "128", "--precision", "bf16"],
             "GPT-2, 32 rows of 1024, bf16": ["gpt2", "--batch", "32", "--seq", "1024", "--precision", "bf16"]}

    def milliseconds(words, device):
        return f"{1000 * estimate(*words, '--device', device)['expected_step']['seconds']:.1f} ms"
    return markdown(["step", "H200", "H100"], [[step, *(milliseconds(words, device) for device in ("cuda:h200", "cuda:h100-80gb"))]
                                               for step, words in steps.items()])


def out_of_memory():
    return excerpt("bert-base", "--batch", "64", "--seq", "512", "--device", "cuda:t4",
                   beginnings=("The step does not fit", "Out of memory:", "Note: a batch of"))


def bert_large_on_gpus():
    def cells(device, *arguments):
        report = estimate(*BERT_LARGE, "--device", device, *arguments)
        gpu = report["memory"]["gpu"]
        return f"{(gpu['reserved'] + gpu['context']) / 1e9:.2f} GB", f"{1000 * report['min_step_seconds']:.0f} ms"
    return markdown(["Device", "float: memory", "float: shortest step", "bf16: memory", "bf16: shortest step"],
                    [[device, *cells(device), *cells(device, "--precision", "bf16")] for device in TYPICAL])


RECOMPUTED = ["--activation_checkpointing"]


def before_and_after(variants, *arguments):
    """Compares the components of a step at its peak between variants: a title, and the options that it adds."""
    reports = [(title, estimate(*arguments, *more)["memory"]) for title, more in variants]
    rows = [[title, *(f"{memory['at_peak'][name]:,}" for _, memory in reports)] for name, title in COMPONENTS.items()]
    rows.append(["**peak**", *(f"**{memory['peak']:,}**" for _, memory in reports)])
    rows.append(["most activations at any time", *(f"{memory['max_bytes']['activations']:,}" for _, memory in reports)])
    if "gpu" in reports[0][1]:
        rows.append(["needed on the GPU", *(f"{(memory['gpu']['reserved'] + memory['gpu']['context']) / 1e9:.2f} GB" for _, memory in reports)])
    return markdown(["Bytes at the peak", *(title for title, _ in reports)], rows)


def recomputation():
    variants = [("plain", []), ("recomputed", RECOMPUTED), ("every second layer", [*RECOMPUTED, "--activation_checkpointing_kwargs", "every_n_layers=2"]),
                ("selective", [*RECOMPUTED, "--activation_checkpointing_kwargs", "policy=selective"])]
    return before_and_after(variants, "bert-base", "--batch", "8", "--seq", "512")


LEAN_STATES = ["--optim_args", "state_dtype=bfloat16"]


def float16():
    variants = [("float", []), ("fp16", ["--precision", "fp16"]), ("bf16", ["--precision", "bf16"])]
    return before_and_after(variants, "bert-base", "--batch", "8", "--seq", "512")


def float16_on_gpus():
    variants = {"float": [], "tf32": ["--tf32", "true"], "fp16": ["--precision", "fp16"]}

    def cells(device, arguments):
        if "--tf32" in arguments and device in ("cuda:t4", "cuda:v100-16gb"):
            return ["-"]
        report = estimate(*BERT_LARGE, "--device", device, *arguments)
        memory = (report["memory"]["gpu"]["reserved"] + report["memory"]["gpu"]["context"]) / 1e9
        step = f"{1000 * report['min_step_seconds']:.0f} ms"
        return [step] if "--tf32" in arguments else [f"{memory:.2f} GB", step]
    return markdown(["Device", "float: memory", "float: step", "tf32: step", "fp16: memory", "fp16: step"],
                    [[device, *(cell for arguments in variants.values() for cell in cells(device, arguments))] for device in TYPICAL])


def bfloat16_weights():
    variants = [("float", []), ("moments in bfloat16", LEAN_STATES), ("weights in bfloat16", ["--weights_dtype", "bfloat16"]),
                ("both", ["--weights_dtype", "bfloat16", *LEAN_STATES])]
    return before_and_after(variants, "bert-base", "--batch", "8", "--seq", "512")


def offloading():
    variants = [("plain", []), ("offloaded", ["--activation_offloading"]), ("recomputed", RECOMPUTED),
                ("recomputed, inputs offloaded", [*RECOMPUTED, "--activation_checkpointing_kwargs", "offload=true"])]
    return before_and_after(variants, *BERT_LARGE, "--precision", "bf16", "--device", "cuda:a100-80gb")


def lean_optimizers():
    variants = [("adamw_torch_fused", [])] + [(arguments.replace(" --optim_args", ","), ["--optim", *arguments.split()]) for arguments in (
        "adamw_8bit", "adamw_8bit --optim_args embedding_bits=8", "lion_8bit", "adafactor")]
    return before_and_after(variants, *BERT_LARGE)


STEP_IN_BACKWARD = ["--max_grad_norm", "0", "--step_in_backward"]


def step_in_backward():
    return before_and_after([("BERT-base", ["bert-base", "--batch", "1"]), ("in the pass", ["bert-base", "--batch", "1", *STEP_IN_BACKWARD]),
                             ("BERT-large", ["bert-large", "--batch", "1"]), ("in the pass", ["bert-large", "--batch", "1", *STEP_IN_BACKWARD])],
                            "--seq", "512")


def offloaded_states():
    variants = [("plain", []), ("states in host memory", ["--offload_optimizer_states"]),
                ("and steps in the pass", ["--offload_optimizer_states", *STEP_IN_BACKWARD])]
    return before_and_after(variants, *BERT_LARGE, "--precision", "bf16", "--device", "cuda:a100-80gb")


def together():
    """The settings of the documentation, and what goes beyond them: the peak of a step in each combination."""
    one_row, lean = ["--batch", "1", "--gradient_accumulation_steps", "4"], ["--optim", "adamw_8bit"]
    all_8 = [*lean, "--optim_args", "embedding_bits=8"]
    variants = [("4 rows", ["--batch", "4"]), ("4 windows of 1 row", one_row), ("and recomputation", [*one_row, *RECOMPUTED]),
                ("and `adamw_8bit`", [*one_row, *RECOMPUTED, *lean]), ("and `embedding_bits=8`", [*one_row, *RECOMPUTED, *all_8]),
                ("1 row, recomputation, `adamw_8bit`, steps in the pass", ["--batch", "1", *RECOMPUTED, *lean, *STEP_IN_BACKWARD]),
                ("the same with AdamW, weights and states in bfloat16", ["--batch", "1", *RECOMPUTED, "--weights_dtype", "bfloat16",
                                                                        "--optim_args", "state_dtype=bfloat16", *STEP_IN_BACKWARD])]
    rows = []
    for title, arguments in variants:
        memory = estimate("bert-large", "--seq", "512", *arguments)["memory"]
        rows.append([title, *(f"{memory['at_peak'][name] / 1e6:,.0f}" for name in COMPONENTS), f"**{memory['peak'] / 1e6:,.0f}**"])
    return markdown(["MB at the peak", *COMPONENTS.values(), "peak"], rows)


EXPORT_VIT = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from transformers import ViTConfig, ViTForImageClassification
from export_for_hasten import export_for_hasten
model = ViTForImageClassification(ViTConfig(num_labels=10))
export_for_hasten(model, {"pixel_values": torch.zeros(2, 3, 224, 224), "labels": torch.zeros(2, dtype=torch.long)}, sys.argv[2], check=False)
"""


def three_models():
    """The peak of a step with each technique, of two models of hasten and of one that Python exports to a file here."""
    parts, rows = ["--batch", "2", "--gradient_accumulation_steps", "4"], ["--batch", "8"]
    techniques = [("none", rows), ("4 micro-batches of 2 rows", parts), ("bf16", [*rows, "--precision", "bf16"]), ("recomputation", [*rows, *RECOMPUTED]),
                  ("selective recomputation", [*rows, *RECOMPUTED, "--activation_checkpointing_kwargs", "policy=selective"]),
                  ("`adamw_8bit`", [*rows, "--optim", "adamw_8bit"]), ("`adafactor`", [*rows, "--optim", "adafactor"]),
                  ("steps in the pass", [*rows, *STEP_IN_BACKWARD]), ("LoRA of all layers", [*rows, "--lora_r", "8", "--lora_target_modules", "all-linear"]),
                  ("micro-batches, recomputation, `adamw_8bit`", [*parts, *RECOMPUTED, "--optim", "adamw_8bit"])]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "vit.pt2"
        subprocess.run([PYTHON, "-c", EXPORT_VIT, HERE.parent / "tools", program], check=True, capture_output=True)
        models = (["bert-base", "--seq", "128"], ["gpt2", "--seq", "128"], [program])
        peaks = [[estimate(*model, *arguments)["memory"]["peak"] for model in models] for _, arguments in techniques]
    return markdown(["Peak", "BERT-base", "GPT-2", "ViT-base from PyTorch"],
                    [[title, *(f"{peak / 1e6:,.0f} MB" for peak in row)] for (title, _), row in zip(techniques, peaks)])


def architectures():
    """The results are those of the tests oracle/architecture_* with HASTEN_RECORD_ARCHITECTURES=1."""
    entries, rows = json.loads((ARCHITECTURES / "architectures.json").read_text()), []
    results = json.loads((ARCHITECTURES / "results.json").read_text())

    def exact(difference):
        return "equal" if difference == 0 else f"{difference:.0e}"
    for name, entry in entries.items():
        contents = json.loads(output("hasten", "inspect", ARCHITECTURES / f"{name}.pt2", "--json"))
        operators = contents["programs"][0]["operators"]
        found = results[name]
        processes = exact(found["whole_batch_difference"]) if "whole_batch_difference" in found else "fixed batch"
        rows.append([f"`{entry['model']}`", ", ".join(entry["dynamic"]) or "none", str(sum(operators.values())), str(len(operators)),
                     f"{found['peak']:,}", "equal" if found["two_processes_equal"] else "differ", processes, exact(found["python_difference"]),
                     entry.get("note", "")])
    return markdown(["Model", "Dynamic", "Calls", "Operators", "Bytes of a step", "Two processes", "One batch", "Python", "Remarks"], sorted(rows))


def adapters():
    variants = [("the whole model", []), ("LoRA of query and value", ["--lora_r", "8"]),
                ("LoRA of all layers", ["--lora_r", "8", "--lora_target_modules", "all-linear"])]
    return before_and_after(variants, "bert-base", "--batch", "8", "--seq", "128")


def large_vocabularies():
    variants = [("whole logits", ["--use_liger_kernel", "false"]), ("in parts", [])]
    return before_and_after(variants, "gpt2", "--batch", "8", "--seq", "128")


TECHNIQUES = {"recomputation": recomputation, "offloading": offloading, "adapters": adapters, "large-vocabularies": large_vocabularies,
              "float16": float16, "float16-gpus": float16_on_gpus, "bfloat16-weights": bfloat16_weights, "lean-optimizers": lean_optimizers,
              "step-in-backward": step_in_backward, "offloaded-states": offloaded_states, "out-of-memory": out_of_memory, "together": together,
              "three-models": three_models}
TABLES = {"bert-large-cpu": bert_large_on_cpu, "page": comparison_with_documentation, "gpus": list_of_gpus, "bert-large-gpus": bert_large_on_gpus,
          "architectures": architectures, "expected-step": expected_step,
          "predicted-steps": predicted_steps, **TECHNIQUES}
PAGES = {"architectures": EXPORTED_PAGE, "expected-step": GPU_PAGE, "predicted-steps": GPU_PAGE, **dict.fromkeys(TECHNIQUES, TECHNIQUES_PAGE)}  # all others are on PAGE
# The packed operands of products depend on the CPU.
MACHINE_DEPENDENT = {"bert-large-cpu", "recomputation", "adapters", "large-vocabularies", "float16", "bfloat16-weights", "lean-optimizers", "step-in-backward", "together", "three-models"}
NEED_PYTHON = {"three-models"}


def main():
    check = "--check" in sys.argv[2:]
    for name, make in TABLES.items():
        if check and name in MACHINE_DEPENDENT:
            continue
        if name in NEED_PYTHON and not PYTHON:
            print(f"left out: the table {name} needs HASTEN_REFERENCE_PYTHON")
            continue
        page = PAGES.get(name, PAGE)
        text = page.read_text()
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(\n<!-- end -->)", re.S)
        found = pattern.search(text)
        if not found:
            sys.exit(f"docs/tables.py: docs/{page.name} has no place for the table {name}")
        table = found[1] + make() + found[2]
        if check and table != found[0]:
            sys.exit(f"docs/tables.py: the table {name} of docs/{page.name} is out of date: run docs/tables.py {sys.argv[1]}\n{table}")
        if not check:
            page.write_text(text[:found.start()] + table + text[found.end():])
    print(f"{len(TABLES)} tables " + ("checked" if check else "written"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    BIN = pathlib.Path(sys.argv[1]).resolve()
    main()
