#!/usr/bin/env python3
"""Writes unicode_tables.cpp.

    python generate_unicode_tables.py          # in an environment with tokenizers 0.23.3

Hugging Face tokenizers takes its Unicode data from four sources of different ages (marks and control characters from
about Unicode 8, decompositions from Unicode 12, letter case and white space from Unicode 17, word characters from
Unicode 16). No single Unicode library agrees with it on every code point, and the differences depend on the version of
the library. This script therefore runs tokenizers on each of the 1,112,064 code points, with one setting at a time, and
writes the results as tables. hasten needs no Unicode library for them.
"""
import pathlib
import struct

from tokenizers import AddedToken, Regex, Tokenizer, __version__, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

FOLDER = pathlib.Path(__file__).resolve().parent
CODE_POINTS = [value for value in range(0x110000) if not 0xD800 <= value < 0xE000]
WIDTH = 110


def bert(**settings):
    nothing = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**nothing, **settings}).normalize_str


def expect(condition, value, what):
    if not condition:
        raise SystemExit(f"U+{value:04X}: {what}: the tables have no way to say that")


def probe_classes():
    """The sets of characters that each setting affects, tested between two letters."""
    clean, ideographs, strip = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    split, decompose = pre_tokenizers.BertPreTokenizer().pre_tokenize_str, normalizers.NFD().normalize_str
    dropped, blank, ideograph, mark, white, punctuation = set(), set(), set(), set(), set(), set()
    for value in CODE_POINTS:
        character = chr(value)
        text = "a" + character + "b"
        result = clean(text)
        if result == "ab":
            dropped.add(value)
        elif result == "a b":
            blank.add(value)
        else:
            expect(result == text, value, f"cleaned to {result!r}")
        result = ideographs(text)
        if result == "a " + character + " b":
            ideograph.add(value)
        else:
            expect(result == text, value, f"spaced to {result!r}")
        if decompose(character) == character and strip(text) == "ab":
            mark.add(value)
        words = [word for word, _ in split(text)]
        if words == ["a", "b"]:
            white.add(value)
        elif words == ["a", character, "b"]:
            punctuation.add(value)
        else:
            expect(words == [text], value, f"split to {words!r}")
    # Cleaning turns exactly the white space that it does not drop into a space.
    expect(blank == white - dropped, 0, "blanks are not the white space")
    return dict(dropped=dropped, ideograph=ideograph, mark=mark, white=white, punctuation=punctuation)


def probe_word_characters(white):
    """Characters that must not touch a token marked single_word. Checks that lstrip takes exactly `white`."""
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0, "~": 1, "^": 2}, unk_token="[UNK]"))
    tokenizer.add_tokens([AddedToken("~", single_word=True, normalized=False), AddedToken("^", lstrip=True, normalized=False)])
    word = {value for value in CODE_POINTS if tokenizer.encode(chr(value) + "~").ids != [0, 1]} - {ord("~"), ord("^")}
    stripped = {value for value in CODE_POINTS if tokenizer.encode(chr(value) + "^").ids == [2]}
    expect(stripped == white, 0, "lstrip takes other characters than white space")
    return word


def probe_decompositions():
    decompose = normalizers.NFD().normalize_str
    full = {value: decompose(chr(value)) for value in CODE_POINTS}
    full = {value: text for value, text in full.items() if text != chr(value) and not 0xAC00 <= value <= 0xD7A3}
    # An alias and its character have the same full decomposition. `back` holds the character, because NFC composes it.
    compose = normalizers.NFC().normalize_str
    back = {text: ord(compose(text)) for text in full.values() if len(text) > 1 and len(compose(text)) == 1}
    back = {**{text: value for value, text in full.items() if len(text) > 1}, **back}
    singles, pairs = {}, {}
    for value, text in full.items():
        if len(text) == 1:
            singles[value] = ord(text)
            continue
        head = text[:-1]
        first = ord(head) if len(head) == 1 else back.get(head)
        if first is None:                          # an alias of the character with the same full decomposition
            singles[value] = back[text]
            continue
        pairs[value] = (first, ord(text[-1]))
    return singles, pairs, full


