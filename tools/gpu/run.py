#!/usr/bin/env python3
"""Runs hasten on a GPU, from a kit that ./dev gpu pack has made, and writes the results. Needs only Python's standard library.

    run [PART ...] [--list] [--device cuda|cpu] [--gpu NAME] [--output FOLDER] [--seconds N] [--jobs N] [--cases PATTERN]

Without names, all parts run in the order of the list. Each part and each case has a time limit. A case that fails or takes too long does not
stop the others. Cases that measure neither time nor the memory of the whole GPU run at the same time. results.jsonl and summary.md in the
output folder are complete after each case, so the run may be interrupted.
--device cpu runs every part on the CPU with small sizes, to try the programs.
"""
import argparse
import concurrent.futures
import datetime
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import part_calibrate
import part_faults
import part_graphs
import part_memory
import part_ranks
import part_speed
import part_tests
import part_waits
from cases import Failed, RunContext, Skipped, TimedOut
from records import Recorder

PARTS = {part.NAME: part for part in (part_tests, part_ranks, part_memory, part_waits, part_calibrate, part_speed, part_graphs, part_faults)}
# The name of a card in nvidia-smi, and hasten's name for it. The first match counts.
CARDS = (("H200", "h200"), ("GH200", "gh200"), ("H100 NVL", "h100-nvl"), ("H100", "h100-80gb"), ("A100-SXM4-80GB", "a100-80gb"), ("A100 80GB", "a100-80gb"),
         ("A100", "a100-40gb"), ("B200", "b200"), ("L40S", "l40s"), ("L4", "l4"), ("A10G", "a10g"), ("A10", "a10"), ("T4", "t4"), ("RTX 4090", "rtx4090"),
         ("RTX 3090", "rtx3090"), ("V100-SXM2-32GB", "v100-32gb"), ("V100", "v100-16gb"))
