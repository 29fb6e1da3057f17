#!/usr/bin/env python3
"""Writes tiny GPT-2 and Llama models, and the results of transformers for them: outputs, gradients, training runs.

    python generate_decoders.py                  # every model
    python generate_decoders.py gpt2 llama_mqa   # some models

Each model gets a folder data/decoders/NAME: config.json and the weights as `save_pretrained` writes them, and expected.safetensors
with the inputs, outputs and gradients of one batch. Models with `train` in the table also get rows.safetensors (the rows of a training
run), expected.json (its log) and final.safetensors. README.md describes the formats.
"""
import argparse
import os
import pathlib
import shutil
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM,
                          LlamaForSequenceClassification, LlamaModel, Trainer, TrainingArguments, default_data_collator, set_seed)
from transformers.trainer_callback import PrinterCallback

from generate import QUIET, versions, weights_of, without_clock, write_json

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DATA = pathlib.Path(__file__).resolve().parent / "data" / "decoders"
VOCABULARY, ROWS, LENGTH, PADDING = 61, 3, 10, 3
ARGUMENTS = dict(num_train_epochs=1, per_device_train_batch_size=8, learning_rate=3e-3, weight_decay=0.1, logging_steps=1)
TRAIN_ROWS, TRAIN_LENGTH = 160, 16  # 20 steps

LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)

# `config`: differences from the tiny config of the family. `left`: padding at the left. `positions`: the inputs include position_ids. `train`: the
# arguments of an additional training run.
MODELS = {
    "gpt2": dict(kind=GPT2LMHeadModel, train={}),
    "gpt2_base": dict(kind=GPT2Model, positions=True),
    "gpt2_untied": dict(kind=GPT2LMHeadModel, left=True, config=dict(tie_word_embeddings=False, n_inner=40, activation_function="relu",
                                                                    scale_attn_by_inverse_layer_idx=True)),
    "gpt2_unscaled": dict(kind=GPT2LMHeadModel, positions=True, config=dict(scale_attn_weights=False, activation_function="gelu")),
    "gpt2_classifier": dict(kind=GPT2ForSequenceClassification, config=dict(num_labels=3, pad_token_id=PADDING)),
    "llama": dict(kind=LlamaForCausalLM),
    "llama_base": dict(kind=LlamaModel, config=dict(num_key_value_heads=2)),
    "llama3": dict(kind=LlamaForCausalLM, left=True, train=dict(gradient_accumulation_steps=2, per_device_train_batch_size=4),
                   config=dict(num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=LLAMA3, head_dim=8)),
    "llama_biases": dict(kind=LlamaForCausalLM, positions=True,
                         config=dict(attention_bias=True, mlp_bias=True, hidden_act="gelu", pad_token_id=PADDING,
                                     rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=4.0))),
    "llama_mqa": dict(kind=LlamaForCausalLM, config=dict(num_key_value_heads=1, rms_norm_eps=1e-3)),
    "llama_classifier": dict(kind=LlamaForSequenceClassification, left=True, config=dict(num_labels=1, pad_token_id=PADDING)),
}


def tiny_config(kind, **changes):
    common = dict(vocab_size=VOCABULARY, initializer_range=0.2, bos_token_id=1, eos_token_id=2)
    if "GPT2" in kind.__name__:
        return GPT2Config(**{**common, **dict(n_positions=32, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
                             **changes})
    return LlamaConfig(**{**common, **dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                           max_position_embeddings=64), **changes})


