"""Measures the speed of hasten and of the Hugging Face Trainer in turn, and predicts hasten's time. Then records the kernels of a step."""
import json

from cases import Case, Failed, Skipped

NAME = "speed"
SECONDS = 480
ABOUT = ("samples/s and peak memory of hasten beside the Hugging Face Trainer, with and without torch_compile; MFU; the predicted time; "
         "times of kernels; rows of varied lengths with and without padding_free")

# Name: model, batch, length, precision, steps of a block, and further options for hasten. A step with further options runs only in hasten.
STEPS = {
    "bert-large 4x512 fp32": ("bert-large", 4, 512, "fp32", 20),
    "bert-large 64x512 bf16": ("bert-large", 64, 512, "bf16", 10),
    "bert-base 64x128 bf16": ("bert-base", 64, 128, "bf16", 40),
    "bert-base 8x128 bf16": ("bert-base", 8, 128, "bf16", 50),
    "bert-base 1x128 bf16": ("bert-base", 1, 128, "bf16", 50),
    "gpt2 32x1024 bf16": ("gpt2", 32, 1024, "bf16", 10),
    "bert-large 4x512 tf32": ("bert-large", 4, 512, "tf32", 20),
    "bert-large 32x512 bf16 eager": ("bert-large", 32, 512, "bf16", 10, "--attn_implementation", "eager"),
}
# The same for batches in which 44 % of the tokens are padding. They run only in hasten, with and without padding_free. Padded batches have one shape, so
# they have graphs by default.
VARIED_STEPS = {
    "bert-base 64x128 bf16 varied lengths": ("bert-base", 64, 128, "bf16", 40),
    "bert-base 8x128 bf16 varied lengths": ("bert-base", 8, 128, "bf16", 50),
    "gpt2 32x1024 bf16 varied lengths": ("gpt2", 32, 1024, "bf16", 10),
    "bert-base 64x128 fp32 varied lengths": ("bert-base", 64, 128, "fp32", 20),
}
# Most shapes of such batches have their graph after this many steps.
WARM_UP_OF_GRAPHS = 60
SMALL_VARIED = {"bert 4x12 fp32 varied lengths": ("tests/oracle/data/models/sequence_single_label", 4, 12, "fp32", 3)}
VARIED_PROGRAMS = ("hasten", "hasten, padding_free", "hasten, padding_free with graphs")
SMALL = {"bert 4x12 fp32": ("tests/oracle/data/models/sequence_single_label", 4, 12, "fp32", 3)}
PROGRAMS = ("hasten", "hugging face", "hugging face, compiled", "hasten, LibTorch's kernels", "hasten, without graphs")
ONCE = ("hugging face, compiled", "hasten, LibTorch's kernels", "hasten, without graphs")
# The values of HASTEN_CUDA_KERNELS with which hasten runs.
KERNELS = {"hasten": "1", "hasten, LibTorch's kernels": "0", "hasten, without graphs": "1"}
ROUNDS = 2
# The steps whose kernels are recorded, and how many kernels a record names.
RECORDED = ("bert-large 64x512 bf16", "bert-base 8x128 bf16", "gpt2 32x1024 bf16")
NAMED_KERNELS = 8
PEAKS = {"fp32": "flops_per_second", "tf32": "tf32_flops_per_second", "bf16": "bf16_flops_per_second", "fp16": "fp16_flops_per_second"}


def cases(context):
    """Every program runs once before any program runs again, so that an interrupted part has the first round of all programs."""
    steps, varied = (SMALL, SMALL_VARIED) if context.on_cpu else (STEPS, VARIED_STEPS)
    recorded = [Case(f"{name}, kernels of hasten", 40, lambda context, step=steps[name]: record_kernels(context, step))
                for name in steps if context.on_cpu or name in RECORDED]
    rounds = range(1, 2 if context.on_cpu else ROUNDS + 1)
    return [*(case for number in rounds for case in [*measured_varied(context, varied, number), *measured(context, steps, number)]), *recorded]


def measured(context, steps, number):
    return [Case(f"{name}, {program}, round {number}", 110 if "compiled" in program else 60,
                 lambda context, step=step, program=program: measure(context, step, program))
            for name, step in steps.items() for program in PROGRAMS if not (program in ONCE and number > 1) and runs(context, step, program)]


def measured_varied(context, steps, number):
    return [Case(f"{name}, {program}, round {number}", 60, lambda context, step=step, program=program: measure_varied(context, step, program))
            for name, step in steps.items() for program in VARIED_PROGRAMS if not (context.on_cpu and uses_graphs(program))]


def uses_graphs(program):
    return "with graphs" in program


def runs(context, step, program):
    if context.on_cpu and program in KERNELS:
        return program == "hasten"
    return program in KERNELS or len(step) == 5