def probe_combining_classes():
    """Canonical combining classes. tokenizers shows only their order, so each mark is compared with one probe per class."""
    decompose = normalizers.NFD().normalize_str
    probes = {1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 10: 0x5B0, 11: 0x5B1, 12: 0x5B2, 13: 0x5B3, 14: 0x5B4, 15: 0x5B5, 16: 0x5B6, 17: 0x5B7, 18: 0x5B8,
              19: 0x5B9, 20: 0x5BB, 21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1, 25: 0x5C2, 26: 0xFB1E, 27: 0x64B, 28: 0x64C, 29: 0x64D, 30: 0x64E, 31: 0x64F,
              32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670, 36: 0x711, 84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8, 122: 0xEC8, 129: 0xF71,
              130: 0xF72, 132: 0xF74, 202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A, 220: 0x316, 222: 0x59A, 224: 0x302E, 226: 0x1D16D, 228: 0x5AE,
              230: 0x301, 232: 0x315, 233: 0x35C, 234: 0x35D, 240: 0x345}

    def swaps(left, right):
        return left != right and decompose(chr(left) + chr(right)) == chr(right) + chr(left)

    ordered = sorted(probes)
    for low, high in zip(ordered, ordered[1:]):
        expect(swaps(probes[high], probes[low]), probes[high], "a probe out of order")
    classes = {}
    for value in CODE_POINTS:
        if decompose(chr(value)) != chr(value) or not (swaps(value, probes[1]) or swaps(probes[240], value)):
            continue
        below = [c for c in ordered if swaps(value, probes[c])]        # its class is larger than these
        above = [c for c in ordered if swaps(probes[c], value)]        # and smaller than those
        same = [c for c in ordered if c not in below and c not in above]
        expect(len(same) == 1, value, f"combining class between {below[-1:]} and {above[:1]}")
        classes[value] = same[0]
    return classes


# The general categories, which are the enumeration Category of unicode_tables.h.
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cn Co".split()
# The scripts that a pattern may name, in the order of code_sets.cpp.
SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Latin Thai".split()


def probe_pattern(pattern):
    """The code points that a pattern of one character matches, by Oniguruma as tokenizers contains it."""
    text = "".join(map(chr, CODE_POINTS))
    return {ord(c) for word, _ in pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(text) for c in word}


def probe_categories():
    found = {}
    for name in CATEGORIES:
        for value in probe_pattern(rf"\p{{{name}}}"):
            expect(value not in found, value, "two categories")
            found[value] = name
    expect(len(found) == len(CODE_POINTS), 0, "a code point without a category")
    return found


def probe_regex_sets(categories):
    """The word characters of patterns beyond letters, marks, decimal digits and connectors; and checks of the other escapes."""
    word = probe_pattern(r"\w")
    base = {value for value, name in categories.items() if name[0] in "LM" or name in ("Nd", "Pc")}
    expect(base <= word, 0, "\\w lacks a letter")
    expect(probe_pattern(r"\d") == {value for value, name in categories.items() if name == "Nd"}, 0, "\\d is not Nd")
    space = {value for value, name in categories.items() if name[0] == "Z"} | set(range(9, 14)) | {0x85}
    expect(probe_pattern(r"\s") == space, 0, "\\s is not the white space of code_sets.cpp")
    return word - base


def probe_compatibility(full):
    """The full compatibility decompositions that differ from the canonical ones."""
    decompose = normalizers.NFKD().normalize_str
    found = {value: decompose(chr(value)) for value in CODE_POINTS if not 0xAC00 <= value <= 0xD7A3}
    return {value: text for value, text in found.items() if text != full.get(value, chr(value))}


def probe_not_composed(pairs):
    """The characters whose decomposition NFC does not compose again."""
    compose = normalizers.NFC().normalize_str
    return {value for value, (first, second) in pairs.items() if compose(chr(first) + chr(second)) != chr(value)}


def probe_graphemes():
    """What joins to a grapheme. The normalizer Precompiled shows it: with this map, which replaces each byte that can start a character by Q, a
    grapheme of less than six bytes becomes one Q, and a longer one becomes a Q for each of its characters."""
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 ^ byte] = 512 << 10 | 1 << 8 | byte
    count = normalizers.Precompiled(struct.pack("<I1024I", 4096, *units) + b"Q\0").normalize_str
    extend = {value for value in CODE_POINTS if value and len(count("a" + chr(value))) == 1}
    control = {value for value in CODE_POINTS if value and len(count(chr(value) + "\u0301\u0301")) == 2} | {0}
    prepend = {value for value in CODE_POINTS if value and len(count(chr(value) + "x")) == 1}
    pictograph = {value for value in CODE_POINTS if value and value not in extend and len(count("\u00a9\u200d" + chr(value))) == 3}
    expect(len(count("\r\n")) == 1, 13, "a line end is two graphemes")
    return dict(grapheme_extend=extend, grapheme_control=control, grapheme_prepend=prepend, pictograph=pictograph)


