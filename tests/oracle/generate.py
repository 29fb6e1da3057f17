#!/usr/bin/env python3
"""Runs the Hugging Face Trainer on a tiny BERT, once per case, and writes the results.

    python generate.py                 # every case
    python generate.py sgd cosine      # some cases
    python generate.py --check [...]   # write nothing; print the differences between a new run and the files
    python generate.py --list

Every case starts from the same weights and reads the same rows in the same order, so cases differ only in
the training arguments in the table below. README.md describes the file formats. The cases of lion_32bit, ademamix and
rmsprop_bnb need bitsandbytes 0.50.2, those of stable_adamw* need torch-optimi 0.3.3, and those of schedule_free* need schedulefree 1.4.1.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import accelerate
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (BertConfig, BertForSequenceClassification, EarlyStoppingCallback, Trainer,
                          TrainerCallback, TrainingArguments, set_seed)
from transformers.trainer_callback import PrinterCallback

try:
    import optimi

    class PlainStableAdamW(optimi.StableAdamW):
        """A StableAdamW that does not use Triton, which needs a GPU."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, triton=False, **options)

    optimi.StableAdamW = PlainStableAdamW
except ImportError:
    pass  # the cases with stable_adamw cannot run

# With one thread sums have a fixed order, so each run writes the same files.
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DATA = pathlib.Path(__file__).resolve().parent / "data"
BATCHES, BATCH, LENGTH, VOCABULARY = 50, 8, 16, 100


@dataclasses.dataclass(frozen=True)
class Case:
    note: str
    arguments: dict                # by the Hugging Face Trainer's names; other arguments keep its defaults
    rows: int = 240                # uses the first `rows` rows of base/batches.safetensors
    eval_rows: int = 0             # evaluates on the first `eval_rows` rows
    trainer_attributes: dict = dataclasses.field(default_factory=dict)
    final: str = ""                # the case with the same final weights, if this one only changes the log


def case(note, rows=240, eval_rows=0, trainer_attributes=None, final="", **arguments):
    """Returns a case with one epoch, a log entry for every step, and a learning rate at which the weights change clearly."""
    common = dict(num_train_epochs=1, learning_rate=1e-3, logging_steps=1)
    return Case(note, {**common, **arguments}, rows, eval_rows, trainer_attributes or {}, final)


def schedule(kind, note, warmup_steps=5, final="", **kwargs):
    arguments = dict(lr_scheduler_type=kind, warmup_steps=warmup_steps)
    if kwargs:
        arguments["lr_scheduler_kwargs"] = kwargs
    return case(note, final=final, **arguments)


