"""Measures how fast Hugging Face's tokenizers encodes the lines of a text, as ../tokens.cpp does. Also trains the tokenizers for both.

    python tokens.py --train FOLDER TEXT     # writes FOLDER/bytes.json, llama.json and unigram.json
    python tokens.py FOLDER TEXT [PASSES]
"""
import json
import os
import pathlib
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def train(folder, lines):
    folder.mkdir(parents=True, exist_ok=True)
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.post_processor = processors.ByteLevel(trim_offsets=True)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    byte_level.save(str(folder / "bytes.json"))

    llama = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    llama.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    llama.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16000, special_tokens=specials, show_progress=False))
    llama.pre_tokenizer = None
    llama.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    llama.save(str(folder / "llama.json"))

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=16000, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    unigram.save(str(folder / "unigram.json"))


def rates(path, lines, megabytes, passes, encode):
    tokenizer = Tokenizer.from_file(str(path))
    found, tokens = [], 0
    for _ in range(passes + 1):
        tokens = 0
        start = time.process_time()
        tokens = encode(tokenizer, lines)
        found.append(megabytes / (time.process_time() - start))
    return found[0], statistics.median(found[1:]), tokens


def with_offsets(tokenizer, lines):
    return sum(len(tokenizer.encode(line)) for line in lines)


def only_ids(tokenizer, lines):
    return sum(len(row) for row in tokenizer.encode_batch_fast(lines))


def main():
    words = sys.argv[1:]
    is_training = words[0] == "--train"
    folder, text = pathlib.Path(words[is_training]), pathlib.Path(words[is_training + 1])
    lines = text.read_text().split("\n")[:-1]
    if is_training:
        return train(folder, lines)
    passes = int(words[2]) if len(words) > 2 else 9
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    for path in sorted(folder.iterdir()):
        first, later, tokens = rates(path, lines, megabytes, passes, with_offsets)
        first_ids, later_ids, tokens = rates(path, lines, megabytes, passes, only_ids)
        print(json.dumps(dict(kind=path.stem, tokens=tokens, first=first, later=later, first_ids=first_ids, later_ids=later_ids)))


if __name__ == "__main__":
    main()
