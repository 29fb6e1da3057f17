#!/usr/bin/env python3
"""Fills the tables of docs/anatomy.md and docs/exported.md, which are between "<!-- table NAME -->" and "<!-- end -->", with the output of hasten.

    docs/tables.py build/release/bin            writes the tables
    docs/tables.py build/release/bin --check    reports a table that differs; skips tables that depend on the machine
"""
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE / "anatomy.md"
EXPORTED_PAGE = HERE / "exported.md"
ARCHITECTURES = HERE.parent / "tests" / "oracle" / "data" / "architectures"
COMPONENTS = {"model_weights": "model weights", "optimizer_states": "optimizer states", "gradients": "gradients",
              "activations": "activations", "temporary_buffers": "temporary buffers", "functionality": "functionality"}
REASONS = {
    "model_weights": "as in the textbook",
    "optimizer_states": "8 B, plus one byte for each 4,096 numbers of the word table, which records where the table has moments",
    "gradients": "4 B at the end of the step; at the peak, early in the backward pass, few exist",
    "activations": "attention stores no probabilities and dropout no masks ([001](design/001-cpu-operators.md))",
    "temporary_buffers": "operands packed for matrix products, and intermediate gradients", "functionality": "the batch"}
TYPICAL = ["cuda:" + name for name in ("t4", "v100-16gb", "rtx4090", "a10g", "l40s", "a100-80gb", "h100-80gb", "b200")]
BERT_LARGE = ["bert-large", "--batch", "4", "--seq", "512"]


def estimate(*words):
    return json.loads(subprocess.run([BIN / "hasten", "estimate", *words, "--json"], check=True, capture_output=True, text=True).stdout)


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


def bert_large_on_gpus():
    def cells(device, precision):
        report = estimate(*BERT_LARGE, "--device", device, "--precision", precision)
        gpu = report["memory"]["gpu"]
        return f"{(gpu['reserved'] + gpu['context']) / 1e9:.2f} GB", f"{1000 * report['least_step_seconds']:.0f} ms"
    return markdown(["Device", "float: memory", "float: shortest step", "bf16: memory", "bf16: shortest step"],
                    [[device, *cells(device, "fp32"), *cells(device, "bf16")] for device in TYPICAL])


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


TABLES = {"bert-large-cpu": bert_large_on_cpu, "page": comparison_with_documentation, "gpus": list_of_gpus, "bert-large-gpus": bert_large_on_gpus,
          "architectures": architectures}
PAGES = {"architectures": EXPORTED_PAGE}  # all others are on PAGE
MACHINE_DEPENDENT = {"bert-large-cpu"}  # the packed operands of products depend on the CPU


def main():
    check = "--check" in sys.argv[2:]
    for name, make in TABLES.items():
        if check and name in MACHINE_DEPENDENT:
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
