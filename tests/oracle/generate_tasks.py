#!/usr/bin/env python3
"""Runs the Hugging Face Trainer on each task of `hasten train`, and writes the inputs and the results.

    python generate_tasks.py
    python generate_tasks.py --tokenizers     # writes only data/tasks/tokenizers.json

Writes data/tasks/NAME/ for token_classification, masked_lm, regression, causal_lm and causal_lm_lines: the model folder (config.json,
model.safetensors, and vocab.txt or tokenizer.json), the data files, final.safetensors and expected.json (the log, the final loss, the versions). README.md describes them. data/tasks/tokenizers.json has the rows that Transformers makes with other tokenizers than BERT's.
"""
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
import torch
import transformers
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification, BertTokenizerFast,
                          DataCollatorForLanguageModeling, DataCollatorForTokenClassification, DataCollatorWithPadding, GPT2Config, GPT2LMHeadModel,
                          PreTrainedTokenizerFast, Trainer, TrainingArguments, default_data_collator, set_seed)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.trainer_callback import PrinterCallback

from generate import QUIET, versions, weights_of, without_clock, write_json

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DATA = pathlib.Path(__file__).resolve().parent / "data" / "tasks"
ARGUMENTS = dict(num_train_epochs=1, per_device_train_batch_size=8, per_device_eval_batch_size=8, learning_rate=1e-3, logging_steps=1,
                 eval_strategy="steps", eval_steps=10)
TRAIN_ROWS, EVAL_ROWS, LENGTH = 160, 27, 24  # 20 steps; the last evaluation batch has 3 rows

STEMS = ["an", "bel", "cor", "dan", "el", "fin", "gor", "hal", "il", "jor", "kel", "lin", "mar", "nor", "or", "pel"]
ENDINGS = ["a", "en", "ic", "o", "us"]
VOCABULARY = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "'", "\u00fc", "2", "7"] + STEMS + ["##" + ending for ending in ENDINGS])
TAGS = ["B-LOC", "B-PER", "I-PER", "O"]


def config_of(**changes):
    return BertConfig(vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                      max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.0, **changes)


def new_folder(name, model):
    """Writes the model folder with random weights and the vocabulary, and returns it with its tokenizer."""
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return folder, BertTokenizerFast(str(folder / "vocab.txt"))


def word(choose):
    """Returns a word of one, two or three tokens, an unknown word, or a word with punctuation or an upper-case letter."""
    kind = choose.random()
    if kind < 0.05:
        return "zzz"
    if kind < 0.1:
        return choose.choice(STEMS) + "'" + choose.choice(STEMS)
    text = choose.choice(STEMS) + "".join(choose.choice(ENDINGS) for _ in range(choose.choice([0, 0, 1, 1, 2])))
    return text.capitalize() if choose.random() < 0.3 else text


def words(choose, most):
    return [word(choose) for _ in range(choose.randint(2, most))] + ["."]


def tag_of(text):
    """Returns a tag that the first token determines in most cases, so that there is something to learn."""
    return TAGS[(sum(map(ord, text[:3].lower()))) % 4] if text != "." else "O"


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def train(model, folder, train_rows, eval_rows, collator, metrics):
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(model=model, args=TrainingArguments(out, **QUIET, **ARGUMENTS), train_dataset=train_rows, eval_dataset=eval_rows,
                          data_collator=collator, compute_metrics=metrics)
        trainer.remove_callback(PrinterCallback)
        output = trainer.train()
    save_file(weights_of(model), folder / "final.safetensors")
    write_json(folder / "expected.json", dict(arguments=ARGUMENTS, steps=output.global_step, train_loss=output.training_loss,
                                              log_history=[without_clock(entry) for entry in trainer.state.log_history], versions=versions()))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"{folder.name:24s} {output.global_step} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


def counted(prediction):
    """Returns the predicted classes and the labels at the positions whose labels count."""
    classes, labels = prediction.predictions.argmax(-1), prediction.label_ids
    return classes[labels != -100], labels[labels != -100]


