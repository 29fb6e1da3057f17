#!/usr/bin/env python3
"""Trains small tokenizers of every kind and writes the results of Hugging Face's tokenizers for many texts.

    python generate_tokenizers.py              # writes data/tokenizers/
    python generate_tokenizers.py --words      # writes only data/tokenizers/words.json
    python generate_tokenizers.py --compare PROGRAM [NAME ...]   # shows the first differences from a program

data/tokenizers/NAME.json        the base tokenizers, from which the variants are made
data/tokenizers/cases.json       the variants, the pieces of difficult texts, and checksums of the results for each block of texts
data/tokenizers/words.json       checksums of the variants' results for lists of words, for some texts, and for truncated pairs

A PROGRAM of --compare gets the path of a tokenizer.json as its argument, and texts on its standard input, each after its length in bytes (uint32).
For each text it prints a line of JSON: [ids, offsets, decoded text].

See README.md for the formats.
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import unicodedata
import zlib

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "data" / "tokenizers"
TEXTS = HERE.parent.parent / "examples" / "data" / "debian_sections" / "train.tsv"
BLOCK = 1000
LISTS, CUT, WORD_SEED = 200, 7, 1000000
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
WORDS = r"\b\w+\b|\B-\B|\d{2,}|[[:digit:]]|^x|y$|\h{4}|(?<=\d)\.(?=\d)"

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2009", "\u3000", "\u0085", "\u2028", "\u200b", "\u180e", "\v", "\x1c", "\x00"]
SNIPPETS = [
    "don't", "we'LL", "I'M", "it'\u017f", "'S", "they've", "\u2019s", "Hello, world!", "http://a.b/c?d=e&f", "foo@bar.org", "x = y[3] * 2;", "3.14159", "1,234,567", "\u0663\u0664",
    "\u00bd\u00b2\u2160", "caf\u00e9", "cafe\u0301", "\u1e9b\u0323", "\u212b", "\ufb01n", "\u01c4", "\u0130stanbul", "STRASSE\u00df", "\u1e9e", "\u03a3\u03c2", "\ud55c\uae00", "\u1112\u1161\u11ab", "\u1100\u1161\u11a8\u0301",
    "\u3131\u314f", "\u4f60\u597d", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8", "\uff76\uff9e\uff71", "\u30fc", "\u0e2a\u0e27\u0e31", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u05e9\u05b8\u05c1", "\u0645\u064e", "\u0f73\u0f71", "\u0344\u0323",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7\U0001f1e9", "\u2764\ufe0f", "\u00a9\u200d\u00a9", "1\ufe0f\u20e3", "\U0001f44b\U0001f3fd", "\u2581", "\u2581\u2581a", "a\u2581b", "<0x41>", "<0xE2>", "<0x0A>", "<unk>", "[UNK]", "##ing",
    "<s>", "</s>", "<|endoftext|>", "<mask>", " <mask> ", "<one>", "xone", "Two", "two", " THREE ", "tWO", "[CLS]", "[SEP]", "[MASK]", "</w>", "\u0120a", "\u010a", "\u0100", "$^\\[](){}|*+?.", "a-b_c", "--", "...", "\u2026", "\u201cq\u201d",
    "\ufeff", "\ufffd", "\ufffe", "\ue000", "\U000e0041", "\U0010ffff", "e\u0301\u0327\u0323", "\u0301", "\u0600x", "\u0d4ey", "\r\r\n", "A\u030a", "\u00c5\u0323", "\u0958", "\u2f800"[:1] + "0", "\u3392", "\u337f", "\u32c0", "\u00aa\u00ba", "\u2460",
    "\u03d2\u0301", "\u1f80", "\u0149", "\u01f0", "\u0587", "\ufdfa", "K\u212a", "\u03f4", "0x1F", "x\u0000y", "\u0ec8\u0ebb", "\u0e33",
]


class Random:
    """The generator splitmix64, which the C++ test also has."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return ((z ^ (z >> 31)) >> 32) % limit


def code_point(random, low, high):
    value = low + random.below(high - low)
    return chr(0xFFFD if 0xD800 <= value < 0xE000 else value)


