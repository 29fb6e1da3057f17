"""The predicted memory of a step beside the measured one. The claim is an error of at most 2 %."""
from cases import Case, Failed

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
}
SMALL = {"bert 4x12": ("tests/oracle/data/models/sequence_single_label", "--batch", 4, "--seq", 12), "lstm 4x8": ("models/lstm.pt2", "--batch", 4, "--seq", 8)}


def cases(place):
    if place.on_cpu:
        return [Case(f"{name}, {precision}", 30, lambda place, words=words, precision=precision: compare(place, [*words, "--precision", precision]))
                for name, words in SMALL.items() for precision in PRECISIONS[:2]]
    out = [Case(f"{name}, {precision}", 30, lambda place, words=words, precision=precision: compare(place, [*words, "--precision", precision]))
           for precision in PRECISIONS for name, words in STEPS.items()]
    base = STEPS["bert-base 32x128"]
    out += [Case(f"bert-base 32x128, bf16, {name}", 30, lambda place, words=words: compare(place, [*base, "--precision", "bf16", *words]))
            for name, words in TECHNIQUES.items()]
    return out


def percent(predicted, measured):
    return 100 * (predicted - measured) / measured if measured else 0.0


def compare(place, words):
    words = [place.kit / words[0] if "/" in str(words[0]) else words[0], *words[1:]]
    predicted = memory(place, *words, "--device", "cpu" if place.on_cpu else f"cuda:{place.gpu}")
    measured = memory(place, *words, "--measure", "--device", place.device)
    values = {"predicted_allocated": predicted["peak"], "measured_allocated": measured["peak"], "error_percent": percent(predicted["peak"], measured["peak"]),
              "predicted_reserved": predicted["reserved"], "measured_reserved": measured["reserved"],
              "reserved_error_percent": percent(predicted["reserved"], measured["reserved"])}
    if measured["context"]:
        values |= {"predicted_used": predicted["reserved"] + predicted["context"], "measured_used": measured["reserved"] + measured["context"],
                   "used_error_percent": percent(predicted["reserved"] + predicted["context"], measured["reserved"] + measured["context"])}
    errors = {name: value for name, value in values.items() if name.endswith("error_percent")}
    worst = max(errors, key=lambda name: abs(errors[name]))
    if abs(errors[worst]) > LIMIT_PERCENT:
        raise Failed(f"{worst} is {errors[worst]:.2f}, expected at most {LIMIT_PERCENT}", values)
    return values


def memory(place, *words):
    found = place.json_of(place.hasten("estimate", *words, "--json"))["memory"]
    gpu = found.get("gpu") or {}
    return {"peak": found["peak"], "reserved": gpu.get("reserved", 0), "context": gpu.get("context", 0)}