MIN_SECONDS = 3  # seconds; no case begins with less


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter, epilog=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--list", action="store_true", help="print the parts and their cases, and run nothing")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--gpu", default="", help="hasten's name of the card (hasten estimate --devices); found by nvidia-smi if left out")
    parser.add_argument("--output", default="", help="the folder for the results; gpu-results/DATE if left out")
    parser.add_argument("--seconds", type=float, default=0, help="a limit for all parts together")
    parser.add_argument("--cases", type=re.compile, default=re.compile(""), metavar="PATTERN", help="run only cases whose name has this regular expression")
    parser.add_argument("--jobs", type=int, default=min(8, max(1, (os.cpu_count() or 1) // 2)), help="how many cases may run at once (%(default)s)")
    parser.add_argument("--kit", default=str(pathlib.Path(__file__).resolve().parent.parent), help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"got part {unknown[0]!r}, expected {', '.join(PARTS)}")
    return options


def nvidia_smi(query):
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    done = subprocess.run([program, f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
    return done.stdout.strip() if done.returncode == 0 else ""


def card_name(options):
    """Returns hasten's name of the card. On the CPU, the predictions are for an H200."""
    if options.gpu or options.device == "cpu":
        return options.gpu or "h200"
    title = nvidia_smi("name")
    for part, name in CARDS:
        if part in title:
            return name
    sys.exit(f"gpu run: nvidia-smi says {title!r}, expected a card of hasten estimate --devices. Hint: name it with --gpu, or use --device cpu")


def cases_of(part, context, pattern):
    return [case for case in part.cases(context) if pattern.search(case.name)]


def print_plan(chosen, context, pattern):
    total = 0
    for name in chosen:
        part = PARTS[name]
        cases = cases_of(part, context, pattern)
        total += part.SECONDS
        print(f"{name:10} {part.SECONDS // 60} min {part.SECONDS % 60:2} s  {len(cases):3} cases  {part.ABOUT}")
        for case in cases:
            print(f"             {case.seconds:4.0f} s  {case.name}")
    print(f"all parts: at most {total // 60} min {total % 60} s")


class Interrupted(Exception):
    pass


class Runner:
    def __init__(self, context, recorder, options):
        self.context, self.recorder, self.jobs, self.pattern = context, recorder, options.jobs, options.cases
        self.end = time.monotonic() + options.seconds if options.seconds else float("inf")

    def run_part(self, part):
        end = min(self.end, time.monotonic() + part.SECONDS)
        for shares, cases in itertools.groupby(cases_of(part, self.context, self.pattern), lambda case: case.shares_gpu):
            with concurrent.futures.ThreadPoolExecutor(self.jobs if shares else 1) as pool:
                running = [pool.submit(self.run_case, part, case, end) for case in cases]
                try:
                    for case in running:
                        case.result()
                except Interrupted:
                    self.context.interrupt()
                    pool.shutdown(cancel_futures=True)
                    raise

    def run_case(self, part, case, part_end):
        before, values, status, detail = time.monotonic(), {}, "ok", ""
        if part_end - before < MIN_SECONDS:
            return self.add(part, case.name, "skipped", 0, "the part's time was over")
        # By default OpenMP starts a thread for each core.
        threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.jobs))} if case.shares_gpu and self.jobs > 1 else {}
        context = self.context.for_case(f"{part.NAME}-{case.name}", min(before + case.seconds, part_end), **threads)
        try:
            add = lambda name, status, seconds, detail, values: self.add(part, name, status, seconds, detail, values)
            values = case.run(context, add) if case.many else case.run(context)
        except Failed as error:
            status, detail, values = "failed", str(error), error.values
        except Skipped as error:
            status, detail = "skipped", str(error)
        except TimedOut as error:
            status, detail = "timeout", str(error)
        except Exception as error:  # an error in one case must not stop the other cases
            status, detail = "failed", f"{type(error).__name__}: {error}"
        context.kill_all()
        self.add(part, case.name, status, time.monotonic() - before, detail, values)

    def add(self, part, name, status, seconds, detail="", values=None):
        record = self.recorder.add(part.NAME, name, status, seconds, detail, values)
        print(f"{record['status']:8} {seconds:7.1f} s  {part.NAME}: {name}{'  ' + record['detail'][:160] if record['detail'] else ''}", flush=True)


def record_machine(recorder, context):
    values = {"nvidia_smi": nvidia_smi("name,driver_version,memory.total,power.limit,clocks.max.sm"), "python": sys.version.split()[0],
              "commit": (context.kit / "gpu/commit").read_text().strip()}
    try:
        context.deadline, context.case = time.monotonic() + 60, "machine"
        values["hasten"] = context.hasten("--version").strip()
        recorder.add("machine", "versions", "ok", 0.0, "", values)
    except Exception as error:
        recorder.add("machine", "versions", "failed", 0.0, str(error), values)


def main():
    options = parse()
    chosen = options.parts or list(PARTS)
    output = pathlib.Path(options.output or "gpu-results/" + datetime.datetime.now().strftime("%Y-%m-%d-%H%M")).resolve()
    context = RunContext(options.kit, options.device, card_name(options) if not options.list else options.gpu or "h200", sys.executable, output / "logs")
    try:
        if options.list:
            return print_plan(chosen, context, options.cases)
        context.logs.mkdir(parents=True, exist_ok=True)
        recorder = Recorder(output, options.device, context.gpu)

        def interrupt(*_):
            raise Interrupted
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, interrupt)
        try:
            record_machine(recorder, context)
            runner = Runner(context, recorder, options)
            for name in chosen:
                runner.run_part(PARTS[name])
        except Interrupted:
            print("interrupted", flush=True)
            sys.exit(130)
        finally:
            print(f"results: {output}/summary.md", flush=True)
        if any(record["status"] in ("failed", "timeout") for record in recorder.records):
            sys.exit(1)
    finally:
        shutil.rmtree(context.scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
