#!/usr/bin/env python3
"""Writes data/loading/cases.json: batches of transformers' collators, and row orders of its samplers and of datasets.

    python generate_data.py        (needs datasets 5.2)

Everything here is deterministic: masks have probability 1, and row orders come from a generator with a fixed seed.
"""
import json
import pathlib
import types

import datasets
import torch
import transformers
from tokenizers import Tokenizer, models
from torch.utils.data import WeightedRandomSampler
from transformers import PreTrainedTokenizerFast
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.trainer_pt_utils import get_length_grouped_indices

FILE = pathlib.Path(__file__).resolve().parent / "data" / "loading" / "cases.json"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(5, 30)]
ROWS = [[2, 10, 11, 12, 3], [2, 13, 3], [2, 14, 15, 16, 17, 18, 3]]
TYPES = [[0, 0, 0, 1, 1], [0, 0, 1], [0, 0, 0, 0, 1, 1, 1]]


def tokenizer():
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")


def listed(batch):
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def case(collator, rows, **options):
    copies = [{name: list(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows]
    return dict(options=options, rows=rows, batch=listed(collator(copies)))


def collators():
    tok = tokenizer()
    decoder = types.SimpleNamespace(prepare_decoder_input_ids_from_labels=lambda labels: shift_tokens_right(labels, 0, 2))
    rows = [dict(input_ids=ids, token_type_ids=kinds) for ids, kinds in zip(ROWS, TYPES)]
    labelled = [dict(row, label=i) for i, row in enumerate(rows)]
    token_labels = [dict(input_ids=ids, labels=[i % 3 for i in range(len(ids))]) for ids in ROWS]
    targets = [dict(input_ids=ids, labels=ids[1:-1] + [3]) for ids in ROWS]
    choices = [dict(input_ids=[[2, 5, 3], [2, 6, 3]], label=1), dict(input_ids=[[2, 7, 8, 9, 3], [2, 8, 8, 8, 3]], label=0)]
    special = [dict(input_ids=ids, special_tokens_mask=[1] + [0] * (len(ids) - 2) + [1]) for ids in ROWS]
    words = [dict(row, offset_mapping=[[0, 0]] + [[i, i + 1] for i in range(len(row["input_ids"]) - 2)] + [[0, 0]]) for row in special[:1] * 2]
    same = transformers.DataCollatorForLanguageModeling
    return dict(
        padding=[case(transformers.DataCollatorWithPadding(tok, **o), labelled, **o)
                 for o in ({}, dict(pad_to_multiple_of=4), dict(padding="max_length", max_length=10))],
        token_classification=[case(transformers.DataCollatorForTokenClassification(tok, **o), token_labels, **o)
                              for o in ({}, dict(pad_to_multiple_of=8), dict(label_pad_token_id=-1))],
        seq2seq=[case(transformers.DataCollatorForSeq2Seq(tok, **o), targets, **o) for o in ({}, dict(pad_to_multiple_of=4))]
        + [dict(case(transformers.DataCollatorForSeq2Seq(tok, model=decoder), targets), options=dict(decoder_start_token_id=2))],
        multiple_choice=[case(transformers.DataCollatorForMultipleChoice(tok, **o), choices, **o) for o in ({}, dict(pad_to_multiple_of=8))],
        flattening=[case(transformers.DataCollatorWithFlattening(**o), source, **o)
                    for source in ([dict(input_ids=ids) for ids in ROWS], token_labels)
                    for o in ({}, dict(return_position_ids=False, separator_id=-7),
                              dict(return_flash_attn_kwargs=True, return_seq_idx=True, position_ids_start=2))],
        language_modeling=[case(same(tok, **o), source, **o) for source, o in (
            (special, dict(mlm=False)), (special, dict(mlm=False, pad_to_multiple_of=4)),
            (special, dict(mlm_probability=1.0, mask_replace_prob=1.0, random_replace_prob=0.0)),
            ([dict(input_ids=ids) for ids in ROWS], dict(mlm_probability=1.0, mask_replace_prob=1.0, random_replace_prob=0.0)),
            (special, dict(mlm_probability=1.0, mask_replace_prob=0.0, random_replace_prob=0.0)),
            (special, dict(mlm_probability=0.0)))],
        whole_words=[case(same(tok, whole_word_mask=True, mlm_probability=1.0, mask_replace_prob=1.0, random_replace_prob=0.0), words, mlm_probability=1.0)])


def generator(seed):
    return torch.Generator().manual_seed(seed)


def orders():
    lengths = [(i * 7919) % 101 + 1 for i in range(1003)]
    grouped = [dict(rows=n, batch_size=size, seed=seed, order=get_length_grouped_indices(lengths[:n], size, generator=generator(seed)))
               for n, size, seed in ((1003, 4, 42), (1003, 8, 43), (100, 8, 42), (10, 8, 7), (1, 2, 0))]
    weights = [float(i % 5) for i in range(1, 21)]
    weighted = [dict(count=count, replacement=again, seed=seed,
                     order=list(WeightedRandomSampler(weights, count, again, generator(seed))))
                for count, again, seed in ((20, True, 42), (50, True, 1), (16, False, 42), (5, False, 3))]
    return dict(lengths=lengths, length_grouped=grouped, weights=weights, weighted=weighted)


def interleaved():
    sizes = [3, 4, 5]
    sources = [datasets.Dataset.from_dict(dict(value=list(range(100 * i, 100 * i + size)))) for i, size in enumerate(sizes)]
    streams = [source.to_iterable_dataset() for source in sources]
    strategies = ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement")
    return dict(sizes=sizes,
                rows={s: datasets.interleave_datasets(sources, stopping_strategy=s)["value"][:] for s in strategies},
                streams={s: [row["value"] for row in datasets.interleave_datasets(streams, stopping_strategy=s)] for s in strategies})


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(dict(
        versions=dict(torch=torch.__version__, transformers=transformers.__version__, datasets=datasets.__version__),
        collators=collators(), orders=orders(), interleaved=interleaved())) + "\n")