def hostile(random):
    out = ""
    for _ in range(random.below(10) + 1):
        kind = random.below(12)
        if kind == 0:
            out += "".join(code_point(random, 0x20, 0x7F) for _ in range(random.below(6) + 1))
        elif kind == 1:
            out += SPACES[random.below(len(SPACES))]
        elif kind == 2:
            out += code_point(random, 0x80, 0x800)
        elif kind == 3:
            out += code_point(random, 0x800, 0x10000)
        elif kind == 4:
            out += code_point(random, 0x10000, 0x110000)
        elif kind == 5:
            out += "".join(code_point(random, 0x300, 0x370) for _ in range(random.below(3) + 1))
        elif kind == 6:
            out += "".join(code_point(random, 0x30, 0x3A) for _ in range(random.below(6) + 1))
        elif kind == 7:
            out += code_point(random, 0x21, 0x180) * (random.below(40) + 1)
        elif kind == 8:
            out += "".join(code_point(random, 0x3040, 0x3100) for _ in range(random.below(4) + 1)) + code_point(random, 0x4E00, 0xA000)
        elif kind == 9:
            out += code_point(random, 0x0, 0x20)
        else:
            out += SNIPPETS[random.below(len(SNIPPETS))]
    return out


def ordinary(random, words):
    count = random.below(40) + 1
    begin = random.below(len(words) - count)
    return " ".join(words[begin:begin + count])


def corpus():
    return [line.split("\t")[0] for line in TEXTS.read_text().split("\n")[1:] if line]


def words_of_corpus():
    return [word for word in re.split(r"[ \t\n]+", TEXTS.read_text()) if word]


def texts_of(kind, block, words):
    """Returns the texts of one block. Each block has its own seed, so that a test can run only some blocks."""
    random = Random(block * 2 + (kind == "hostile"))
    return [hostile(random) if kind == "hostile" else ordinary(random, words) for _ in range(BLOCK)]


def result_of(tokenizer, text):
    encoding = tokenizer.encode(text)
    ids = encoding.ids
    flat = [value for pair in encoding.offsets for value in pair]
    return struct.pack(f"<I{len(ids)}I{len(flat)}I", len(ids), *ids, *flat) + tokenizer.decode(ids, skip_special_tokens=False).encode()


def checksum(tokenizer, texts):
    value = 0
    for text in texts:
        value = zlib.crc32(result_of(tokenizer, text), value)
    return value


def charsmap(pairs):
    """Returns a SentencePiece map: a double array of the keys in Darts' layout, and the replacements. It searches for free places one by one."""
    replacements, offsets = b"", {}
    for new in pairs.values():
        if new not in offsets:
            offsets[new] = len(replacements)
            replacements += new.encode() + b"\0"
    tree = {}
    for key, new in pairs.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = offsets[new]
    units, used, bases = {0: 0}, {0}, set()

    def place(node, at):
        labels = [label for label in node if label is not None]
        base = next(base for base in range(1, 1 << 20) if base not in bases and all(base ^ (label or 0) not in used for label in [*labels, *([None] if None in node else [])])
                    and base ^ at < 1 << 21)
        bases.add(base)
        used.update(base ^ label for label in labels)
        if None in node:
            used.add(base)
            units[base] = node[None] | 1 << 31
        units[at] = (units.get(at, 0) | (base ^ at) << 10 | (1 << 8 if None in node else 0))
        for label in labels:
            units[base ^ label] = label
        for label in labels:
            place(node[label], base ^ label)

    place(tree, 0)
    blob = struct.pack(f"<{max(units) + 257}I", *(units.get(i, 0) for i in range(max(units) + 257)))
    return struct.pack("<I", len(blob)) + blob + replacements


def small_charsmap():
    pairs = {"\ufb01": "fi", "\uff76\uff9e": "\u30ac", "e\u0301": "\u00e9", "\r\n": "\n", "\t": " ", "\n": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\ufeff": "", "\u2581": " ",
             "\u2460": "1", "\u0301": "", "\u00bd": "1\u20442", "\ufdfa": "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647", "A\u030a": "\u00c5", "K": "k", "\u1112\u1161": "\ud558", "\x01": "", "\u00a9": "(c)"}
    for value in range(0xFF01, 0xFF5F):
        pairs[chr(value)] = unicodedata.normalize("NFKC", chr(value))
    for value in range(0xC0, 0x180):
        pairs[unicodedata.normalize("NFD", chr(value))] = chr(value)
    return charsmap(pairs)


