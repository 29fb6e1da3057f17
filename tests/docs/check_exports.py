#!/usr/bin/env python3
"""Checks that hasten's libraries export what the headers mark, and that every public declaration that needs a mark has one.

    check_exports.py [LIBRARY.so...]

A public function or variable that a source file defines needs the mark HASTEN_API. So does a class that has such a member, a virtual function, or a
base class that needs the mark. Nothing else may be exported: each strong symbol of hasten in a library belongs to a declaration with HASTEN_API or
HASTEN_INTERNAL_API. Each marked namespace function must be a symbol of one of the libraries, and so must each hasten function that a library uses.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLIC, INTERNAL = "HASTEN_API", "HASTEN_INTERNAL_API"
MARKS = {PUBLIC, INTERNAL}
TOKEN = re.compile(r"[A-Za-z_]\w*|::|[0-9][\w.']*|\S")
CLASS = ("class", "struct", "union")
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
NO_SYMBOL = {"using", "typedef", "static_assert", "friend", "enum", "concept", "inline", "constexpr", "consteval", "template"}


def tokens_of(text):
    """Returns the tokens of a header without comments, string contents, directives and attributes."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'', " 0 ", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.MULTILINE)
    return TOKEN.findall(re.sub(r"\[\[.*?\]\]", " ", text, flags=re.DOTALL))


def after_group(tokens, i):
    """Returns the position after the bracket that closes the one at `i`."""
    depth = 0
    while i < len(tokens):
        depth += (tokens[i] in OPENING) - (tokens[i] in CLOSING)
        i += 1
        if depth == 0:
            break
    return i


def without_arguments(tokens):
    """Returns the tokens without template arguments."""
    out, depth = [], 0
    for i, token in enumerate(tokens):
        if token == "<" and i and tokens[i - 1] != "operator":
            depth += 1
        elif token == ">" and depth:
            depth -= 1
        elif depth == 0:
            out.append(token)
    return out


def declarations(tokens):
    """Yields the head of each declaration and the tokens in its braces, or None if it has no braces."""
    i = 0
    while i < len(tokens):
        head, body, is_initialized = [], None, False
        while i < len(tokens) and tokens[i] != ";":
            token = tokens[i]
            if token == ":" and head and head[-1] in ("public", "private", "protected") and len(head) == 1:
                head = []
            elif token in OPENING:
                end = after_group(tokens, i)
                if token == "{" and not is_initialized and "requires" not in head[-1:] and not after_requires(head):
                    body = tokens[i + 1:end - 1]
                    is_type = any(each in CLASS + ("enum",) for each in without_arguments(head)) and "(" not in head
                    if not is_type and tokens[end:end + 1] not in ([","], ["{"]):
                        i = end - 1 if tokens[end:end + 1] != [";"] else end
                        break
                else:
                    head += tokens[i:end]
                i = end
                continue
            else:
                is_initialized = is_initialized or (token == "=" and "operator" not in head[-2:])
                head.append(token)
            i += 1
        i += 1
        if head:
            yield head, body


def after_requires(head):
    """True if the head ends with `requires (...)`, whose braces contain expressions."""
    depth = 0
    for i in range(len(head) - 1, -1, -1):
        depth += (head[i] in CLOSING) - (head[i] in OPENING)
        if depth == 0:
            return head[i] == "(" and i > 0 and head[i - 1] == "requires"
    return False


