#!/usr/bin/env python3
"""Counts floating-point operations with PyTorch's counter (torch.utils.flop_counter) and writes data/flops/cases.json.

    python generate_flops.py

Each case has a computation and the operations that FlopCounterMode counts in the forward and backward passes. Some cases also have
the operations of the double backward pass. Everything runs on the Meta device, so nothing is computed, and recurrent layers are split
into their products.
"""
import json
import pathlib

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

FILE = pathlib.Path(__file__).resolve().parent / "data" / "flops" / "cases.json"


def matmul(name, *shapes, **more):
    return dict(name=name, kind="matmul", shapes=shapes, **more)


def linear(name, x, out, bias, **more):
    return dict(name=name, kind="linear", x=x, out=out, bias=bias, **more)


def convolution(name, x, out, kernel, **more):
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    case = dict(name=name, kind="convolution", x=x, out=out, kernel=kernel, stride=ones, padding=zeros, dilation=ones, transposed=False,
                output_padding=zeros, groups=1, bias=True, gradients=[True, True])
    return case | more


def transposed(name, *arguments, **more):
    return convolution(name, *arguments, transposed=True, **more)


def attention(name, q, k, v, **more):
    return dict(name=name, kind="attention", q=q, k=k, v=v, causal=False) | more


def recurrent(name, kind, **more):
    return dict(name=name, kind=kind, length=5, batch=3, inputs=7, hidden=4, layers=1, bidirectional=False, biases=True) | more


CASES = [
    matmul("mm", [3, 4], [4, 5]), matmul("mm of a column", [3, 4], [4, 1]), matmul("mm of nothing", [0, 4], [4, 5]),
    matmul("mm over nothing", [3, 0], [0, 5]),
    matmul("bmm", [2, 3, 4], [2, 4, 5]), matmul("batch of matrices by one", [2, 3, 4], [4, 5]), matmul("one by a batch of matrices", [3, 4], [2, 4, 5]),
    matmul("broadcast batches", [6, 1, 3, 4], [2, 4, 5]), matmul("four dimensions", [2, 6, 3, 4], [2, 6, 4, 5]),
    matmul("batch of matrices by a vector", [2, 3, 4], [4]), matmul("a vector by a batch of matrices", [4], [2, 4, 5]),
    matmul("matrix by a vector", [3, 4], [4]), matmul("a vector by a matrix", [4], [4, 5]), matmul("dot", [4], [4]),
    dict(name="addmm", kind="addmm", shapes=[[3, 5], [3, 4], [4, 5]]), dict(name="addmm of a row", kind="addmm", shapes=[[5], [3, 4], [4, 5]]),
    dict(name="baddbmm", kind="baddbmm", shapes=[[2, 3, 5], [2, 3, 4], [2, 4, 5]]),
    linear("linear", [3, 4], 5, True), linear("linear without a bias", [3, 4], 5, False), linear("linear of a vector", [4], 5, True),
    linear("linear of three dimensions", [2, 3, 4], 5, True), linear("linear of three dimensions without a bias", [2, 3, 4], 5, False),
    linear("linear of no rows", [0, 4], 5, True),
    dict(name="einsum of matrices", kind="einsum", equation="ij,jk->ik", shapes=[[3, 4], [4, 5]]),
    dict(name="einsum of heads", kind="einsum", equation="bqhd,bkhd->bhqk", shapes=[[2, 3, 4, 5], [2, 6, 4, 5]]),
    dict(name="einsum that contracts everything", kind="einsum", equation="ij,ij->", shapes=[[3, 4], [3, 4]]),
    convolution("conv1d", [2, 4, 9], 6, [3]), convolution("conv2d", [2, 4, 9, 8], 6, [3, 2]), convolution("conv3d", [2, 4, 5, 6, 7], 6, [3, 2, 1]),
    convolution("conv2d with stride, padding and dilation", [2, 4, 11, 12], 6, [3, 3], stride=[2, 3], padding=[1, 2], dilation=[2, 1]),
    convolution("conv2d of one place", [2, 4, 5, 5], 6, [1, 1]), convolution("conv2d without a bias", [2, 4, 5, 5], 6, [3, 3], bias=False),
    convolution("conv2d in groups", [2, 4, 7, 7], 6, [3, 3], groups=2), convolution("depthwise conv2d", [2, 4, 7, 7], 4, [3, 3], groups=4, padding=[1, 1]),
    convolution("depthwise conv2d, two results a channel", [2, 4, 7, 7], 8, [3, 3], groups=4),
    convolution("conv2d, gradient of the weight alone", [2, 4, 7, 7], 6, [3, 3], gradients=[False, True]),
    convolution("conv2d, gradient of the input alone", [2, 4, 7, 7], 6, [3, 3], gradients=[True, False]),
    convolution("conv2d of no rows", [0, 4, 7, 7], 6, [3, 3]),
    transposed("transposed conv1d", [2, 4, 9], 6, [3], stride=[2]), transposed("transposed conv2d", [2, 64, 16, 16], 3, [4, 4], stride=[2, 2], padding=[1, 1]),
    transposed("transposed conv3d", [2, 4, 3, 4, 5], 6, [3, 2, 1]),
    transposed("transposed conv2d with output padding and dilation", [2, 4, 5, 6], 6, [3, 3], stride=[2, 2], padding=[1, 0], dilation=[1, 2], output_padding=[1, 0]),
    transposed("transposed conv2d in groups", [2, 4, 5, 5], 6, [3, 3], groups=2, stride=[2, 2]),
    transposed("depthwise transposed conv2d", [2, 4, 5, 5], 4, [3, 3], groups=4),
    transposed("transposed conv2d, gradient of the weight alone", [2, 4, 5, 5], 6, [3, 3], gradients=[False, True]),
    transposed("transposed conv2d, gradient of the input alone", [2, 4, 5, 5], 6, [3, 3], gradients=[True, False]),
    attention("attention", [2, 3, 6, 8], [2, 3, 6, 8], [2, 3, 6, 8]), attention("causal attention", [2, 3, 6, 8], [2, 3, 6, 8], [2, 3, 6, 8], causal=True),
    attention("attention to longer keys", [2, 3, 6, 8], [2, 3, 10, 8], [2, 3, 10, 8]), attention("attention of one query", [2, 3, 1, 8], [2, 3, 10, 8], [2, 3, 10, 8]),
    attention("attention with wider values", [2, 3, 6, 8], [2, 3, 6, 8], [2, 3, 6, 16]),
    recurrent("lstm", "lstm"), recurrent("lstm without biases", "lstm", biases=False), recurrent("lstm of two layers", "lstm", layers=2),
    recurrent("lstm in both directions", "lstm", bidirectional=True, layers=2), recurrent("gru", "gru"),
    recurrent("gru in both directions", "gru", bidirectional=True, layers=2), recurrent("rnn", "rnn"), recurrent("rnn of two layers", "rnn", layers=2),
]

