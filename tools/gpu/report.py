#!/usr/bin/env python3
"""Writes the section "What has run on which GPU" of docs/gpu.md from the results in benchmarks/results/gpu/*.jsonl, which `run` has written, and
from the cases of the kit, which `run --list` prints. It has the tables of the newest results of each GPU.

    report.py            writes the section
    report.py --check    exits with 1 if the section does not match the results
"""
import pathlib
import shutil
import statistics
import sys

from cases import RunContext
from records import STATUSES, human, problems_of, read, table
from run import PARTS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/gpu.md"
RESULTS = ROOT / "benchmarks/results/gpu"
BEGIN, END = "<!-- tools/gpu/report.py writes this section -->\n", "<!-- the end of what tools/gpu/report.py writes -->\n"
NOTHING = "Nothing has run on a GPU yet. Everything on this page is a prediction or a public measurement of other programs.\n"


def runs():
    """Yields the name and the GPU records of each file that has any, the oldest first. Raises ValueError for a record that does not match records.py."""
    for path in sorted(RESULTS.glob("*.jsonl")):  # the name ends with the date
        records = read(path)
        for number, record in enumerate(records, 1):
            for problem in problems_of(record):
                raise ValueError(f"{path}:{number}: {problem}")
        on_gpu = [record for record in records if record["device"] != "cpu"]
        if on_gpu:
            yield path.name, on_gpu


def planned_cases():
    """Returns the part and the name of each case of the kit."""
    context = RunContext(ROOT, "cuda", "h200", sys.executable, "")
    try:
        return [(name, case.name) for name, part in PARTS.items() for case in part.cases(context)]
    finally:
        shutil.rmtree(context.scratch, ignore_errors=True)


def list_of(cases):
    """Returns a table of cases with a row for those of a part whose names are equal up to the first comma."""
    groups = {}
    for part, name in cases:
        first, _, rest = name.partition(", ")
        groups.setdefault((part, first), []).append(rest)
    return table(["part", "case", "number", "the rest of the names"],
                 [[*group, len(rests), f"{rests[0]} ... {rests[-1]}" if len(rests) > 6 else "; ".join(rests) or "-"] for group, rests in groups.items()])


def speed_table(records):
    """Returns a table with a row for each step. The time and the peak memory (as LibTorch allocates it) are medians over the rounds."""
    steps = {}
    for record in records:
        step, program = record["case"].split(", ", 1)
        steps.setdefault(step, {}).setdefault(program.rsplit(", round", 1)[0], []).append(record["values"])
    median = lambda runs, field: statistics.median(run[field] for run in runs)
    milliseconds = lambda runs: f"{1e3 * median(runs, 'step_seconds'):.1f} ms" if runs else "-"
    columns = {"step": [], "hasten": [], "without graphs": [], "with LibTorch's kernels": [], "with padding_free": [], "with padding_free and graphs": [], "Trainer": [], "Trainer, compiled": [],
               "times as fast": [], "memory": [], "of the Trainer's": [], "predicted": [], "MFU": []}
    for step, programs in steps.items():
        own, other = programs.get("hasten"), programs.get("hugging face")
        both = own and other
        row = [step, milliseconds(own), *(milliseconds(programs.get(f"hasten, {name}")) for name in ("without graphs", "LibTorch's kernels", "padding_free", "padding_free with graphs")),
               milliseconds(other), milliseconds(programs.get("hugging face, compiled")),
               f"{median(other, 'step_seconds') / median(own, 'step_seconds'):.2f}" if both else "-",
               human(int(median(own, "peak_allocated"))) if own else "-",
               f"{median(own, 'peak_allocated') / median(other, 'peak_allocated'):.2f}" if both else "-",
               f"{1e3 * median(own, 'predicted_seconds'):.1f} ms" if own else "-", f"{100 * median(own, 'mfu'):.0f} %" if own else "-"]
        for column, value in zip(columns.values(), row):
            column.append(value)
    measured = {name: column for name, column in columns.items() if set(column) != {"-"}}
    return table(list(measured), [list(row) for row in zip(*measured.values())])


def memory_table(records):
    """Returns a table with a row for each step. The combinations of BERT with equal batches share a row, which has the least and the most of each number."""
    groups = {}
    for record in records:
        step, values = record["case"], record["values"]
        groups.setdefault(step.split(",")[0] if "micro-batches" in step else step, []).append(values)
    rows = []
    for step, runs in groups.items():
        of = lambda name, text: " to ".join(dict.fromkeys(text(choose(run[name] for run in runs)) for choose in (min, max)))
        percent = lambda number: f"{number + 0.0:.2f} %".replace("-0.00", "0.00")
        rows.append([step + (f", {len(runs)} combinations" if len(runs) > 1 else ""),
                     *(of(f"{which}_{kind}", human) if kind else of(f"{which}error_percent", percent)
                       for which, kind in (("predicted", "allocated"), ("measured", "allocated"), ("", ""), ("predicted", "reserved"), ("measured", "reserved"),
                                           ("reserved_", "")))])
    return table(["step", "allocated, predicted", "measured", "error", "reserved, predicted", "measured", "error"], rows)


def of_run(name, records, planned):
    cases = [record for record in records if record["part"] not in ("machine", "calibrate")]
    parts = list(dict.fromkeys(record["part"] for record in cases))
    text = f"### {records[0]['gpu']}, {records[0]['time'][:10]} (`benchmarks/results/gpu/{name}`)\n\n"
    commits = dict.fromkeys(r["values"]["commit"] for r in records if r["part"] == "machine" and "commit" in r["values"])
    text += f"hasten was built from commit {', '.join(commits)}.\n\n" if commits else ""
    text += table(["part", *STATUSES], [[part, *(sum(r["part"] == part and r["status"] == status for r in cases) for status in STATUSES)] for part in parts])
    failed = [record for record in cases if record["status"] in ("failed", "timeout")]
    if failed:
        text += "\nThese cases do not hold:\n\n" + table(["part", "case", "why"], [[r["part"], r["case"], r["detail"][:160]] for r in failed])
    memory = [r for r in cases if r["part"] == "memory" and "error_percent" in r["values"]]
    if memory:
        text += "\nMemory of steps without a graph, predicted and measured:\n\n" + memory_table(memory)
    speed = [r for r in cases if r["part"] == "speed" and r["status"] == "ok"]
    if speed:
        text += ("\nSpeed of hasten beside the Hugging Face Trainer. The MFU is the rate of the products as a share of the card's peak for the step's number\n"
                 "type, from its data sheet (`hasten estimate --devices`):\n\n" + speed_table(speed))
    removed = [(r["part"], r["case"]) for r in cases if (r["part"], r["case"]) not in planned]
    if removed:
        text += "\nThe kit no longer has these cases of the run, or has them under other names:\n\n" + list_of(removed)
    return text


def section():
    planned, done = planned_cases(), list(runs())
    if not done:
        return NOTHING
    recorded = {(r["part"], r["case"]) for _, records in done for r in records if r["status"] in ("ok", "failed")}
    missing = [case for case in planned if case not in recorded]
    newest = {records[0]["gpu"]: (name, records) for name, records in done}
    text = "\n".join(of_run(name, records, planned) for name, records in newest.values())
    return text + ("\n### Cases of the kit that have not run\n\n" + list_of(missing) if missing else "")


def main():
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + "\n" + section() + "\n" + END + after
    if sys.argv[1:] == ["--check"]:
        if page != wanted:
            sys.exit(f"{PAGE}: the section of results is out of date. Run tools/gpu/report.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