class Headers:
    """The declarations of all headers."""

    def __init__(self):
        self.problems, self.functions, self.classes, self.required = [], {}, {}, {}
        self.exported_classes, self.count = set(), 0

    def read(self, path):
        text = path.read_text(encoding="utf-8")
        self.file, self.is_public = path.relative_to(ROOT), "include" in path.relative_to(ROOT).parts
        self.defined_below = set(re.findall(r"\b(\w+::~?\w+)\(", text))
        self.read_namespace(tokens_of(text), ())

    def read_namespace(self, tokens, scope):
        for head, body in declarations(tokens):
            plain = without_arguments(head)
            first = next((token for token in plain if token not in MARKS), "")
            if "namespace" in plain[:2]:
                name = [token for token in plain if token not in ("namespace", "inline", "::")]
                if body is not None:
                    self.read_namespace(body, (*scope, *name))
            elif first == "extern" and body is not None:  # extern "C"
                self.read_namespace(body, scope)
            elif first == "extern" and "template" in plain[:2]:
                self.require("::".join((*scope, plain[plain.index("class") + 1])), "it is instantiated in a source")
            elif any(token in CLASS for token in plain[:3]) and "(" not in plain:
                if body is not None:
                    self.read_class(plain, body, scope)
            elif not NO_SYMBOL & set(plain) and not first.isupper() and "(" in plain and plain[-1] != "delete":
                self.read_function(plain, scope)
            elif first == "extern":
                self.require_mark(plain, "::".join((*scope, plain[-1])))

    def read_function(self, plain, scope):
        before = plain[:plain.index("(")]
        name = "::".join((*scope, "operator" if "operator" in before else before[-1]))
        self.require_mark(plain, name)
        if MARKS & set(plain) and "extern" not in plain and scope:
            self.functions.setdefault(name, self.file)

    def require_mark(self, plain, name):
        self.count += self.is_public
        if self.is_public and PUBLIC not in plain:
            self.problems.append(f"{self.file}: {name} has no {PUBLIC}")

    def read_class(self, plain, body, scope):
        head = plain[:plain.index(":")] if ":" in plain else plain
        bases = [token for token in plain[len(head):] if token not in ("public", "private", "protected", "virtual", ":", ",", "::")]
        names = [token for token in head if token not in (*CLASS, *MARKS, "final", "template", "::", "requires")]
        if not names:
            return
        name = "::".join((*scope, names[-1]))
        self.classes[name] = (self.file, self.is_public, bases, "template" in head, bool(MARKS & set(head)))
        if MARKS & set(head):
            self.exported_classes.add(name)
        if "template" not in head or "extern" in head:
            reason = self.reason(names[-1], body)
            if reason:
                self.require(name, reason)

    def reason(self, name, body):
        """Returns why a class with these members has symbols, or None."""
        for head, inner in declarations(body):
            plain = without_arguments(head)
            if any(token in CLASS for token in plain[:1]) and "(" not in plain:
                nested = inner is not None and self.reason(plain[-1], inner)
                if nested:
                    return nested
            elif {"virtual", "override"} & set(plain):
                return "it has virtual functions"
            elif not NO_SYMBOL & set(plain) and inner is None and not plain[0].isupper():
                call = plain.index("(") if "(" in plain else None
                if call is None and plain[0] == "static":
                    return f"{plain[-1]} is defined in a source"
                if call and "=" not in plain[:call] and plain[-2:] not in (["=", "default"], ["=", "delete"], ["=", "0"]):
                    if f"{name}::{plain[call - 1]}" not in self.defined_below:
                        return f"{plain[call - 1]} is defined in a source"
        return None

    def require(self, name, reason):
        if self.is_public:
            self.required.setdefault(name, (self.file, reason))

    def check_classes(self):
        """Adds a problem for each class that needs the mark and does not have it."""
        needed = dict(self.required)
        size = -1
        while size != len(needed):  # a class needs the mark if one of its bases does
            size = len(needed)
            short = {name.rsplit("::", 1)[-1] for name in needed}
            for name, (file, is_public, bases, is_template, _) in self.classes.items():
                if is_public and not is_template and (short & set(bases) or "runtime_error" in bases):
                    needed.setdefault(name, (file, "a base of it is exported"))
        self.count += len(needed)
        for name, (file, reason) in needed.items():
            if not self.classes.get(name, (0, 0, 0, 0, False))[-1]:
                self.problems.append(f"{file}: {name} has no {PUBLIC}: {reason}")


def strong_symbols(library):
    """Returns the names of hasten's functions and variables that a library exports, other than templates and inline functions."""
    out = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    lines = (line.split(" ", 2) for line in out.splitlines())
    return {name_of(name) for _, kind, name in lines if kind in "TDBR" and name.startswith("hasten::")}


def missing_symbols(libraries):
    """Returns the demangled functions and variables of hasten that a library uses and none of them exports."""
    used, exported = set(), set()
    for library in libraries:
        out = subprocess.run(["nm", "--dynamic", "--demangle", library], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            kind, name = line[17:].split(" ", 1)
            (used if kind == "U" else exported).add(name)
    return {name for name in used - exported if name.startswith("hasten::")}


def name_of(symbol):
    """Returns the qualified name of a demangled function."""
    out, depth = "", 0
    for character in symbol.replace("[abi:cxx11]", "").replace("(anonymous namespace)", "anonymous"):
        depth += (character == "<") - (character == ">" and depth > 0)
        if character == "(" and depth == 0:
            break
        out += character if depth == 0 and character != ">" else ""
    return "::".join("operator" if part.startswith("operator") else part for part in out.split("::"))


def check_libraries(headers, libraries):
    exported = set()
    for library in libraries:
        symbols = strong_symbols(library)
        exported |= symbols
        for name in sorted(symbols):
            owners = {name.rsplit("::", count)[0] for count in range(1, name.count("::") + 1)}
            if name not in headers.functions and not owners & headers.exported_classes:
                headers.problems.append(f"{Path(library).name}: exports {name}, which no header marks")
        print(f"{Path(library).name}: {len(symbols)} names of hasten are exported")
    headers.problems += [f"{name} is used by a library, but no library exports it" for name in sorted(missing_symbols(libraries))]
    headers.problems += [f"{file}: {name} is marked, but no library exports it" for name, file in headers.functions.items() if name not in exported]


def main(libraries):
    headers = Headers()
    for folder in ("include", "src"):
        for path in sorted((ROOT / folder).rglob("*.h")):
            headers.read(path)
    headers.check_classes()
    if libraries:
        check_libraries(headers, libraries)
    print("\n".join([*headers.problems, f"{headers.count} public declarations checked, {len(headers.problems)} problems"]))
    return 1 if headers.problems or headers.count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