TWICE = ["mm", "bmm", "linear without a bias", "conv2d without a bias", "transposed conv2d", "conv2d with stride, padding and dilation"]


def leaf(shape, needs=True):
    return torch.empty(shape, device="meta", requires_grad=needs)


def recurrent_of(case):
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[case["kind"]]
    layer = kind(case["inputs"], case["hidden"], case["layers"], bias=case["biases"], bidirectional=case["bidirectional"], device="meta")
    states = case["layers"] * (2 if case["bidirectional"] else 1)
    state = [leaf([states, case["batch"], case["hidden"]]) for _ in range(2 if case["kind"] == "lstm" else 1)]
    x = leaf([case["length"], case["batch"], case["inputs"]])
    return [x, *state], lambda: layer(x, tuple(state) if len(state) > 1 else state[0])[0]


def attention_of(case):
    # Uses the operator for GPUs, because the counter does not know the CPU operator.
    q, k, v = (leaf(case[name]) for name in "qkv")
    return [q, k, v], lambda: torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, case["causal"])[0]


def convolution_of(case):
    needs = case["gradients"]
    inputs = case["x"][1]
    first, second = (inputs, case["out"]) if case["transposed"] else (case["out"], inputs)
    x, weight = leaf(case["x"], needs[0]), leaf([first, second // case["groups"], *case["kernel"]], needs[1])
    bias = leaf([case["out"]]) if case["bias"] else None
    return [x, weight], lambda: torch.ops.aten.convolution(x, weight, bias, case["stride"], case["padding"], case["dilation"],
                                                           case["transposed"], case["output_padding"], case["groups"])


def program_of(case):
    """Returns the operands and a function that computes the result."""
    kind = case["kind"]
    if kind in ("lstm", "gru", "rnn"):
        return recurrent_of(case)
    if kind == "attention":
        return attention_of(case)
    if kind == "convolution":
        return convolution_of(case)
    if kind == "linear":
        x, weight, bias = leaf(case["x"]), leaf([case["out"], case["x"][-1]]), leaf([case["out"]]) if case["bias"] else None
        return [x, weight], lambda: F.linear(x, weight, bias)
    operands = [leaf(shape) for shape in case["shapes"]]
    if kind == "einsum":
        return operands, lambda: torch.einsum(case["equation"], *operands)
    return operands, lambda: getattr(torch, kind)(*operands)


def counted(run):
    with FlopCounterMode(display=False) as counter:
        result = run()
    return counter.get_total_flops(), result


def double_backward(case):
    """Counts the operations of the double backward pass: the gradients of the sum of all gradients, for the operands and the result's gradient."""
    operands, run = program_of(case)
    result = run()
    needed = [each for each in operands if each.requires_grad]
    above = torch.empty_like(result).requires_grad_()
    gradients = torch.autograd.grad(result, needed, above, create_graph=True)
    total = sum(each.sum() for each in gradients)
    return counted(lambda: torch.autograd.grad(total, [*needed, above], allow_unused=True))[0]


def main():
    for case in CASES:
        _, run = program_of(case)
        case["forward"], result = counted(run)
        case["backward"], _ = counted(lambda: result.backward(torch.empty_like(result)))
        if case["name"] in TWICE:
            case["double_backward"] = double_backward(case)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(case) for case in CASES)
    FILE.write_text('{"torch": "%s", "cases": [\n  %s\n]}\n' % (torch.__version__.split("+")[0], lines))
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    main()