def token_metrics(prediction):
    """Returns the accuracy, and the means of precision, recall and F1 over the tags that occur, like scikit-learn's macro average."""
    classes, labels = counted(prediction)
    scores = []
    for tag in sorted(set(classes) | set(labels)):
        right = ((classes == tag) & (labels == tag)).sum()
        scores.append([right / max((classes == tag).sum(), 1), right / max((labels == tag).sum(), 1),
                       2 * right / ((classes == tag).sum() + (labels == tag).sum())])
    precision, recall, f1 = numpy.mean(scores, axis=0)
    return dict(accuracy=float((classes == labels).mean()), precision=float(precision), recall=float(recall), f1=float(f1))


def aligned(tokenizer, rows):
    """Tokenizes and aligns as run_ner.py does: the label of a word belongs to its first token."""
    out = []
    for row in rows:
        encoded = tokenizer(row["tokens"], truncation=True, max_length=LENGTH, is_split_into_words=True, return_token_type_ids=True)
        labels, previous = [], None
        for number in encoded.word_ids():
            labels.append(-100 if number is None or number == previous else TAGS.index(row["tags"][number]))
            previous = number
        out.append(dict(input_ids=encoded["input_ids"], token_type_ids=encoded["token_type_ids"],
                        attention_mask=encoded["attention_mask"], labels=labels))
    return out


def token_classification():
    choose = random.Random(5)
    set_seed(1234)
    model = BertForTokenClassification(config_of(num_labels=len(TAGS)))
    folder, tokenizer = new_folder("token_classification", model)
    rows = []
    for _ in range(TRAIN_ROWS + EVAL_ROWS):
        tokens = words(choose, 14)
        if choose.random() < 0.1:
            tokens.insert(1, "\u200b")  # BERT's normalizer removes it, so this word has no token
        rows.append(dict(tokens=tokens, tags=[tag_of(text) for text in tokens]))
    write_lines(folder / "train.jsonl", rows[:TRAIN_ROWS])
    write_lines(folder / "eval.jsonl", rows[TRAIN_ROWS:])
    encoded = aligned(tokenizer, rows)
    (folder / "encoded.json").write_text(json.dumps([[row["input_ids"], row["labels"]] for row in encoded[:40]], separators=(",", ":")) + "\n")
    train(model, folder, encoded[:TRAIN_ROWS], encoded[TRAIN_ROWS:], DataCollatorForTokenClassification(tokenizer), token_metrics)


def masked_metrics(prediction):
    classes, labels = counted(prediction)
    logits = torch.from_numpy(prediction.predictions[prediction.label_ids != -100]).double()
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
    return dict(accuracy=float((classes == labels).mean()), perplexity=float(loss.exp()))


def masked_lm():
    """Writes batches that are already masked, because masks are random. docs/data.md compares the masks of hasten with those of transformers."""
    choose = random.Random(6)
    set_seed(1234)
    model = BertForMaskedLM(config_of())
    folder, tokenizer = new_folder("masked_lm", model)
    texts = [" ".join(words(choose, 12)) for _ in range(TRAIN_ROWS + EVAL_ROWS)]
    encoded = tokenizer(texts, truncation=True, max_length=LENGTH, padding="max_length", return_special_tokens_mask=True, return_tensors="pt")
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    batch = collator([{name: column[i] for name, column in encoded.items()} for i in range(len(texts))])
    batch = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids", "labels")}
    files = dict(train=slice(0, TRAIN_ROWS), eval=slice(TRAIN_ROWS, None))
    for name, part in files.items():
        save_file({key: column[part].to(torch.int32 if key != "labels" else torch.int64).contiguous() for key, column in batch.items()},
                  folder / f"{name}.safetensors")
    rows = [{key: column[i] for key, column in batch.items()} for i in range(len(texts))]
    train(model, folder, rows[:TRAIN_ROWS], rows[TRAIN_ROWS:], default_data_collator, masked_metrics)
    # Joins texts and cuts them into rows, as run_mlm.py does without line_by_line.
    (folder / "corpus.txt").write_text("\n\n".join(texts[:20]) + "\n")
    ids = [token for text in texts[:20] for token in tokenizer(text)["input_ids"]]
    grouped = [ids[at:at + LENGTH] for at in range(0, len(ids) - LENGTH + 1, LENGTH)]
    (folder / "grouped.json").write_text(json.dumps(grouped, separators=(",", ":")) + "\n")


