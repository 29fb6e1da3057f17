"""The tests that compare with recorded numbers, the examples, and runs of hasten train, on the GPU."""
import json

from cases import Case, Failed, concurrent_case

NAME = "tests"
SECONDS = 180
ABOUT = "tests with recorded numbers, the examples, hasten train and a resumed run"

# Files of tests/oracle with tests that use the device in HASTEN_TEST_DEVICE.
ORACLE = ("models", "decoders", "optimizers", "trainer", "gpu_operators", "gpu_graphs", "gpu_batches", "generation", "exported", "lora", "optimizers_8bit",
          "grad_scaler", "padding_free")
EXAMPLES = {"example_01_accelerated": (), "example_04_notebook_launcher": ("--num_layers", 2, "--num_processes", 2), "example_05_distributed": (), "example_06_uneven_data": (),
            "example_07_local_sgd": (), "example_08_several_models": (), "example_09_gradient_accumulation": ()}
# doctest's programs return this if a test skipped itself.
SKIPPED_TEST = 77


def cases(context):
    oracles = [concurrent_case(f"oracle/{name}", 60, lambda context, name=name: oracle(context, name)) for name in ORACLE]
    examples = [concurrent_case(name, 40, lambda context, name=name, arguments=arguments: example(context, name, arguments)) for name, arguments in EXAMPLES.items()]
    trained = [concurrent_case(f"hasten train, {precision}", 40, lambda context, precision=precision: train(context, precision)) for precision in ("fp32", "bf16", "fp16")]
    if context.on_cpu:  # the same tests run on the CPU in every build
        oracles, examples, trained = oracles[:2], examples[:2], trained[:1]
    others = [] if context.on_cpu else [concurrent_case("LibTorch's kernels", 60, lambda context: oracle(context, "models", kernels="0"))]
    return [Case("gpu is used", 90, gpu_is_used), *oracles, *others, concurrent_case("a resumed run", 60, resume), *trained, *examples]


def gpu_is_used(context):
    """Without LibTorch's CUDA library all other cases would run on the CPU and pass."""
    report = context.json_of(context.hasten("estimate", context.kit / "tests/oracle/data/models/sequence_single_label", "--batch", 4, "--seq", 12, "--measure",
                                          "--device", context.device, "--json"))
    expected = "cpu" if context.on_cpu else "cuda:0"
    if report["device"] != expected or report["memory"]["peak"] <= 0:
        raise Failed(f"got device {report['device']} with a peak of {report['memory']['peak']} bytes, expected {expected}")
    return {"used_device": report["device"], "peak": report["memory"]["peak"]}


def oracle(context, name, kernels="1"):
    """Compares with recorded numbers, and counts what the tests leave out on this device. On a GPU, it is an error if hasten's kernels are required but
    missing."""
    text = context.run([context.program("oracle_tests"), f"--source-file=*oracle/{name}_test.cpp", "--no-intro"], codes=(0, SKIPPED_TEST),
                       HASTEN_TEST_DEVICE=context.device, HASTEN_TEST_FOLDER=context.kit / "tests", HASTEN_CUDA_KERNELS=kernels, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    cases_line = next((line for line in text.splitlines() if "test cases:" in line), "")
    counts = [int(word) for word in cases_line.replace("|", " ").split() if word.isdigit()]
    if not counts or counts[0] == 0:
        raise Failed("no test ran: " + cases_line)
    left_out = sorted({line for line in text.splitlines() if line.startswith(("left out on ", "skipped: "))})
    return {"test_cases": counts[0], "left_out": len(left_out), "reasons": "; ".join(left_out)}


def example(context, name, arguments):
    context.run([context.program(name), *arguments])
    return {}


def train_arguments(context, folder, steps, *arguments):
    model = context.kit / "tests/oracle/data/models/sequence_single_label"
    return ["train", "--model", model, "--data", "dummy", "--dummy_rows", 64, "--dummy_length", 12, "--do_train", "--disable_tqdm", "--max_steps", steps,
            "--logging_steps", 2, "--output_dir", folder, *(["--use_cpu"] if context.on_cpu else []), *arguments]


def state_of(folder):
    return json.loads((folder / "trainer_state.json").read_text())


def losses_of(folder):
    return {entry["step"]: entry["loss"] for entry in state_of(folder)["log_history"] if "loss" in entry}


def train(context, precision):
    folder = context.scratch / f"train-{precision}"
    context.hasten(*train_arguments(context, folder, 20, "--save_strategy", "no", *([] if precision == "fp32" else [f"--{precision}"])), HASTEN_CUDA_KERNELS=1)
    losses = losses_of(folder)
    if len(losses) < 5 or not all(0 < loss < 10 for loss in losses.values()):
        raise Failed(f"losses {losses}, expected at least five between 0 and 10")
    return {"first_loss": list(losses.values())[0], "last_loss": list(losses.values())[-1]}


def resume(context):
    """A run of 8 steps and a run that resumes from a checkpoint of step 4 have the same losses, except for the order of additions."""
    whole, parts = context.scratch / "whole", context.scratch / "parts"
    context.hasten(*train_arguments(context, whole, 8, "--save_strategy", "no"))
    context.hasten(*train_arguments(context, parts, 8, "--save_steps", 4, "--save_strategy", "steps"))
    context.hasten(*train_arguments(context, context.scratch / "continued", 8, "--save_strategy", "no", "--resume_from_checkpoint", parts / "checkpoint-4"))
    a, b = losses_of(whole), losses_of(context.scratch / "continued")
    difference = max(abs(a[step] - b[step]) for step in a)
    if sorted(a) != sorted(b) or difference > 1e-4:
        raise Failed(f"losses {a} and resumed {b}, expected at most 1e-4 between them")
    return {"largest_difference": difference}
