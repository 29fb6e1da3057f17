"""How often the host waits for the GPU in a step of the Trainer, counted in a trace of LibTorch's profiler."""
import json

from cases import Failed, concurrent_case

NAME = "waits"
SECONDS = 90
ABOUT = "how often the host waits for the GPU in a step, by LibTorch's profiler, beside the count of the simulated GPU"

STEPS = {"bert-base 8x128": ("bert-base", 8, 128, 20), "gpt2 4x256": ("gpt2", 4, 256, 20)}
SMALL = {"bert 4x12": ("tests/oracle/data/models/sequence_single_label", 4, 12, 3)}
# The counts of tests/unit/anatomy/host_waits_test.cpp: with fp16 the host asks whether all gradients are finite.
EXPECTED = {"fp32": 0, "bf16": 0, "fp16": 1}
# Calls of CUDA's runtime that block until the GPU has done the work that was submitted before. A blocking copy to the host appears as an
# asynchronous copy and a wait for the stream.
STEP_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")
# The profiler itself makes this call when it stops.
DEVICE_WAIT = "cudaDeviceSynchronize"
MAX_PROFILER_WAITS = 2


def cases(context):
    steps, precisions = (SMALL, ("fp32",)) if context.on_cpu else (STEPS, EXPECTED)
    return [concurrent_case(f"{name}, {precision}", 30, lambda context, step=step, precision=precision: count(context, step, precision))
            for name, step in steps.items() for precision in precisions]


def count(context, step, precision):
    model, batch, length, steps = step
    trace = context.scratch / f"{context.case}.json"
    context.run([context.program("gpu_step"), "--model", str(context.kit / model) if "/" in model else model, "--batch", batch, "--seq", length,
                 "--precision", precision, "--steps", steps, "--blocks", 2, "--warm_up", context.small(5, 1), "--device", context.device, "--trace", trace,
               "--cuda_graph", 0])
    values = waits_of(json.loads(trace.read_text()), steps, is_gpu=not context.on_cpu)
    if values["waits_per_step"] != EXPECTED[precision]:
        raise Failed(f"{values['waits_per_step']:g} waits in a step ({values['causes'] or 'no cause'}), expected {EXPECTED[precision]}", values)
    if values["device_waits"] > MAX_PROFILER_WAITS:
        raise Failed(f"{values['device_waits']} waits for the whole device, expected at most {MAX_PROFILER_WAITS}, the profiler's own", values)
    return values


def waits_of(trace, steps, is_gpu):
    """Returns the counts of a trace. Raises Failed for a trace that cannot show a wait."""
    events = trace["traceEvents"]
    calls = [event["name"] for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    operators = sum(event.get("cat") == "cpu_op" for event in events)
    if operators == 0 or (is_gpu and not any("LaunchKernel" in name for name in calls)):
        raise Failed(f"a trace with {operators} operators and {len(calls)} calls of CUDA, expected the operators and kernels of {steps} steps")
    causes = {name: calls.count(name) for name in STEP_WAITS if name in calls}
    return {"waits_per_step": sum(causes.values()) / steps, "device_waits": calls.count(DEVICE_WAIT), "operators_per_step": operators / steps,
            "kernels_per_step": sum("LaunchKernel" in name for name in calls) / steps,
            "causes": ", ".join(f"{count} of {name}" for name, count in causes.items())}