def regression_metrics(prediction):
    errors = prediction.predictions.squeeze(-1).astype("float64") - prediction.label_ids.astype("float64")
    return dict(mse=float((errors**2).mean()), rmse=float((errors**2).mean()**0.5), mae=float(abs(errors).mean()))


def regression():
    choose = random.Random(7)
    set_seed(1234)
    model = BertForSequenceClassification(config_of(num_labels=1))
    folder, tokenizer = new_folder("regression", model)
    rows = []
    for _ in range(TRAIN_ROWS + EVAL_ROWS):
        text = words(choose, 14)
        rows.append(dict(text=" ".join(text), label=round(sum(len(part) for part in text) / 20, 2)))
    write_lines(folder / "train.jsonl", rows[:TRAIN_ROWS])
    write_lines(folder / "eval.jsonl", rows[TRAIN_ROWS:])
    encoded = [dict(tokenizer(row["text"], truncation=True, max_length=LENGTH), label=row["label"]) for row in rows]
    train(model, folder, encoded[:TRAIN_ROWS], encoded[TRAIN_ROWS:], DataCollatorWithPadding(tokenizer), regression_metrics)


def causal_metrics(prediction):
    """Returns the accuracy and the perplexity of the predicted next tokens."""
    logits, labels = torch.from_numpy(prediction.predictions[:, :-1]).double(), torch.from_numpy(prediction.label_ids[:, 1:])
    counts = labels != -100
    loss = torch.nn.functional.cross_entropy(logits[counts], labels[counts])
    return dict(accuracy=float((logits[counts].argmax(-1) == labels[counts]).double().mean()), perplexity=float(loss.exp()))


def byte_level_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=320, special_tokens=["<|endoftext|>", "<pad>"], show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<pad>")


def causal_lm(name, one_row_a_text):
    """Runs the task on texts that are joined with the end token and cut into rows, or on one row per text that ends with the end token."""
    choose = random.Random(8)
    set_seed(1234)
    texts = [" ".join(words(choose, 12)) for _ in range(1000)]
    tokenizer = byte_level_tokenizer(texts)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                       bos_token_id=0, eos_token_id=0))
    # Without this, the Trainer divides the loss by the number of all tokens, although the first token of a row is not predicted. For Llama it
    # divides by the number of predicted tokens anyway.
    model.loss_type = "ForCausalLM"
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        if file.name not in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            file.unlink()
    rows = {}
    for part, count in [("train", TRAIN_ROWS), ("eval", EVAL_ROWS)]:
        used, ids = [], []
        while len(used if one_row_a_text else ids) < count * (1 if one_row_a_text else LENGTH):
            text = texts.pop()
            used.append(text)
            row = tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
            ids = [*ids, row[:LENGTH]] if one_row_a_text else ids + row
        (folder / f"{part}.txt").write_text("\n".join(used) + "\n")
        rows[part] = [dict(input_ids=row) for row in (ids if one_row_a_text else [ids[at:at + LENGTH] for at in range(0, len(ids) - LENGTH + 1, LENGTH)])]
        assert len(rows[part]) == count
    train(model, folder, rows["train"], rows["eval"], DataCollatorForLanguageModeling(tokenizer, mlm=False), causal_metrics)