CASES = {
    # Optimizers. The first two use the default learning rate, at which the loss changes little.
    "adamw_torch": case("AdamW, plain kernels, rate 5e-5", rows=400, optim="adamw_torch", learning_rate=5e-5),
    "adamw_torch_fused": case("AdamW, fused kernel, rate 5e-5", rows=400, optim="adamw_torch_fused", learning_rate=5e-5),
    "learning_rate": case("the default optimizer (adamw_torch_fused), rate 1e-3", rows=400),
    "learning_rate_unfused": case("the same with plain kernels", rows=400, optim="adamw_torch"),
    "weight_decay": case("decay 0.1, not on biases and layer norms", rows=400, weight_decay=0.1),
    "adam_betas_eps": case("other betas and epsilon", adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-4),
    "sgd": case("plain SGD; the rate is larger because its steps are not normalised", optim="sgd", learning_rate=0.5),
    "sgd_weight_decay": case("SGD adds decay to the gradient", optim="sgd", learning_rate=0.5, weight_decay=0.01),
    "adafactor": case("with the rate of the run instead of its own", optim="adafactor", weight_decay=0.1),
    "adagrad": case("with its own arguments", optim="adagrad", learning_rate=0.01, weight_decay=0.01,
                    optim_args="lr_decay=0.01,eps=1e-4"),
    "rmsprop": case("with its own arguments", optim="rmsprop", weight_decay=0.01, optim_args="alpha=0.9,momentum=0.5,centered=True"),
    "rmsprop_bnb": case("that of bitsandbytes, in 32 bits", optim="rmsprop_bnb", weight_decay=0.01),
    "lion_32bit": case("its second decay rate is adam_beta2", optim="lion_32bit", learning_rate=1e-4, weight_decay=0.1),
    "ademamix": case("alpha and beta3 rise over 10 steps", optim="ademamix", weight_decay=0.1,
                     optim_args="beta3=0.99,alpha=4,t_alpha=10,t_beta3=10"),
    "stable_adamw": case("weight decay follows the rate", optim="stable_adamw", weight_decay=0.1),
    "stable_adamw_decoupled": case("weight decay follows the share of the highest rate", optim="stable_adamw", weight_decay=1e-3,
                                   optim_args="decouple_lr=True,max_lr=2e-3"),
    # An evaluation follows the last step, so that the final weights are the mean in both libraries.
    "schedule_free_adamw": case("evaluations see the mean of the weights", optim="schedule_free_adamw", lr_scheduler_type="constant",
                                warmup_steps=5, weight_decay=0.1, eval_rows=33, eval_strategy="steps", eval_steps=10),
    "schedule_free_sgd": case("with another mean", optim="schedule_free_sgd", lr_scheduler_type="constant", warmup_steps=5,
                              learning_rate=0.5, optim_args="r=0.5,weight_lr_power=1", eval_rows=33, eval_strategy="steps", eval_steps=10),
    # Gradient clipping.
    "max_grad_norm_0": case("no clipping; the norm is still logged", max_grad_norm=0.0),
    "max_grad_norm_0.1": case("AdamW hardly notices a smaller gradient", max_grad_norm=0.1),
    "sgd_max_grad_norm_0.1": case("SGD does", max_grad_norm=0.1, optim="sgd", learning_rate=0.5),
    # Warm-up given as a number of steps and as a share of all steps (rounded up).
    "warmup_steps": case("5 steps", warmup_steps=5),
    "warmup_ratio": case("a tenth of 26 steps, rounded up to 3", rows=208, warmup_steps=0.1),
    # Schedules.
    "linear": case("no warm-up"),
    "cosine": schedule("cosine", "half a wave"),
    "cosine_cycles": schedule("cosine", "a wave and a half", num_cycles=1.5),
    "cosine_with_restarts": schedule("cosine_with_restarts", "three waves, hard restarts", num_cycles=3),
    "polynomial": schedule("polynomial", "linear down to 1e-7, the defaults"),
    "polynomial_power": schedule("polynomial", "square, down to 1e-4", power=2.0, lr_end=1e-4),
    "constant": schedule("constant", "flat", warmup_steps=0),
    "constant_warmup_ignored": schedule("constant", "this schedule takes no warm-up: the 5 steps are ignored", final="constant"),
    "constant_with_warmup": schedule("constant_with_warmup", "flat after 5 steps"),
    "inverse_sqrt": schedule("inverse_sqrt", "time scale = warm-up steps"),
    "inverse_sqrt_timescale": schedule("inverse_sqrt", "time scale given", timescale=20),
    "inverse_sqrt_no_warmup": schedule("inverse_sqrt", "time scale falls back to 10000", warmup_steps=0),
    "cosine_with_min_lr": schedule("cosine_with_min_lr", "down to 1e-4", min_lr=1e-4),
    "cosine_with_min_lr_rate": schedule("cosine_with_min_lr", "down to a fifth", min_lr_rate=0.2),
    "cosine_warmup_with_min_lr": schedule("cosine_warmup_with_min_lr", "warm-up from 1/5; one step ahead of cosine", min_lr_rate=0.1),
    "cosine_warmup_with_min_lr_rate": schedule("cosine_warmup_with_min_lr", "warm-up from a given share", min_lr=1e-4, warmup_lr_rate=0.3),
    "warmup_stable_decay": schedule("warmup_stable_decay", "5 up, 15 flat, 10 down by a cosine", num_decay_steps=10),
    "warmup_stable_decay_linear": schedule("warmup_stable_decay", "straight lines, floor 0.1 at both ends",
                                           num_decay_steps=10, warmup_type="linear", decay_type="linear", min_lr_ratio=0.1),
    "warmup_stable_decay_1-sqrt": schedule("warmup_stable_decay", "1-sqrt both ways, 4 steps left at the floor",
                                           num_stable_steps=11, num_decay_steps=10, warmup_type="1-sqrt", decay_type="1-sqrt", min_lr_ratio=0.05),
    "warmup_stable_decay_cosine": schedule("warmup_stable_decay", "cosine warm-up", num_decay_steps=12, warmup_type="cosine"),
    # Schedules that follow an evaluation metric.
    "reduce_lr_on_plateau": case("a third of the rate after an evaluation without a clear improvement", eval_rows=33, eval_strategy="steps",
                                 eval_steps=3, lr_scheduler_type="reduce_lr_on_plateau",
                                 lr_scheduler_kwargs=dict(factor=0.3, patience=0, threshold=0.02, cooldown=1)),
    "reduce_lr_on_plateau_accuracy": case("follows another metric, upwards", eval_rows=33, eval_strategy="steps", eval_steps=3,
                                          lr_scheduler_type="reduce_lr_on_plateau", metric_for_best_model="accuracy",
                                          lr_scheduler_kwargs=dict(mode="max", patience=1, threshold=0.1, threshold_mode="abs")),
    "greedy": case("raises the rate while the loss falls", eval_rows=33, eval_strategy="steps", eval_steps=2, lr_scheduler_type="greedy",
                   lr_scheduler_kwargs=dict(factor=0.8, patience=1, min_lr=1e-5, max_lr=2e-3, smooth=True, window_size=3)),
    # Loss and accumulation. There are two ways to make accumulation correct. The first is label smoothing, where the Trainer divides by the number of
    # labels in the whole window. The second is the class attribute that declares that the loss is a mean over a micro-batch. The Trainer then divides
    # by the number of micro-batches in the window.
    "label_smoothing": case("0.1", label_smoothing_factor=0.1),
    "accumulation_3": case("windows of 3, the last one of 2", rows=400, num_train_epochs=2,
                           gradient_accumulation_steps=3, label_smoothing_factor=0.1),
    "accumulation_4_logging_4": case("30 micro-batches: 7 windows of 4 and one of 2, three times; mean loss over 4 steps",
                                     num_train_epochs=3, gradient_accumulation_steps=4, label_smoothing_factor=0.1, logging_steps=4),
    "accumulation_3_mean": case("divided by the micro-batches of the window", rows=400, num_train_epochs=2,
                                gradient_accumulation_steps=3, trainer_attributes=dict(loss_is_scaled_for_ga=False)),
    "accumulation_3_mean_ragged": case("the same; the last window has a batch of 8 and one of 5", rows=157, num_train_epochs=3,
                                       gradient_accumulation_steps=3, trainer_attributes=dict(loss_is_scaled_for_ga=False)),
    "accumulation_3_ragged": case("the same rows with smoothing: each row of a window weighs the same", rows=157, num_train_epochs=3,
                                  gradient_accumulation_steps=3, label_smoothing_factor=0.1),
    # Recomputation: the numbers must equal the numbers of accumulation_3.
    "activation_checkpointing": case("every second layer recomputed, windows of 3", rows=400, num_train_epochs=2, gradient_accumulation_steps=3,
                                     label_smoothing_factor=0.1, activation_checkpointing=True,
                                     activation_checkpointing_kwargs=dict(every_n_layers=2, use_reentrant=False), final="accumulation_3"),
    # Duration.
    "max_steps": case("20 of 30 possible steps", max_steps=20),
    "max_steps_wraps": case("20 steps an epoch, stops in the second", rows=160, max_steps=33),
    "two_epochs": case("the same order twice", rows=160, num_train_epochs=2),
    "fractional_epochs": case("1.3 epochs of 21 batches, rounded up to 28 steps", rows=165, num_train_epochs=1.3),
    "drop_last": case("165 rows: the last 5 are left out", rows=165, num_train_epochs=2, dataloader_drop_last=True),
    "ragged": case("165 rows: a last batch of 5 rows", rows=165, num_train_epochs=2),
    # The log.
    "logging_steps_7": case("mean loss over 7 steps; norm and rate of the last one", logging_steps=7, final="linear"),
    "logging_first_step": case("step 1, then every 7; the first mean covers step 1, the next one 6 steps",
                               logging_steps=7, logging_first_step=True, final="linear"),
    "logging_ratio": case("a fifth of all steps", logging_steps=0.2, final="linear"),
    "logging_epoch": case("one line an epoch", rows=160, num_train_epochs=3, logging_strategy="epoch"),
    # Evaluation: the loss is the mean over rows, although the last batch has 3 of them.
    "evaluation": case("every 10 steps, 33 rows by 5", eval_rows=33, eval_strategy="steps", eval_steps=10, per_device_eval_batch_size=5, final="linear"),
    "evaluation_smoothed": case("label smoothing is in the evaluation loss too; at each epoch, and before training", rows=160, num_train_epochs=2,
                                eval_rows=33, eval_strategy="epoch", eval_on_start=True, per_device_eval_batch_size=5, label_smoothing_factor=0.1),
    "evaluation_drop_last": case("the Hugging Face Trainer also drops the last evaluation rows", rows=165, eval_rows=33, eval_strategy="steps", eval_steps=10,
                                 per_device_eval_batch_size=5, dataloader_drop_last=True),
    # Precision.
    "bf16": case("autocast to bfloat16 on the CPU", bf16=True, rows=400),
}

