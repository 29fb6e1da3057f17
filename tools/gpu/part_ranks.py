"""Several ranks on one GPU, NCCL with one rank, a rank whose GPU hangs, and `hasten test`."""
import re
import time

from cases import Case, Failed, concurrent_case

NAME = "ranks"
SECONDS = 120
ABOUT = "NCCL with one rank, 2 and 4 ranks on one GPU with Gloo, a kernel that never ends, hasten test"
LATE_RANK = 75  # docs/errors.md


def cases(context):
    gloo = [concurrent_case(f"Gloo, {count} ranks on one device", 40, lambda context, count=count: example(context, count, "gloo")) for count in context.small((2, 4), (2,))]
    if context.on_cpu:
        return [*gloo, Case("a rank that hangs", 40, hang)]
    return [concurrent_case("NCCL, 1 rank", 30, lambda context: example(context, 1, "nccl")), *gloo, concurrent_case("hasten test", 60, hasten_test),
            Case("a kernel that never ends", 40, hang)]


def example(context, count, backend):
    """Compares the losses of several ranks with the losses of one process."""
    program = context.program("example_05_distributed")
    alone = losses(context.run([program]))
    distributed = losses(context.hasten("launch", "-n", count, "--no_config_file", program, HASTEN_PROCESS_GROUP_BACKEND=backend))
    if not alone or len(alone) != len(distributed):
        raise Failed(f"{len(alone)} and {len(distributed)} epochs, expected equally many")
    difference = max(abs(a - b) for a, b in zip(alone, distributed))
    if difference > 1e-3:
        raise Failed(f"the losses differ by {difference}, expected at most 1e-3")
    return {"ranks": count, "largest_difference": difference}


def losses(text):
    return [float(number) for number in re.findall(r"loss ([\d.]+), accuracy", text)]


def hang(context):
    """The watchdog ends the job, and its report names rank 1."""
    case, limit = ("sleeps" if context.on_cpu else "starts an endless kernel"), 3
    before = time.monotonic()
    text = context.hasten("launch", "-n", 2, "--no_config_file", context.program("hang"), case, limit, codes=(LATE_RANK,), HASTEN_PROCESS_GROUP_BACKEND="gloo")
    if "error[process.late-rank]" not in text or not re.search(r"rank 1\b", text):
        raise Failed("the report does not name rank 1: " + text[-300:])
    return {"limit": limit, "took": time.monotonic() - before}


def hasten_test(context):
    """Every check of `hasten test` passes, except the checks that it skips."""
    report = context.json_of(context.hasten("test", "--no_config_file", "--json"))
    passed = [check for check in report["checks"] if check["result"] == "ok"]
    if not report["passed"] or not passed or len(passed) + report["skipped"] != len(report["checks"]):
        raise Failed(f"{len(passed)} of {len(report['checks'])} checks passed and {report['skipped']} were skipped, expected all others to pass")
    return {"checks": len(passed)}