def trained(model, trainer, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(corpus()[:3000], trainer)
    return tokenizer


def make_bases():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2 = trained(models.BPE(), trainers.BpeTrainer(vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False),
                   pre_tokenizer=byte_level, post_processor=processors.ByteLevel(trim_offsets=True), decoder=decoders.ByteLevel())
    metaspace = pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")
    llama = trained(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
                    trainers.BpeTrainer(vocab_size=1900, special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))], limit_alphabet=90, show_progress=False),
                    pre_tokenizer=metaspace)
    llama = changed(llama, pre_tokenizer=None, normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                    decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                    post_processor=template("<s>", 1), added_tokens=[token(i, text) for i, text in enumerate(["<unk>", "<s>", "</s>"])])
    unigram = trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=1800, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False),
                      normalizer=normalizers.Sequence([normalizers.Precompiled(small_charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]),
                      pre_tokenizer=metaspace, decoder=decoders.Metaspace(), post_processor=processors.TemplateProcessing(
                          single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]))
    word_piece = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False),
                         normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(), decoder=decoders.WordPiece(),
                         post_processor=processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))
    word_level = trained(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=800, special_tokens=["[UNK]", "[MASK]"], show_progress=False),
                         normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]), pre_tokenizer=pre_tokenizers.Whitespace())
    clip = trained(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"), trainers.BpeTrainer(
                       vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|startoftext|>", "<|endoftext|>"], end_of_word_suffix="</w>", show_progress=False),
                   normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                   pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                   post_processor=processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), trim_offsets=False, add_prefix_space=False), decoder=decoders.ByteLevel())
    prefixed = trained(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"), trainers.BpeTrainer(
                           vocab_size=900, special_tokens=["[UNK]"], continuing_subword_prefix="##", limit_alphabet=70, show_progress=False),
                       pre_tokenizer=pre_tokenizers.Whitespace(), decoder=decoders.WordPiece())
    return dict(gpt2=gpt2, llama=llama, unigram=unigram, word_piece=word_piece, word_level=word_level, clip=clip, prefixed=prefixed)


def token(id, text, special=True, **flags):
    return {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special, **flags}