def special(id, text, **flags):
    return {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def pair_template(start, end):
    """Returns a template that puts special tokens around one or two texts. A special token is a text and an id."""
    piece = lambda token, type: {"SpecialToken": {"id": token[0], "type_id": type}}
    text = lambda name, type: {"Sequence": {"id": name, "type_id": type}}
    return {"type": "TemplateProcessing", "single": [piece(start, 0), text("A", 0), piece(end, 0)],
            "pair": [piece(start, 0), text("A", 0), piece(end, 0), text("B", 1), piece(end, 1)],
            "special_tokens": {token[0]: {"id": token[0], "ids": [token[1]], "tokens": [token[0]]} for token in (start, end)}}


def other_tokenizers():
    """Returns {name: (base, change, names of the special tokens)}: tokenizers like those of RoBERTa and XLM-RoBERTa, a WordPiece tokenizer that
    BertTokenizer does not read, and a tokenizer that adds no special tokens."""
    sizes = {base: json.loads((DATA.parent / "tokenizers" / f"{base}.json").read_text()) for base in ("gpt2", "unigram", "word_piece", "word_level")}
    sizes = {base: Tokenizer.from_str(json.dumps(each)).get_vocab_size() for base, each in sizes.items()}
    at = sizes["gpt2"]
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    roberta = {"pre_tokenizer": level, "added_tokens": [special(0, "<|endoftext|>"), *(special(at + i, text) for i, text in enumerate(["<s>", "</s>", "<unk>", "<pad>"])),
                                                        special(at + 4, "<mask>", lstrip=True), special(at + 5, "<extra>"), special(at + 6, "anen", special=False)],
               "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", at + 1], "cls": ["<s>", at], "trim_offsets": True, "add_prefix_space": True}}
    at = sizes["unigram"]
    xlm = {"post_processor": pair_template(("<s>", 0), ("</s>", 2)),
           "added_tokens": [special(i, text) for i, text in enumerate(["<s>", "<pad>", "</s>", "<unk>"])] + [special(at, "<mask>", lstrip=True)]}
    lower = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]}}
    plain = {"added_tokens": [special(0, "[UNK]"), special(1, "[MASK]")]}
    bert = dict(unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]")
    named = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>", cls_token="<s>", mask_token="<mask>")
    return dict(byte_level=("gpt2", roberta, named), unigram=("unigram", xlm, named), word_piece=("word_piece", lower, bert),
                word_level=("word_level", plain, dict(unk_token="[UNK]", mask_token="[MASK]", pad_token="the")))


def tokenizers():
    rows = [json.loads(line) for line in (DATA / "token_classification" / "train.jsonl").read_text().splitlines()[:40]]
    texts = (DATA / "masked_lm" / "corpus.txt").read_text().split("\n\n")
    texts = [text.strip() for text in texts] + ["don't  stop: the <mask> <extra>, [MASK]!", "caf\u00e9 \u65e5\u672c", "anen", "the package manager"]
    out = {}
    for name, (base, change, names) in other_tokenizers().items():
        whole = {**json.loads((DATA.parent / "tokenizers" / f"{base}.json").read_text()), **change}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(whole))
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), **names)
        encoded = [tokenizer(text) for text in texts]
        ids, words, next_word = [], [], 0
        for row in encoded:
            ids += row["input_ids"]
            words += [-1 if word is None else next_word + word for word in row.word_ids()]
            next_word += 1 + max([word for word in row.word_ids() if word is not None], default=-1)
        at = range(0, len(ids) - LENGTH + 1, LENGTH)
        grouped = [ids[i:i + LENGTH] for i in at]
        out[name] = dict(base=base, change=change, names=names, tagged=[[row["input_ids"], row["labels"]] for row in aligned(tokenizer, rows)], grouped=grouped,
                         special=[tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in grouped], words=[words[i:i + LENGTH] for i in at],
                         special_ids=sorted(set(tokenizer.all_special_ids)), size=len(tokenizer))
    lines = ",\n".join(json.dumps(name) + ":" + json.dumps(each, separators=(",", ":")) for name, each in out.items())
    (DATA / "tokenizers.json").write_text("{" + f'"texts":{json.dumps(texts)},"tokenizers":{{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    if sys.argv[1:] == ["--tokenizers"]:
        tokenizers()
        sys.exit()
    token_classification()
    masked_lm()
    regression()
    causal_lm("causal_lm", one_row_a_text=False)
    causal_lm("causal_lm_lines", one_row_a_text=True)
    tokenizers()
