#!/usr/bin/env python3
"""The results of a run on a GPU: one JSON object per line, and a Markdown summary.

    records.py --check FILE ...     exits with 1 if a line does not match this description

Each line has the fields of FIELDS. `values` holds numbers, texts and truth values of the case. REQUIRED lists the values that every `ok`
case of a part has. Units are seconds, bytes, FLOP and FLOP per second.
"""
import datetime
import json
import pathlib
import sys
import threading

FIELDS = {"schema": int, "time": str, "part": str, "case": str, "status": str, "seconds": float, "device": str, "gpu": str, "detail": str, "values": dict}
STATUSES = ("ok", "failed", "skipped", "timeout")
SCHEMA = 1
REQUIRED = {
    "memory": ("predicted_allocated", "measured_allocated", "predicted_reserved", "measured_reserved", "error_percent"),
    "waits": ("waits_per_step", "device_waits", "operators_per_step"),
    "calibrate": ("kind",),
    "speed": ("program", "step_seconds", "samples_per_second", "peak_allocated"),
}


def problems_of(record):
    """Returns a list of texts that say what is wrong with a record."""
    found = []
    for name, kind in FIELDS.items():
        value = record.get(name)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            found.append(f"{name}: got {value!r}, expected {kind.__name__}")
    found += [f"{name}: got a field that the schema does not have" for name in record if name not in FIELDS]
    if found:
        return found
    if record["schema"] != SCHEMA:
        found.append(f"schema: got {record['schema']}, expected {SCHEMA}")
    if record["status"] not in STATUSES:
        found.append(f"status: got {record['status']!r}, expected one of {', '.join(STATUSES)}")
    if record["status"] != "ok" and not record["detail"]:
        found.append("detail: got nothing, expected the reason")
    for name, value in record["values"].items():
        if not isinstance(value, (int, float, str, bool, type(None))):
            found.append(f"values.{name}: got {value!r}, expected a number, a text or a truth value")
    if record["status"] == "ok":
        found += [f"values.{name}: missing" for name in REQUIRED.get(record["part"], ()) if name not in record["values"]]
    return found


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.strip()]


class Recorder:
    """Writes each record and the summary at once, so that an interrupted run keeps its results."""

    def __init__(self, folder, device, gpu):
        self.folder, self.device, self.gpu = pathlib.Path(folder), device, gpu
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "results.jsonl"
        self.records = read(self.file) if self.file.exists() else []
        self.lock = threading.Lock()

    def add(self, part, case, status, seconds, detail="", values=None):
        record = {"schema": SCHEMA, "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "part": part, "case": case,
                  "status": status, "seconds": round(seconds, 3), "device": self.device, "gpu": self.gpu, "detail": detail, "values": values or {}}
        problems = problems_of(record)
        if problems:
            record.update(status="failed", detail="the record is not as described: " + "; ".join(problems), values={})
        with self.lock:
            self.records.append(record)
            with open(self.file, "a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
            self.write_summary()
        return record

    def write_summary(self):
        temporary = self.folder / "summary.md.new"
        temporary.write_text(summary_of(self.records))
        temporary.replace(self.folder / "summary.md")


def human(number):
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return str(number)
    if isinstance(number, int) and abs(number) >= 1 << 20:
        return f"{number / (1 << 20):,.1f} MiB"
    return f"{number:.4g}" if isinstance(number, float) else str(number)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def summary_of(records):
    """Returns the results as Markdown: the counts of each part, then a table for each part."""
    if not records:
        return "No case has run.\n"
    first = records[0]
    parts = list(dict.fromkeys(record["part"] for record in records))
    text = f"# hasten on {first['gpu'] or first['device']}, {first['time'][:10]}\n\n"
    counts = [[part] + [sum(r["part"] == part and r["status"] == status for r in records) for status in STATUSES] +
              [f"{sum(r['seconds'] for r in records if r['part'] == part):.0f} s"] for part in parts]
    text += table(["part", *STATUSES, "time"], counts)
    for part in parts:
        own = [record for record in records if record["part"] == part]
        if part == "calibrate":
            text += f"\n## {part}\n\n" + summary_of_calibration(own)
            continue
        names = list(dict.fromkeys(name for record in own for name in record["values"]))
        rows = [[r["case"], r["status"], f"{r['seconds']:.1f} s", *(human(r["values"].get(name, "")) for name in names), r["detail"][-200:]] for r in own]
        text += f"\n## {part}\n\n" + table(["case", "status", "time", *names, "detail"], rows)
    return text


ATTENTION_KERNELS = ("cudnn", "flash", "efficient", "math")


def attention_table(runs):
    """Returns the times of LibTorch's attention kernels for the same calls, with the kernel that LibTorch chooses and the fastest one, as Markdown."""
    calls = {}
    for run in runs:
        calls.setdefault((run["model"], run["shape"], run["format"]), {})[run["backend"]] = run
    rows = []
    for call, kernels in calls.items():
        total = {name: run["seconds"] + run["backward_seconds"] for name, run in kernels.items() if "seconds" in run}
        chosen = next((name for name, run in kernels.items() if run["is_default"]), "-")
        rows.append([*call, *(f"{1e6 * total[name]:.0f}" if name in total else "-" for name in ATTENTION_KERNELS), chosen,
                     min(total, key=total.get) if total else "-"])
    if not rows:
        return ""
    return ("\nAttention, forward and backward pass in µs, in each kernel that computes the call:\n\n" +
            table(["model", "shape", "format", *ATTENTION_KERNELS, "LibTorch's choice", "fastest"], rows))


def summary_of_calibration(records):
    """Returns the ratio of measured to predicted time by group and format, the times of the attention kernels, and the row for
    src/anatomy/gpu_speed.cpp, as Markdown."""
    calls, text = [r["values"] for r in records if r["values"].get("kind") == "call"], ""
    groups = {}
    for call in calls:
        if call["predicted_seconds"] > 0:
            groups.setdefault((call["group"], call["format"]), []).append(call["seconds"] / call["predicted_seconds"])
    rows = [[group, form, len(ratios), f"{sorted(ratios)[len(ratios) // 2]:.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
             sum(abs(ratio - 1) <= 0.1 for ratio in ratios)] for (group, form), ratios in groups.items()]
    text += table(["group", "format", "calls", "measured / predicted", "least", "most", "within 10 %"], rows)
    text += attention_table([r["values"] for r in records if r["values"].get("kind") == "attention"])
    for shares in (r["values"] for r in records if r["values"].get("kind") == "shares"):
        text += ("\nThe row of `kShares` in `src/anatomy/gpu_speed.cpp`:\n\n```cpp\n" +
                 '    {{"{gpu}", {float32:.3g}, {tf32:.3g}, {bfloat16:.3g}, {float16:.3g}, {bandwidth:.3g}}},\n```\n'.format(**shares))
    failed = [r for r in records if r["status"] != "ok"]
    if failed:
        text += "\n" + table(["case", "status", "detail"], [[r["case"], r["status"], r["detail"][-200:]] for r in failed])
    return text


def main():
    if len(sys.argv) < 3 or sys.argv[1] != "--check":
        sys.exit(__doc__)
    bad = 0
    for path in sys.argv[2:]:
        for number, record in enumerate(read(path), 1):
            for problem in problems_of(record):
                print(f"{path}:{number}: {problem}")
                bad += 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