def stir(model, generator):
    """Changes every parameter. The zero biases and unit norms of a new model would hide errors."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def inputs_for(generator, left, positions):
    """Returns rows of full, half and quarter length, with padding at the right or the left."""
    lengths = torch.tensor([LENGTH, LENGTH // 2, LENGTH // 4])
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    if left:
        mask = mask.flip(1)
    ids = torch.randint(5, VOCABULARY, (ROWS, LENGTH), generator=generator)
    inputs = dict(input_ids=torch.where(mask.bool(), ids, PADDING), attention_mask=mask.contiguous())
    if positions:
        inputs["position_ids"] = (torch.arange(LENGTH).flip(0) + 3).expand(ROWS, LENGTH).contiguous()
    return inputs


def labels_for(kind, config, inputs, generator):
    if "Classification" in kind.__name__:
        return torch.randn(ROWS, generator=generator) if config.num_labels == 1 else torch.randint(0, config.num_labels, (ROWS,), generator=generator)
    labels, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    # In a row that is padded at the left, padding would predict the first token. Padding attends to nothing, so this token has no label.
    predicted_by_token = torch.nn.functional.pad(mask, (1, 0))[:, :-1] & mask
    predicted_by_token[0, 0] = True
    chosen = torch.rand(labels.shape, generator=generator) < 0.8
    return torch.where(predicted_by_token & chosen, labels, -100)


def write_model(name, kind, config=None, left=False, positions=False, train=None):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    set_seed(11)
    model = kind(tiny_config(kind, **(config or {}))).train()      # gradients need training mode; there is no dropout
    stir(model, generator)
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    inputs = inputs_for(generator, left, positions)
    expected = {f"input.{key}": value for key, value in inputs.items()}
    if kind in (GPT2Model, LlamaModel):
        hidden = model(**inputs).last_hidden_state
        # This model has no loss. The gradients come from a sum with random weights, which are also in the file.
        weight = torch.randn(hidden.shape, generator=generator) * inputs["attention_mask"][..., None]
        expected["weight.last_hidden_state"] = weight
        loss = (hidden * weight).sum()
    else:
        labels = labels_for(kind, model.config, inputs, generator)
        outputs = model(**inputs, labels=labels, output_hidden_states=True)
        loss, hidden = outputs.loss, outputs.hidden_states[-1]
        expected.update({"input.labels": labels, "output.logits": outputs.logits})
    expected["output.last_hidden_state"] = hidden
    loss.backward()
    expected["output.loss"] = loss
    expected.update({f"grad.{key}": parameter.grad for key, parameter in model.named_parameters()})
    save_file({key: value.detach().clone().contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    if train is not None:
        train_model(folder, kind, {**ARGUMENTS, **train}, generator)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name:24s} loss {loss.item():.6f}  {size // 1024} KiB")


def train_model(folder, kind, arguments, generator):
    lengths = torch.randint(3, TRAIN_LENGTH + 1, (TRAIN_ROWS, 1), generator=generator)
    mask = (torch.arange(TRAIN_LENGTH) < lengths).long()
    # Each token depends on the token before it, so that there is something to learn.
    ids = torch.randint(5, VOCABULARY, (TRAIN_ROWS, TRAIN_LENGTH), generator=generator)
    ids = torch.where(torch.rand(ids.shape, generator=generator) < 0.5, ids, ids.roll(1, 1) % 40 + 7)
    rows = dict(input_ids=torch.where(mask.bool(), ids, PADDING), attention_mask=mask, labels=torch.where(mask.bool(), ids, -100))
    save_file({key: value.to(torch.int32).contiguous() for key, value in rows.items()}, folder / "rows.safetensors")
    model = kind.from_pretrained(folder)
    # The Trainer divides by the number of predicted labels only if it knows the loss. It does not know the loss of GPT2LMHeadModel, and would also
    # count the first label of each row.
    model.loss_type = "ForCausalLM"
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(model=model, args=TrainingArguments(out, **QUIET, **arguments),
                          train_dataset=[{key: column[i] for key, column in rows.items()} for i in range(TRAIN_ROWS)],
                          data_collator=default_data_collator)
        trainer.remove_callback(PrinterCallback)
        output = trainer.train()
    save_file(weights_of(model), folder / "final.safetensors")
    write_json(folder / "expected.json", dict(arguments=arguments, steps=output.global_step, train_loss=output.training_loss,
                                              log_history=[without_clock(entry) for entry in trainer.state.log_history], versions=versions()))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"  trained {output.global_step} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models from the table")
    names = parser.parse_args().names or [*MODELS]
    unknown = set(names) - set(MODELS)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    for name in names:
        write_model(name, **MODELS[name])


if __name__ == "__main__":
    main()