def runs(values):
    """Groups code points into sorted ranges [first, last]."""
    out = []
    for value in sorted(values):
        if out and out[-1][1] == value - 1:
            out[-1][1] = value
        else:
            out.append([value, value])
    return out


def class_runs(classes):
    out = []
    for value, rank in sorted(classes.items()):
        if out and out[-1][1] == value - 1 and out[-1][2] == rank:
            out[-1][1] = value
        else:
            out.append([value, value, rank])
    return out


def case_runs(lower):
    """Returns [first, last, step, distance]: adjacent letters, or every second one, with the same distance to lower case."""
    out = []
    for value, text in sorted(lower.items()):
        if len(text) != 1:
            continue
        distance = ord(text) - value
        if out and out[-1][3] == distance:
            first, last, step, _ = out[-1]
            gap = value - last
            if gap == step or (first == last and gap in (1, 2)):
                out[-1][1:3] = [value, gap]
                continue
        out.append([value, value, 1, distance])
    return out


def category_runs(categories):
    """Returns [first, last, step, category]: adjacent characters, or every second one, of the same category, sorted by the first one."""
    out, latest = [], {}
    for value in sorted(categories):
        name = categories[value]
        run = latest.get(name)
        if run:
            gap = value - run[1]
            if gap == run[2] or (run[0] == run[1] and gap in (1, 2)):
                run[1:3] = [value, gap]
                continue
        run = latest[name] = [value, value, 1, name]
        out.append(run)
    return [run for run in out if run[3] != "Cn"]


def single_runs(singles):
    """Returns (first, targets of first, first + 1, ...) for each run of code points."""
    return [(first, [singles[value] for value in range(first, last + 1)]) for first, last in runs(singles)]


def code(value):
    return f"0x{value:X}" if value >= 10 else str(value)


def lines(items):
    """Returns the items separated by commas, wrapped and indented."""
    out, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            out.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join([*out, line])


def table(type_name, name, items):
    return f"const {type_name} {name}_rows[] = {{\n{lines(items)}\n}};\n"


def braces(*values):
    return "{" + ", ".join(values) + "}"


def section(about, *body):
    """Returns the rows of tables, and the spans that refer to them."""
    rows = f"\n// {about}\n" + "\n".join(part for part, _ in body)
    return rows, "".join(f"constinit const std::span<const {kind}> {name}{{{name}_rows}};\n" for _, (kind, name) in body)


def write(*sections):
    text = f"""// The tables of Unicode properties that unicode_tables.h declares.
// Written by generate_unicode_tables.py from tokenizers {__version__}; do not edit.
// clang-format off
#include "unicode_tables.h"

namespace hasten::tokenizers {{
namespace {{

using enum Category;
"""
    text += "".join(rows for rows, _ in sections) + "\n}  // namespace\n\n" + "".join(spans for _, spans in sections)
    text += "\n}  // namespace hasten::tokenizers\n"
    (FOLDER / "unicode_tables.cpp").write_text(text)
    print(text.count("\n"), "lines")


