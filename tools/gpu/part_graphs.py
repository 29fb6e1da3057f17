"""Compares runs with and without cuda_graph: the losses must be equal bit for bit. Measures the time of small steps, and the memory of their graphs,
which must agree with the prediction."""
from cases import Case, Failed, concurrent_case
from part_memory import LIMIT_PERCENT, percent
from part_tests import losses_of, train_arguments

NAME = "graphs"
SECONDS = 240
ABOUT = "whether runs with cuda_graph have the losses of runs without, to the bit, and how much faster small steps are"

NO_DROPOUT = ("--hidden_dropout", 0, "--attention_dropout", 0, "--classifier_dropout", 0)
# The options of runs that compare the losses of 100 steps. The 64 rows of the data make batches of 8, or batches of 12 and a last one of 4.
RUNS = {
    "a schedule": ("--lr_scheduler_type", "cosine", "--warmup_steps", 10),
    "bf16": ("--bf16",),
    "windows of three batches": ("--gradient_accumulation_steps", 3),
    "two shapes in turn": ("--per_device_train_batch_size", 12),
    "no clipping": ("--max_grad_norm", 0),
}
# Name: model, batch, length, precision, steps of a block.
STEPS = {"bert-base 1x128 bf16": ("bert-base", 1, 128, "bf16", 50), "bert-base 8x128 bf16": ("bert-base", 8, 128, "bf16", 50)}
SMALL = {"bert 4x12 fp32": ("tests/oracle/data/models/sequence_single_label", 4, 12, "fp32", 3)}


def cases(context):
    runs = dict(list(RUNS.items())[:1]) if context.on_cpu else RUNS
    equal = [concurrent_case(f"equal losses, {name}", 60, lambda context, arguments=arguments: equal_losses(context, arguments)) for name, arguments in runs.items()]
    steps = [Case(f"speed of {name}", 90, lambda context, step=step: speed(context, step)) for name, step in (SMALL if context.on_cpu else STEPS).items()]
    return [*equal, concurrent_case("equal losses, dropout", 60, dropout), concurrent_case("equal losses, dropout of attention", 60, attention_dropout),
            concurrent_case("equal losses, dropout of attention in bf16", 60, lambda context: attention_dropout(context, "--bf16")),
            concurrent_case("a checkpoint that continues", 90, checkpoint), *steps]


def train(context, name, *arguments):
    """Returns the losses of a run that gives the same bits on each call. Raises Failed if a run that asks for graphs has none."""
    folder = context.scratch / context.case.replace(" ", "_").replace(",", "") / name
    choice = () if "--cuda_graph" in arguments else ("--cuda_graph", "false")
    text = context.hasten(*train_arguments(context, folder, context.small(100, 8), "--logging_steps", 1, "--dummy_length", 16, "--full_determinism", *choice, *arguments),
                          HASTEN_CUDA_KERNELS=int(not context.on_cpu), CUBLAS_WORKSPACE_CONFIG=":4096:8")
    refusal = next((line for line in text.splitlines() if "started one by one" in line), "")
    if refusal and not context.on_cpu:
        raise Failed(refusal)
    return losses_of(folder)


def compare(plain, graphs):
    different = [step for step in plain if plain[step] != graphs.get(step)]
    if different or len(plain) < 4:
        raise Failed(f"{len(different)} of {len(plain)} losses differ, the first in step {(different or [0])[0]}",
                     {"largest_difference": max((abs(plain[step] - graphs.get(step, 0.0)) for step in plain), default=0.0)})
    return {"equal_losses": len(plain)}


def equal_losses(context, arguments):
    arguments = ("--save_strategy", "no", *NO_DROPOUT, *arguments)
    return compare(train(context, "plain", *arguments), train(context, "graphs", "--cuda_graph", *arguments))


def dropout(context):
    """hasten's kernels use the seeds of a run without graphs. Attention dropout is off, because it is LibTorch's."""
    arguments = ("--save_strategy", "no", "--hidden_dropout", 0.1, "--attention_dropout", 0, "--classifier_dropout", 0)
    return compare(train(context, "plain", *arguments), train(context, "graphs", "--cuda_graph", *arguments))


def attention_dropout(context, *precision):
    """LibTorch's generator counts the numbers that a graph draws, so its masks also equal the masks of a run without graphs."""
    arguments = ("--save_strategy", "no", "--hidden_dropout", 0.1, "--attention_dropout", 0.1, "--classifier_dropout", 0.1, *precision)
    return compare(train(context, "plain", *arguments), train(context, "graphs", "--cuda_graph", *arguments))


def checkpoint(context):
    steps = context.small(50, 4)
    arguments = ("--save_strategy", "steps", "--save_steps", steps, *NO_DROPOUT)
    plain = train(context, "plain", *arguments)
    folder = context.scratch / context.case.replace(" ", "_").replace(",", "")
    compare(plain, train(context, "graphs", "--cuda_graph", *arguments))
    for name, graph in (("continued", ()), ("continued with graphs", ("--cuda_graph",))):
        compare(plain, train(context, name, "--resume_from_checkpoint", folder / "graphs" / f"checkpoint-{steps}", *graph, *arguments))
    return {"equal_losses": len(plain)}


def speed(context, step):
    model, batch, length, precision, block = step
    arguments = ["--model", str(context.kit / model) if "/" in model else model, "--batch", batch, "--seq", length, "--precision", precision, "--steps", block,
                 "--blocks", 3, "--warm_up", context.small(10, 1), "--device", context.device]
    measured = {graph: context.json_of(context.run([context.program("gpu_step"), *arguments, "--cuda_graph", graph])) for graph in (0, context.small(1, 0))}
    plain, graphs = measured[0], measured[context.small(1, 0)]
    report = context.json_of(context.hasten("estimate", arguments[1], "--batch", batch, "--seq", length, "--precision", precision, "--cuda_graph", "--device",
                                          f"cuda:{context.gpu}", "--json"))
    values = {"step_seconds": graphs["step_seconds"], "without_graph": plain["step_seconds"], "peak_reserved": graphs["peak_reserved"],
              "reserved_without_graph": plain["peak_reserved"], "predicted_seconds": report["expected_step"]["seconds"]}
    if context.on_cpu:
        return values
    predicted = report["memory"]["gpu"]["reserved"]
    values |= {"predicted_reserved": predicted, "reserved_error_percent": percent(predicted, graphs["peak_reserved"])}
    if abs(values["reserved_error_percent"]) > LIMIT_PERCENT:
        raise Failed(f"reserved_error_percent is {values['reserved_error_percent']:.2f}, expected at most {LIMIT_PERCENT}", values)
    return values