def measure(context, step, program):
    model, batch, length, precision, _, *further = step
    arguments = arguments_of(context, step)
    if program.startswith("hasten"):
        kernels = {"HASTEN_CUDA_KERNELS": KERNELS[program]}
        without = "without graphs" in program
        values = context.json_of(context.run([context.program("gpu_step"), *arguments, *further, "--cuda_graph", 0 if without else "auto"], **kernels))
        return values | prediction(context, path_of(context, model), batch, length, precision, [*further, *(["--cuda_graph", "false"] if without else [])],
                                   values["step_seconds"], kernels)
    compiled = ["--compile"] if "compiled" in program else []
    text = context.run([context.python, context.kit / "gpu/gpu_step.py", *arguments, *compiled], codes=(0, 77))
    if '"missing"' in text:
        raise Skipped(context.json_of(text)["missing"])
    return context.json_of(text)


def record_kernels(context, step):
    """Runs a step with LibTorch's profiler, which gets the times of kernels from CUPTI. The kernels are started one by one."""
    model, batch, length, precision, _, *further = step
    trace, kernels = context.scratch / f"{context.case}.json", {"HASTEN_CUDA_KERNELS": KERNELS["hasten"]}
    values = context.json_of(context.run([context.program("gpu_step"), *arguments_of(context, step, block=1), *further, "--cuda_graph", 0, "--trace", trace], **kernels))
    predicted = prediction(context, path_of(context, model), batch, length, precision, [*further, "--cuda_graph", "false"], values["step_seconds"], kernels)
    return values | predicted | kernels_of(json.loads(trace.read_text()), is_gpu=not context.on_cpu)


def kernels_of(trace, is_gpu):
    """Returns the times of the kernels and copies in the trace of a step. Raises Failed for a trace of a GPU without kernels."""
    events = [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in event]
    kernels = [event for event in events if event["cat"] == "kernel"]
    if is_gpu and not kernels:
        raise Failed("the trace has no kernels, expected those of a step: LibTorch's profiler needs CUPTI")
    totals = {}
    for event in kernels:
        count, microseconds = totals.get(event["name"], (0, 0.0))
        totals[event["name"]] = (count + 1, microseconds + event["dur"])
    largest = sorted(totals.items(), key=lambda item: -item[1][1])[:NAMED_KERNELS]
    span = max((e["ts"] + e["dur"] for e in events), default=0.0) - min((e["ts"] for e in events), default=0.0)
    seconds = lambda chosen: sum(event["dur"] for event in chosen) / 1e6
    return {"kernels": len(kernels), "kernel_seconds": seconds(kernels), "copies": len(events) - len(kernels),
            "copy_seconds": seconds(event for event in events if event["cat"] != "kernel"), "gpu_span_seconds": span / 1e6, "different_kernels": len(totals),
            "largest_kernels": "; ".join(f"{1e-3 * time:.3f} ms in {count} of {name[:80]}" for name, (count, time) in largest)}


def measure_varied(context, step, program):
    """Measures rows of varied lengths. The prediction is for the padded step, which computes padding like other tokens."""
    model, batch, length, precision, _ = step
    packs = "padding_free" in program
    graphs = ["--cuda_graph", 1, "--warm_up", WARM_UP_OF_GRAPHS] if uses_graphs(program) else []
    values = context.json_of(context.run([context.program("gpu_step"), *arguments_of(context, step), "--lengths", "varied", "--padding_free", int(packs), *graphs],
                                         HASTEN_CUDA_KERNELS="1"))
    return values if packs else values | prediction(context, path_of(context, model), batch, length, precision, [], values["step_seconds"],
                                                    {"HASTEN_CUDA_KERNELS": "1"})


def path_of(context, model):
    return str(context.kit / model) if "/" in model else model


def arguments_of(context, step, block=None):
    """Returns the arguments that describe a step and its measurement, for gpu_step and for the program with the Hugging Face Trainer."""
    model, batch, length, precision, steps, *_ = step
    return ["--model", path_of(context, model), "--batch", batch, "--seq", length, "--precision", precision, "--steps", block or steps, "--blocks", 3,
            "--warm_up", context.small(5, 1), "--device", context.device]


def prediction(context, model, batch, length, precision, further, seconds, kernels):
    """Returns the predicted time of the step on the GPU, and the share of the peak that the measured step reaches (MFU)."""
    arguments = ["estimate", model, "--batch", batch, "--seq", length, "--precision", "fp32" if precision == "tf32" else precision,
                 *(["--tf32", "true"] if precision == "tf32" else []), *further, "--device", f"cuda:{context.gpu}", "--json"]
    report = context.json_of(context.hasten(*arguments, **kernels))
    flops = sum(each["flops"] for each in report["operations"] if each["group"] == "tensor_contraction") / report["steps"]
    peak = report["roofs"][PEAKS[precision]]
    expected = report["expected_step"]
    return {"predicted_seconds": expected["seconds"], "predicted_kernel_seconds": expected["kernels"], "predicted_uncertainty": expected["uncertainty"], "flops": flops,
            "mfu": flops / seconds / peak if peak and not context.on_cpu else 0.0}