def template(name, id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": name, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}}}


def merged(base, change):
    """Returns a copy of `base` with the keys of `change`. Inside "model" it replaces single keys."""
    out = {**base, **change}
    if "model" in change:
        out["model"] = {**base["model"], **change["model"]}
    return out


def changed(tokenizer, **parts):
    return Tokenizer.from_str(json.dumps(merged(json.loads(tokenizer.to_str()), parts)))


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def pre(*parts):
    return {"pre_tokenizer": sequence("pretokenizers", *parts)}


def norm(*parts):
    return {"normalizer": sequence("normalizers", *parts)}


def replace(pattern, content, kind="Regex"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def variants(sizes):
    """Returns {name: (base, change)}. `sizes` has the number of tokens of each base."""
    flags = lambda at: {"added_tokens": [
        token(at, "<one>", special=False), token(at + 1, "two", special=False, normalized=True), token(at + 2, " three", special=False, normalized=True, single_word=True),
        token(at + 3, "<mask>", lstrip=True), token(at + 4, "Two", rstrip=True, special=False), token(at + 5, "one", single_word=True), token(at + 6, "the", lstrip=True, rstrip=True, normalized=True)]}
    out = {name: (name, {}) for name in sizes}
    for name, pattern in dict(llama_3=LLAMA_3, o200k=O200K, cl100k=CL100K, kimi=KIMI, deepseek=DEEPSEEK, bloom=BLOOM, words=WORDS, empty_pattern="x*").items():
        out[name] = ("gpt2", pre(split(pattern), BYTES))
    out["llama_3"][1].update(model={"ignore_merges": True}, post_processor=sequence("processors", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template("<|endoftext|>", 0)))
    out["gpt2_prefix"] = ("gpt2", {"pre_tokenizer": {**BYTES, "add_prefix_space": True, "use_regex": True},
                                   "post_processor": {"type": "RobertaProcessing", "sep": ["<|endoftext|>", 0], "cls": ["<|endoftext|>", 0], "trim_offsets": True, "add_prefix_space": True}})
    out["gpt2_flags"] = ("gpt2", {**flags(sizes["gpt2"]), **norm({"type": "Lowercase"})})
    out["gpt2_normalizer"] = ("gpt2", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None})
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        out["gpt2_" + form.lower()] = ("gpt2", norm({"type": form}))
    out["gpt2_not_last"] = ("gpt2", pre({**BYTES, "use_regex": True}, {"type": "Digits", "individual_digits": True}))
    for behavior in ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        out["split_" + behavior.lower()] = ("gpt2", pre(split("a|\\s|\\.", behavior), {"type": "Punctuation", "behavior": behavior}, BYTES))
        out["split_inverted_" + behavior.lower()] = ("gpt2", pre(split("[a-z]+", behavior, invert=True), split("  ", behavior, kind="String"), BYTES))
    out["digits"] = ("gpt2", pre({"type": "Digits", "individual_digits": False}, {"type": "CharDelimiterSplit", "delimiter": "-"}, {"type": "WhitespaceSplit"}, {"type": "FixedLength", "length": 3}, BYTES))
    out["llama_flags"] = ("llama", flags(sizes["llama"]))
    for scheme in ["first", "never", "always"]:
        for splits in [True, False]:
            space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": splits}
            out[f"metaspace_{scheme}_{splits}".lower()] = ("llama", {"normalizer": None, "pre_tokenizer": space, "decoder": space, **(flags(sizes["llama"]) if splits else {})})
    out["metaspace_stripped"] = ("llama", {**norm({"type": "Strip", "strip_left": True, "strip_right": True}), "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}})
    out["llama_unfused"] = ("llama", {"model": {"byte_fallback": False, "fuse_unk": False}})
    out["llama_fused"] = ("llama", {"model": {"byte_fallback": False}})
    out["llama_no_unk"] = ("llama", {"model": {"byte_fallback": False, "unk_token": None}})
    out["unigram_nmt"] = ("unigram", norm({"type": "Nmt"}, {"type": "NFKC"}, replace("a|b", "xyz"), replace("o", "", "String")))
    out["unigram_whole"] = ("unigram", {"pre_tokenizer": None, "normalizer": None, "post_processor": None})
    out["unigram_left"] = ("unigram", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}, **flags(sizes["unigram"])})
    out["replace_empty"] = ("llama", norm(replace("x*", "-"), replace("", "_", "String")))
    out["replace_start"] = ("llama", {**norm(replace("^", "\u2581")), **pre({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}, {"type": "Punctuation", "behavior": "Isolated"})})
    out["bert_cased"] = ("word_piece", {"normalizer": {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": True, "lowercase": False}, **flags(sizes["word_piece"])})
    out["bert_forms"] = ("word_piece", norm({"type": "NFKD"}, {"type": "StripAccents"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": None, "lowercase": True}))
    out["bpe_decoder"] = ("clip", {"decoder": {"type": "BPEDecoder", "suffix": "</w>"}, "post_processor": None})
    out["ctc"] = ("word_level", {"decoder": {"type": "CTC", "pad_token": "the", "word_delimiter_token": "of", "cleanup": True}})
    out["decoders"] = ("word_level", {"decoder": sequence("decoders", replace("[aeiou]+", "_"), replace("n", "", "String"), {"type": "Strip", "content": "t", "start": 1, "stop": 0})})
    return out


def all_tokenizers():
    bases = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json")) if path.stem not in ("cases", "words")}
    sizes = {name: Tokenizer.from_str(json.dumps(base)).get_vocab_size() for name, base in bases.items()}
    return {name: (base, change, Tokenizer.from_str(json.dumps(merged(bases[base], change)))) for name, (base, change) in variants(sizes).items()}


MAIN = ["gpt2", "llama", "unigram", "word_piece"]


def blocks_of(name):
    return 100 if name in MAIN else 3


def write():
    FOLDER.mkdir(exist_ok=True)
    for name, tokenizer in make_bases().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    words = words_of_corpus()
    texts = {kind: [texts_of(kind, block, words) for block in range(100)] for kind in ["hostile", "ordinary"]}
    cases = {"snippets": SNIPPETS, "spaces": SPACES, "block": BLOCK, "variants": {}}
    for name, (base, change, tokenizer) in all_tokenizers().items():
        sums = {kind: [checksum(tokenizer, block) for block in texts[kind][:blocks_of(name)]] for kind in texts}
        some = [{"text": text, "ids": tokenizer.encode(text).ids, "offsets": tokenizer.encode(text).offsets, "decoded": tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)}
                for text in texts["hostile"][0][:3]]
        if "added_tokens" in change:  # with the ids that the tokenizers library assigns
            change = {**change, "added_tokens": json.loads(tokenizer.to_str())["added_tokens"]}
        cases["variants"][name] = {"base": base, "change": change, "checksums": sums, "cases": some}
        print(name, flush=True)
    lines = ",\n".join(json.dumps(name) + ":" + json.dumps(each, separators=(",", ":")) for name, each in cases.pop("variants").items())
    (FOLDER / "cases.json").write_text(json.dumps(cases, separators=(",", ":"))[:-1] + ',"variants":{\n' + lines + "\n}}\n")


def word_list(random, words):
    """Returns a text that is already split into words. Some of them are not real words."""
    return [words[random.below(len(words))] if random.below(3) == 0 else hostile(random) for _ in range(random.below(8))]


def result_of_words(encoding):
    numbers = [0xFFFFFFFF if word is None else word for word in encoding.word_ids]
    flat = [value for pair in encoding.offsets for value in pair]
    values = [len(encoding.ids), *encoding.ids, *numbers, *flat, *encoding.type_ids, *encoding.special_tokens_mask]
    return struct.pack(f"<{len(values)}I", *values)


def checksum_of_lists(tokenizer, words):
    """Returns the checksum of the results for lists of words. Every second list is truncated to CUT tokens, on the right or on the left."""
    value = 0
    for i in range(LISTS):
        if i % 2 == 0:
            tokenizer.no_truncation()
        else:
            tokenizer.enable_truncation(CUT, direction="right" if i % 4 == 1 else "left")
        value = zlib.crc32(result_of_words(tokenizer.encode(word_list(Random(WORD_SEED + i), words), is_pretokenized=True)), value)
    tokenizer.no_truncation()
    return value


STRATEGIES = ["longest_first", "only_first", "only_second"]


def checksum_of_pairs(tokenizer, texts):
    """Returns the checksum of the results for pairs. Each pair is truncated with one of three strategies, on one of two sides. If that fails, the
    result is "error"."""
    value = 0
    for i in range(LISTS):
        tokenizer.enable_truncation(CUT + i % 11, strategy=STRATEGIES[i % 3], direction=["right", "left"][i % 2])
        try:
            result = result_of_words(tokenizer.encode(texts[2 * i], texts[2 * i + 1]))
        except Exception as error:
            assert "too short" in str(error), error
            result = b"error"
        value = zlib.crc32(result, value)
    tokenizer.no_truncation()
    return value


def write_words():
    words, rows = words_of_corpus(), {}
    texts = texts_of("hostile", 0, words)[:2 * LISTS]
    for name, (_, _, tokenizer) in all_tokenizers().items():
        value = 0
        for text in texts[:LISTS]:
            encoding = tokenizer.encode(text)
            value = zlib.crc32(result_of_words(encoding) + tokenizer.decode(encoding.ids, skip_special_tokens=True).encode(), value)
        some = word_list(Random(WORD_SEED + 4), words)
        encoding = tokenizer.encode(some, is_pretokenized=True)
        rows[name] = {"lists": checksum_of_lists(tokenizer, words), "texts": value, "pairs": checksum_of_pairs(tokenizer, texts),
                      "case": {"words": some, "ids": encoding.ids, "word_ids": [-1 if word is None else word for word in encoding.word_ids]}}
    lines = ",\n".join(json.dumps(name) + ":" + json.dumps(each, separators=(",", ":")) for name, each in rows.items())
    (FOLDER / "words.json").write_text("{" + f'"seed":{WORD_SEED},"count":{LISTS},"cut":{CUT},"variants":{{\n{lines}\n}}}}\n')


def compare(program, names):
    words = words_of_corpus()
    for name, (_, _, tokenizer) in all_tokenizers().items():
        if names and name not in names:
            continue
        wrong = 0
        for kind in ["hostile", "ordinary"]:
            for block in range(int(os.environ.get("BLOCKS", "1"))):
                texts = texts_of(kind, block, words)
                path = pathlib.Path("/tmp/compare_tokenizer.json")
                path.write_text(tokenizer.to_str())
                data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
                lines = subprocess.run([program, path], input=data, stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
                for text, line in zip(texts, lines):
                    try:
                        encoding = tokenizer.encode(text)
                        decoded = tokenizer.decode(encoding.ids, skip_special_tokens=False)
                    except BaseException as error:
                        print("raises", name, repr(text), error)
                        continue
                    got = json.loads(line)
                    expected = [encoding.ids, [list(pair) for pair in encoding.offsets], decoded]
                    if got != expected:
                        wrong += 1
                        if wrong <= 3:
                            print(name, kind, ascii(text))
                            for what, a, b in zip(["ids", "offsets", "decoded"], got, expected):
                                if a != b:
                                    print("  ", what, "\n     got     ", ascii(a), "\n     expected", ascii(b), [ascii(tokenizer.id_to_token(i)) for i in encoding.ids][:40])
        print(name, "differs" if wrong else "equal", wrong, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        compare(sys.argv[2], sys.argv[3:])
    elif sys.argv[1:2] == ["--words"]:
        write_words()
    elif sys.argv[1:2] == ["--bases"]:
        FOLDER.mkdir(exist_ok=True)
        for name, tokenizer in make_bases().items():
            (FOLDER / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    else:
        write()
        write_words()