def main():
    classes = probe_classes()
    word = probe_word_characters(classes["white"])
    singles, pairs, full = probe_decompositions()
    combining = probe_combining_classes()
    lower = {value: text for value, text in ((value, normalizers.Lowercase().normalize_str(chr(value))) for value in CODE_POINTS) if text != chr(value)}
    long_lower = {value: text for value, text in lower.items() if len(text) != 1}
    expect(list(long_lower.items()) == [(0x130, "i\u0307")], 0x130, "the long lower-case forms are not the one in unicode.cpp")

    ranges = [("CodePointRange", name, runs(classes[key])) for name, key in [("dropped_ranges", "dropped"), ("ideograph_ranges", "ideograph"), ("mark_ranges", "mark"),
                                                                           ("punctuation_ranges", "punctuation"), ("white_ranges", "white")]]
    body = [(table(kind, name, [braces(code(a), code(b)) for a, b in rows]), (kind, name)) for kind, name, rows in ranges]
    rows = [braces(code(a), code(b), str(c)) for a, b, c in class_runs(combining)]
    body.append((table("CombiningRange", "combining_ranges", rows), ("CombiningRange", "combining_ranges")))
    classes_section = section("The characters that each setting of the normalizer affects, and the combining classes of marks.", *body)

    rows = [braces(code(a), code(b), str(step), str(distance)) for a, b, step, distance in case_runs(lower)]
    case_section = section("Letters with a lower-case form: first and last code point, step, distance to the lower-case one.",
          (table("CaseRange", "case_ranges", rows), ("CaseRange", "case_ranges")))

    rows = [braces(code(value), code(first), code(second)) for value, (first, second) in sorted(pairs.items())]
    flat = [item for first, targets in single_runs(singles) for item in [code(first), str(len(targets)), *map(code, targets)]]
    decompositions_section = section("Canonical decompositions: into two code points, and runs into one (first, count, targets).",
          (table("DecompositionPair", "decomposition_pairs", rows), ("DecompositionPair", "decomposition_pairs")),
          (table("char32_t", "decomposition_singles", flat), ("char32_t", "decomposition_singles")))

    words_section = section("Word characters, which must not touch an added token marked single_word.",
          (table("CodePointRange", "word_ranges", [braces(code(a), code(b)) for a, b in runs(word)]), ("CodePointRange", "word_ranges")))
    categories = probe_categories()
    rows = [braces(code(a), code(b), str(step), name.lower()) for a, b, step, name in category_runs(categories)]
    scripts = [braces(code(a), code(b), str(i)) for i, name in enumerate(SCRIPTS) for a, b in runs(probe_pattern(rf"\p{{{name}}}"))]
    extra = [braces(code(a), code(b)) for a, b in runs(probe_regex_sets(categories))]
    patterns_section = section("General categories by Oniguruma, further word characters of its patterns, and scripts.",
          (table("CategoryRange", "category_ranges", rows), ("CategoryRange", "category_ranges")),
          (table("CodePointRange", "regex_word_ranges", extra), ("CodePointRange", "regex_word_ranges")),
          (table("ScriptRange", "script_ranges", scripts), ("ScriptRange", "script_ranges")))

    compatibility = probe_compatibility(full)
    single = {value: ord(text) for value, text in compatibility.items() if len(text) == 1}
    flat = [item for first, targets in single_runs(single) for item in [code(first), str(len(targets)), *map(code, targets)]]
    longer = [item for value, text in sorted(compatibility.items()) if len(text) != 1 for item in [code(value), str(len(text)), *(code(ord(c)) for c in text)]]
    composition = [code(value) for value in sorted(probe_not_composed(pairs))]
    forms_section = section("Full compatibility decompositions: runs into one code point (first, count, targets), and into several (code point, count, "
                            "targets). Characters that NFC does not compose.",
          (table("char32_t", "compatibility_singles", flat), ("char32_t", "compatibility_singles")),
          (table("char32_t", "compatibility_longer", longer), ("char32_t", "compatibility_longer")),
          (table("char32_t", "composition_exclusions", composition), ("char32_t", "composition_exclusions")))

    numeric = {value for value in CODE_POINTS if len(pre_tokenizers.Digits().pre_tokenize_str("a" + chr(value))) == 2}
    accents = {value for value in CODE_POINTS if normalizers.StripAccents().normalize_str("a" + chr(value)) == "a"}
    sets = dict(numeric=numeric, accent=accents, **probe_graphemes())
    sets_section = section("Numbers, which Digits sets apart; marks that StripAccents removes; what joins to a grapheme.",
          *[(table("CodePointRange", name + "_ranges", [braces(code(a), code(b)) for a, b in runs(values)]), ("CodePointRange", name + "_ranges"))
            for name, values in sets.items()])
    write(classes_section, case_section, decompositions_section, words_section, patterns_section, forms_section, sets_section)
    print({name: len(values) for name, values in classes.items()}, "word", len(word), "lower", len(lower), "decompositions", len(full), "combining", len(combining))


if __name__ == "__main__":
    main()
