#!/usr/bin/env python3
"""Writes the results of transformers' generate() for the tiny decoders of generate_decoders.py.

    python generate_generation.py

data/generation/MODEL.json has `prompts`, which are batches of ids with padding at the left and their masks, and `cases`. Each case has its
options, the sequences, and the scores of a beam search. For some samplings, data/generation/MODEL.safetensors has the logits of each step
and the scores that the processors computed from them (NAME.logits and NAME.scores, [steps, rows, vocabulary]).
"""
import json
import os
import pathlib

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GenerationConfig

from generate import versions
from generate_decoders import PADDING, VOCABULARY

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()

DATA = pathlib.Path(__file__).resolve().parent / "data"
SEED = 31
# The names of the models.
MODELS = ["gpt2", "llama3"]


def prompts_of(generator):
    """Returns batches of prompts. Some batches have prompts of one length, others of several lengths with padding at the left."""
    batches = []
    for lengths in ([5, 5], [8, 3, 1, 5], [1], [6, 2, 9]):
        rows, longest = [], max(lengths)
        for length in lengths:
            ids = torch.randint(5, VOCABULARY, (length,), generator=generator).tolist()
            rows.append(dict(ids=[PADDING] * (longest - length) + ids, mask=[0] * (longest - length) + [1] * length))
        batches.append(dict(ids=[row["ids"] for row in rows], mask=[row["mask"] for row in rows]))
    return batches


def cases(ends):
    one, several = ends[:1], ends
    yield dict(max_new_tokens=20)
    yield dict(max_new_tokens=20, eos_token_id=one)
    yield dict(max_new_tokens=20, eos_token_id=several, pad_token_id=PADDING)
    yield dict(max_new_tokens=20, repetition_penalty=1.3)
    yield dict(max_new_tokens=20, repetition_penalty=0.8, eos_token_id=several)
    yield dict(max_new_tokens=20, no_repeat_ngram_size=2)
    yield dict(max_new_tokens=20, no_repeat_ngram_size=3, repetition_penalty=1.1)
    yield dict(max_new_tokens=20, min_new_tokens=12, eos_token_id=several, pad_token_id=PADDING)
    yield dict(max_length=16, min_length=13, eos_token_id=several)
    yield dict(max_new_tokens=20, min_length=30, min_new_tokens=2, eos_token_id=several)  # min_new_tokens takes precedence over min_length
    yield dict(eos_token_id=several)  # the default length
    yield dict(max_new_tokens=20, no_repeat_ngram_size=1)
    for early_stopping in (False, True, "never"):
        for length_penalty in (0.5, 1.0, 2.0):
            yield dict(max_new_tokens=16, num_beams=4, early_stopping=early_stopping, length_penalty=length_penalty, eos_token_id=several,
                       pad_token_id=PADDING)
        yield dict(max_new_tokens=12, num_beams=3, early_stopping=early_stopping, length_penalty=-0.5, eos_token_id=one,
                   num_return_sequences=2)
    yield dict(max_new_tokens=12, num_beams=5)
    yield dict(max_new_tokens=14, num_beams=2, eos_token_id=one)
    yield dict(max_new_tokens=14, num_beams=6, num_return_sequences=6, eos_token_id=several)
    yield dict(max_new_tokens=14, num_beams=3, repetition_penalty=1.4, eos_token_id=several)
    yield dict(max_new_tokens=14, num_beams=3, no_repeat_ngram_size=2, eos_token_id=several, min_new_tokens=6)
    yield dict(max_new_tokens=1, num_beams=3, num_return_sequences=3)
    yield dict(max_new_tokens=10, num_beams=4, length_penalty=0.0, early_stopping="never", eos_token_id=one)
    yield dict(max_new_tokens=14, do_sample=True)
    yield dict(max_new_tokens=14, do_sample=True, top_k=0, temperature=0.7, eos_token_id=several, pad_token_id=PADDING)
    yield dict(max_new_tokens=14, do_sample=True, top_k=8, num_return_sequences=2)
    yield dict(max_new_tokens=14, do_sample=True, top_k=0, top_p=0.8, eos_token_id=one)
    yield dict(max_new_tokens=6, do_sample=True, top_k=0, top_p=0.0)
    yield dict(max_new_tokens=6, do_sample=True, top_k=1000, min_p=1.0)
    yield dict(max_new_tokens=14, do_sample=True, top_k=20, top_p=0.9, min_p=0.05, temperature=1.5, repetition_penalty=1.2)


def ends_of(model, batches):
    """Returns three tokens that occur after some steps of a greedy search. As end tokens they end texts at different lengths."""
    counts = torch.zeros(VOCABULARY)
    for batch in batches:
        ids = torch.tensor(batch["ids"])
        out = model.generate(ids, attention_mask=torch.tensor(batch["mask"]), generation_config=GenerationConfig(max_new_tokens=12))
        for row in out[:, ids.shape[1] + 3:]:
            for token in set(row.tolist()):
                counts[token] += 1
    counts[PADDING] = 0
    return counts.argsort(descending=True)[1:4].tolist()


def run(model, batch, options, with_scores):
    torch.manual_seed(SEED)
    ids = torch.tensor(batch["ids"])
    return model.generate(ids, attention_mask=torch.tensor(batch["mask"]),
                          generation_config=GenerationConfig(**options, return_dict_in_generate=True, output_scores=True, output_logits=with_scores))


def main():
    (DATA / "generation").mkdir(exist_ok=True)
    for name in MODELS:
        generator = torch.Generator().manual_seed(5)
        model = AutoModelForCausalLM.from_pretrained(DATA / "decoders" / name).eval()
        model.generation_config = GenerationConfig()
        batches = prompts_of(generator)
        written, tensors = [], {}
        for number, options in enumerate(cases(ends_of(model, batches))):
            for index, batch in enumerate(batches):
                samples = options.get("do_sample", False)
                out = run(model, batch, options, samples)
                entry = dict(options=options, prompts=index, sequences=out.sequences.tolist())
                if options.get("num_beams", 1) > 1:
                    entry["scores"] = out.sequences_scores.tolist()
                if samples and index == 1:
                    entry["tensors"] = f"case{number}"
                    tensors[f"case{number}.logits"] = torch.stack(out.logits)
                    tensors[f"case{number}.scores"] = torch.stack(out.scores)
                written.append(entry)
        head = json.dumps(dict(seed=SEED, prompts=batches, versions=versions()), separators=(",", ":"))[1:-1]
        lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in written)
        (DATA / "generation" / f"{name}.json").write_text("{" + head + ',\n"cases":[\n' + lines + "\n]}\n")
        save_file({key: value.contiguous() for key, value in tensors.items()}, DATA / "generation" / f"{name}.safetensors")
        ended = sum(len(set(map(len, [[t for t in row if t != PADDING] for row in entry["sequences"]]))) > 1 for entry in written)
        print(f"{name}: {len(written)} runs, {ended} with texts of several lengths")


if __name__ == "__main__":
    main()