# Arguments that change no number: folders and output.
QUIET = dict(use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True, seed=1234,
             train_sampling_strategy="sequential")


def make_base():
    """Returns the common start of all cases: a config, weights, and 50 batches of 8 rows of 16 tokens, some of them padded."""
    set_seed(1234)
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=64, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0, classifier_dropout=0.0, num_labels=2)
    weights = weights_of(BertForSequenceClassification(config))

    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, VOCABULARY, (BATCHES * BATCH, LENGTH), generator=generator)
    labels = (ids[:, 0] > 50).long()
    lengths = torch.randint(4, LENGTH + 1, (BATCHES * BATCH,), generator=generator)
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    batches = dict(input_ids=(ids * mask).view(BATCHES, BATCH, LENGTH),
                   attention_mask=mask.view(BATCHES, BATCH, LENGTH), labels=labels.view(BATCHES, BATCH))
    return config, weights, batches


def weights_of(model):
    return {name: tensor.clone().contiguous() for name, tensor in model.state_dict().items()}


def rows_of(batches, count):
    flat = {name: tensor.flatten(0, 1) for name, tensor in batches.items()}
    return [{name: tensor[i] for name, tensor in flat.items()} for i in range(count)]


def accuracy(prediction):
    return dict(accuracy=float((prediction.predictions.argmax(-1) == prediction.label_ids).mean()))


