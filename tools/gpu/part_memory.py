"""Compares the predicted and the measured memory of a step. The claim is an error of at most 2 %."""
import itertools

from cases import Case, Failed, concurrent_case

NAME = "memory"
SECONDS = 240
ABOUT = "predicted beside measured memory: BERT, GPT-2, ResNet, LSTM in fp32, bf16, fp16"
LIMIT_PERCENT = 2.0

# Name: the model, and the options of a step.
STEPS = {
    "bert-large 4x512": ("bert-large", "--batch", 4, "--seq", 512),
    "bert-base 32x128": ("bert-base", "--batch", 32, "--seq", 128),
    "gpt2 4x1024": ("gpt2", "--batch", 4, "--seq", 1024),
    "resnet 64": ("models/torchvision_resnet.pt2", "--batch", 64, "--seq", 64),
    "lstm 64x128": ("models/lstm.pt2", "--batch", 64, "--seq", 128),
}
PRECISIONS = ("fp32", "bf16", "fp16")
# Options that change a step's memory, each with BERT-base.
TECHNIQUES = {
    "sgd": ("--optim", "sgd"),
    "adafactor": ("--optim", "adafactor"),
    "adamw_8bit": ("--optim", "adamw_8bit"),
    "accumulation": ("--gradient_accumulation_steps", 2),
    "recomputation": ("--activation_checkpointing", "true"),
    "step_in_backward": ("--step_in_backward", "true", "--max_grad_norm", 0),
    "eager attention": ("--attn_implementation", "eager"),
    "activation offloading": ("--activation_offloading", "true"),
    "offloaded optimizer states": ("--offload_optimizer_states", "true"),
}
# Batch, length, precision, optimizer, micro-batches of a step, and attention: 64 combinations for BERT.
COMBINATIONS = list(itertools.product((1, 8), (64, 128), ("fp32", "bf16"), ("adamw_torch_fused", "sgd"), (1, 3), ("sdpa", "eager")))
SMALL = {"bert 4x12": ("tests/oracle/data/models/sequence_single_label", "--batch", 4, "--seq", 12), "lstm 4x8": ("models/lstm.pt2", "--batch", 4, "--seq", 8)}


def cases(context):
    def of(name, arguments, precision, *more):
        return concurrent_case(", ".join([name, precision, *more[:1]]), 40, lambda context: compare(context, [*arguments, "--precision", precision, *more[1:]]))

    def combination(model, batch, length, precision, optim, micro_batches, attention):
        return concurrent_case(f"bert {batch}x{length}, {precision}, {optim}, {micro_batches} micro-batches, {attention}", 40, lambda context: compare(
            context, [model, "--batch", batch, "--seq", length, "--precision", precision, "--optim", optim, "--gradient_accumulation_steps", micro_batches,
                    "--attn_implementation", attention]))

    if context.on_cpu:
        tiny = SMALL["bert 4x12"][0]
        return [*(of(name, arguments, precision) for name, arguments in SMALL.items() for precision in PRECISIONS[:2]),
                *(combination(tiny, batch, 12, *others) for batch, _, *others in COMBINATIONS[:2])]
    base = "bert-base 32x128"
    return [*(of(name, arguments, precision) for precision in PRECISIONS for name, arguments in STEPS.items()),
            *(of(base, STEPS[base], "bf16", name, *arguments) for name, arguments in TECHNIQUES.items()),
            *(combination("bert-base", *each) for each in COMBINATIONS),
            Case(f"{base}, bf16, with CUDA's context", 40, lambda context: compare(context, [*STEPS[base], "--precision", "bf16"], is_alone=True))]


def percent(predicted, measured):
    return 100 * (predicted - measured) / measured if measured else 0.0


def compare(context, arguments, is_alone=False):
    """Compares what the process allocates and reserves and, if it is alone on the GPU, the used memory that NVML reports."""
    # A measured step has no CUDA graph, which `run graphs` compares.
    arguments = [context.kit / arguments[0] if "/" in str(arguments[0]) else arguments[0], *arguments[1:], "--cuda_graph", "false"]
    predicted = memory(context, *arguments, "--device", "cpu" if context.on_cpu else f"cuda:{context.gpu}")
    measured = memory(context, *arguments, "--measure", "--device", context.device)
    values = {"predicted_allocated": predicted["peak"], "measured_allocated": measured["peak"], "error_percent": percent(predicted["peak"], measured["peak"]),
              "predicted_reserved": predicted["reserved"], "measured_reserved": measured["reserved"],
              "reserved_error_percent": percent(predicted["reserved"], measured["reserved"])}
    if is_alone:
        values |= {"predicted_used": predicted["reserved"] + predicted["context"], "measured_used": measured["reserved"] + measured["context"],
                   "used_error_percent": percent(predicted["reserved"] + predicted["context"], measured["reserved"] + measured["context"])}
    errors = {name: value for name, value in values.items() if name.endswith("error_percent")}
    worst = max(errors, key=lambda name: abs(errors[name]))
    if abs(errors[worst]) > LIMIT_PERCENT:
        raise Failed(f"{worst} is {errors[worst]:.2f}, expected at most {LIMIT_PERCENT}", values)
    return values


def memory(context, *arguments):
    found = context.json_of(context.hasten("estimate", *arguments, "--json"))["memory"]
    gpu = found.get("gpu") or {}
    return {"peak": found["peak"], "reserved": gpu.get("reserved", 0), "context": gpu.get("context", 0)}
