#!/usr/bin/env python3
"""Checks that each folder of include/hasten and src includes only itself and folders before it in ORDER.

    python3 tests/docs/check_layers.py

accelerator.h and hasten.h, with their sources, count as folders. The folders of the core library include no header of
LibTorch. A subfolder of src/tpu counts as part of the folder with the same name. Commands, examples, tests and
benchmarks may include everything.

The Trainer and the plan use the Accelerator as a program does: they include only public headers of the folders in PUBLIC_ONLY, and the Accelerator
does not declare them as friends.

Only the sources of a device ask which kind of device a tensor is on; all others ask the Device (src/device/device.h).

Examples and documents include no header of a folder `detail`, which has the parts of other public headers.

Two files of include/hasten, src and cli never have the same name, so that a name in a message or a stack identifies a file.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORDER = ("base options search machine accelerate_file commands rendezvous launch program tokenizers track device process formats data autograd ops models exported optim checkpoint prepare anatomy attach "
         "accelerator metrics trainer plan hasten").split()
CORE = ("base", "options", "search", "machine", "accelerate_file", "commands", "rendezvous", "launch", "program", "tokenizers", "track")
LIBTORCH = ("torch", "ATen", "c10")
# The folders that hold the separate tree of a device. A part of such a tree counts as the folder of its name, unless FOLDER_OF_PART names another
# one.
DEVICE_TREES = ("tpu",)
FOLDER_OF_PART = {"module": "device"}
DEVICE_SOURCES = ("src/device/", "src/tpu/", "src/anatomy/dry_gpu.")
# The folders that use the Accelerator, and the folders whose internal headers they must not include.
ACCELERATOR_USERS = ("trainer", "plan")
PUBLIC_ONLY = ("prepare", "process")
PRIVATE_ACCESS = re.compile(r"\bAcceleratorState\b|\bstate_\s*->")
FRIEND_OF_ACCELERATOR = re.compile(r"\bfriend class (Trainer|Plan)\b")
DEVICE_KIND = re.compile(r"is_cuda\(|is_privateuseone|kCUDA|kPrivateUse1|hasCUDA|torch::cuda|DeviceType::(CUDA|PrivateUse1)|"
                         r"\bDry(Gpu|Tpu)::is_\w+\(|\bDryTpu::active|\bis_gpu_simulated\(|\bis_cuda_library_loaded\(|\btpu_is_open\(|"
                         r"\bis_(for|on)_(tpu|gpu|cuda)\(|\bon_tpus?\(|defers_reading")
FOREIGN_NAMES = "src/process/backend/gloo_types/"
# The headers that hasten_embed() writes (cmake/HastenEmbed.cmake).
GENERATED = re.compile(r"\.(html|css|js|py)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', flags=re.MULTILINE)


def folder_of(path):
    """Returns the first folder of a path below include/hasten or src, or the name of a file that is in no folder."""
    first, *rest = path.split("/")
    if first in DEVICE_TREES:
        return FOLDER_OF_PART.get(rest[0], rest[0])
    return first.split(".")[0]


def problem_of(folder, quote, included):
    """Returns the problem of an include in `folder`, or None."""
    first = included.split("/")[0]
    if first in LIBTORCH:
        return "the core library must not include LibTorch" if folder in CORE else None
    if first != "hasten" and quote == "<":
        return None  # another library
    if "/" not in included:
        return None if GENERATED.search(included) else "without its folder"
    target = folder_of(included.removeprefix("hasten/"))
    if folder in ACCELERATOR_USERS and target in PUBLIC_ONLY and not included.startswith("hasten/"):
        return f"an internal header of {target}"
    if target not in ORDER:
        return "a folder that is not in ORDER"
    return f"{target} is after {folder} in ORDER" if ORDER.index(target) > ORDER.index(folder) else None


def private_problems():
    """Yields the lines in the folders ACCELERATOR_USERS that reach the Accelerator's private state, and the lines that would give them access."""
    for folder in ("src", "include/hasten"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp", ".cu")):
            name = path.relative_to(ROOT / folder).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                code = line.split("//")[0]
                if folder_of(name) in ACCELERATOR_USERS and PRIVATE_ACCESS.search(code):
                    yield f"{folder}/{name}:{number}: uses the private state of the Accelerator: {line.strip()}"
                if folder_of(name) not in ACCELERATOR_USERS and FRIEND_OF_ACCELERATOR.search(code):
                    yield f"{folder}/{name}:{number}: gives a user of the Accelerator its private state: {line.strip()}"


def device_problems():
    """Yields the lines outside a device's sources that ask for a kind of device."""
    for folder in ("src", "include", "cli"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp", ".cu")):
            name = path.relative_to(ROOT).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if not name.startswith(DEVICE_SOURCES) and DEVICE_KIND.search(line.split("//")[0]):
                    yield f"{name}:{number}: asks for a kind of device: {line.strip()}"


def detail_problems():
    """Yields the examples and documents that include a header of a folder `detail`."""
    for folder in ("examples", "docs", "README.md"):
        for path in [ROOT / folder] if folder.endswith(".md") else sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp", ".md")):
            for _, included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                if included.startswith("hasten/") and "/detail/" in included:
                    yield f"{path.relative_to(ROOT)}: includes {included}: a part of another header"


def repeated_names():
    """Yields the names that several files have. It ignores FOREIGN_NAMES, whose file names another library determines."""
    files = defaultdict(list)
    for folder in ("include/hasten", "src", "cli"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp", ".cu")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(FOREIGN_NAMES):
                files[path.name].append(name)
    for name, paths in files.items():
        if len(paths) > 1:
            yield f"{', '.join(paths)}: these files have the same name"


def main():
    includes, problems = 0, [*device_problems(), *private_problems(), *detail_problems(), *repeated_names()]
    for base in ("include/hasten", "src"):
        for path in sorted(p for p in (ROOT / base).rglob("*") if p.suffix in (".h", ".cpp", ".cu")):
            folder = folder_of(path.relative_to(ROOT / base).as_posix())
            if folder not in ORDER:
                problems.append(f"{path.relative_to(ROOT)}: the folder {folder} is not in ORDER")
                continue
            for quote, included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                includes += 1
                problem = problem_of(folder, quote, included)
                if problem:
                    problems.append(f"{path.relative_to(ROOT)}: includes {included}: {problem}")
    print("\n".join(problems + [f"{includes} includes checked, {len(problems)} problems"]))
    return 1 if problems or includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