class RecordingTrainer(Trainer):
    """Records each training loss of the model (or the label smoother), and each gradient norm before clipping."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.losses, self.grad_norms = [], []

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        result = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        if model.training:
            self.losses.append((result[0] if return_outputs else result).item())
        return result

    def _get_grad_norm(self, model, grad_norm=None):
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.grad_norms.append(float(norm))
        return norm


class RateRecorder(TrainerCallback):
    """Records the learning rate of each optimizer step, even if the step is not logged."""

    def __init__(self):
        self.rates = []

    def on_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        self.rates.append(float(optimizer.param_groups[0]["lr"]))


def versions():
    flags = pathlib.Path("/proc/cpuinfo").read_text() if pathlib.Path("/proc/cpuinfo").exists() else ""
    return dict(python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__,
                accelerate=accelerate.__version__, cpu_capability=torch.backends.cpu.get_cpu_capability(),
                avx512_bf16="avx512_bf16" in flags, threads=torch.get_num_threads())


def without_clock(entry):
    """Replaces timings with None, because they differ between runs."""
    timed = ("_runtime", "_per_second")
    return {key: None if key.endswith(timed) else value for key, value in entry.items()}


def run_case(name, config, weights, batches):
    spec = CASES[name]
    model = BertForSequenceClassification(config)
    model.load_state_dict(weights)
    recorder = RateRecorder()
    trainer_class = type("CaseTrainer", (RecordingTrainer,), dict(spec.trainer_attributes))
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(model=model, args=TrainingArguments(folder, **QUIET, **spec.arguments),
                                train_dataset=rows_of(batches, spec.rows),
                                eval_dataset=rows_of(batches, spec.eval_rows) if spec.eval_rows else None,
                                compute_metrics=accuracy if spec.eval_rows else None, callbacks=[recorder])
        trainer.remove_callback(PrinterCallback)
        output = trainer.train()
    report = dict(note=spec.note, arguments=spec.arguments, rows=spec.rows)
    if spec.eval_rows:
        report["eval_rows"] = spec.eval_rows
    if spec.trainer_attributes:
        report["trainer_attributes"] = spec.trainer_attributes
    report.update(steps=output.global_step, train_loss=output.training_loss, loss=trainer.losses,
                  learning_rate=recorder.rates, grad_norm=trainer.grad_norms,
                  final=f"{spec.final or name}.final.safetensors",
                  log_history=[without_clock(entry) for entry in trainer.state.log_history], versions=versions())
    return report, weights_of(model)


def write_json(path, value):
    """Writes one line per top-level key and per log entry, so that differences are easy to read."""
    lines = []
    for key, item in value.items():
        if key == "log_history":
            text = "[\n" + ",\n".join("  " + json.dumps(entry) for entry in item) + "\n ]"
        else:
            text = json.dumps(item)
        lines.append(f" {json.dumps(key)}: {text}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def save_final(name, final):
    shared = CASES[name].final
    if not shared:
        save_file(final, DATA / f"{name}.final.safetensors")
        return
    stored = load_file(DATA / f"{shared}.final.safetensors")
    if any(not torch.equal(stored[key], final[key]) for key in stored):
        raise SystemExit(f"{name}: expected the final weights of {shared}")


def difference(old, new):
    """Returns the largest relative difference between two lists of numbers, or infinity if their lengths differ."""
    if len(old) != len(new):
        return float("inf")
    return max((abs(a - b) / max(abs(a), 1e-12) for a, b in zip(old, new)), default=0.0)


def check(name, report, final):
    stored = json.loads((DATA / f"{name}.json").read_text())
    old = load_file(DATA / stored["final"])
    weight = max((old[key] - final[key]).abs().max().item() for key in old)
    print(f"{name:32s} loss {difference(stored['loss'], report['loss']):.1e}"
          f"  rate {difference(stored['learning_rate'], report['learning_rate']):.1e}"
          f"  norm {difference(stored['grad_norm'], report['grad_norm']):.1e}  weights {weight:.1e} (absolute)")


def write_formats(config, weights, batches):
    """Writes the small files of a run of the Hugging Face Trainer. They show its keys and their order."""
    model = BertForSequenceClassification(config)
    model.load_state_dict(weights)
    target = DATA / "formats"
    target.mkdir(parents=True, exist_ok=True)
    start = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)               # keeps the path of the best checkpoint relative
        try:
            settings = {**QUIET, "save_strategy": "steps"}
            trainer = Trainer(model=model, train_dataset=rows_of(batches, 160), eval_dataset=rows_of(batches, 33),
                              compute_metrics=accuracy, callbacks=[EarlyStoppingCallback(early_stopping_patience=3)],
                              args=TrainingArguments("run", **settings, num_train_epochs=1, learning_rate=1e-3, logging_steps=5,
                                                     eval_strategy="steps", eval_steps=10, save_steps=10,
                                                     load_best_model_at_end=True, save_total_limit=2))
            trainer.remove_callback(PrinterCallback)
            output = trainer.train()
            trainer.save_metrics("train", output.metrics)
            trainer.save_metrics("eval", trainer.evaluate())
            trainer.save_metrics("test", trainer.predict(rows_of(batches, 33)).metrics)
            trainer.save_state()
            shutil.copy("run/checkpoint-10/trainer_state.json", target / "checkpoint-10.trainer_state.json")
            for name in ("trainer_state", "train_results", "eval_results", "test_results", "all_results"):
                shutil.copy(f"run/{name}.json", target / f"{name}.json")
        finally:
            os.chdir(start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help="names from the table, or 'formats'")
    parser.add_argument("--check", action="store_true", help="compare with the stored files instead of writing them")
    parser.add_argument("--list", action="store_true", help="print the cases with their notes")
    options = parser.parse_args()
    if options.list:
        for name, spec in CASES.items():
            print(f"{name:32s} {spec.note}")
        return
    unknown = set(options.cases) - set(CASES) - {"formats"}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")

    config, weights, batches = make_base()
    if not options.check:
        (DATA / "base").mkdir(parents=True, exist_ok=True)
        config.to_json_file(DATA / "base/config.json")
        save_file(weights, DATA / "base/init.safetensors")
        save_file(batches, DATA / "base/batches.safetensors")
    for name in options.cases or CASES:
        if name == "formats":
            continue
        report, final = run_case(name, config, weights, batches)
        if options.check:
            check(name, report, final)
        else:
            write_json(DATA / f"{name}.json", report)
            save_final(name, final)
            print(f"{name:32s} {report['steps']} steps, loss {report['loss'][0]:.4f} to {report['loss'][-1]:.4f}")
    if not options.check and (not options.cases or "formats" in options.cases):
        write_formats(config, weights, batches)


if __name__ == "__main__":
    main()
