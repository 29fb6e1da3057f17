#!/usr/bin/env python3
"""Turns every C++ example in the comments of the public headers into a function, so that the tests compile it.

    extract.py INCLUDE CONTEXTS OUT     the folder that contains hasten/, the folder of contexts, and the program to write

An example is a series of comment lines that are indented by three or more spaces. CONTEXTS/any.h declares the variables that examples use but do not
declare, and CONTEXTS/FOLDER.h declares the variables for the headers of one folder. A line that begins with `$ ` belongs to a shell example, and a
line that begins with `# Python` to a Python example. The exit code is 1 if a header has no example. Headers in a folder `detail` need no example,
because they are parts of other headers, which users include.
"""
import pathlib
import re
import sys

LINE = re.compile(r"^\s*//(.*)$")
# Types, templates, functions and includes are placed outside the function.
OUTSIDE = re.compile(r"^(template\b|struct\b|enum\b|void \w+\(.*\{$|#include\b)")


def examples(text):
    """Returns the lines of each C++ example with their line numbers."""
    found, block = [], []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = LINE.match(line)
        content = comment.group(1) if comment else None
        if content is not None and (content.startswith("   ") or (block and not content.strip())):
            block.append((number, content[3:]))
            continue
        while block and not block[-1][1].strip():
            block.pop()
        if block:
            found.append(block)
        block = []
    return [lines for lines in found if any(";" in line or line.startswith("#") for _, line in lines)
            and not any(line.startswith(("$ ", "# Python")) for _, line in lines)]


def parts(lines):
    """Splits an example into the declarations, which belong outside a function, and the other lines."""
    outside, inside, depth, is_outside, after_template = [], [], 0, False, False
    for number, line in lines:
        if depth == 0:
            is_outside = bool(OUTSIDE.match(line)) or after_template
        after_template = line.startswith("template")
        code = line.split("//")[0]
        depth += code.count("{") - code.count("}")
        (outside if is_outside else inside).extend((f"#line {number}", line))
    return outside, inside


def functions(header, folder, text):
    """Returns the examples of a header as functions in one namespace."""
    name = re.sub(r"\W", "_", header.removesuffix(".h"))
    using = [f"using namespace context_of_{folder};"] if folder else []
    out = [f"namespace examples_of_{name} {{", f'#line 1 "{header}"']
    for count, lines in enumerate(examples(text), 1):
        outside, inside = parts(lines)
        if any(line.startswith("template <>") for line in outside):  # the example specializes a template of hasten
            out[0:0] = outside
        else:
            out += outside
        out += [f"int example_{count}([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {{", "using namespace example_names;", *using, *inside, "}"]
    return [*out, "}"]


def main(include, contexts, target):
    include, contexts = pathlib.Path(include), pathlib.Path(contexts)
    missing, includes, program = [], [], []
    for path in sorted((include / "hasten").rglob("*.h")):
        header, text = path.relative_to(include).as_posix(), path.read_text()
        folder = (path.parent.parent if path.parent.name == "detail" else path.parent).name
        folder = folder if (contexts / f"{folder}.h").exists() else ""
        if examples(text):
            includes.append(header)
            program += functions(header, folder, text)
        elif path.parent.name != "detail" and not any(line.startswith("//   $ ") for line in text.splitlines()):
            missing.append(header)
    includes += [f"header_examples/contexts/{path.name}" for path in sorted(contexts.glob("*.h"))]
    pathlib.Path(target).write_text("\n".join([*(f'#include "{each}"' for each in includes), "using namespace hasten;", *program]) + "\n")
    for header in missing:
        print(f"{header} has no example", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
