#!/usr/bin/env python3
"""Writes an assembly file with a stand-in for each name that libtorch_python needs of CUDA.

    python3 cuda_names.py FOLDER/torch/lib OUT.S PROCESSOR [NAME ...]

PyPI's libtorch_python.so is built for GPUs: it does not load without libtorch_cuda.so and the
gigabytes of libraries that this one needs, although it runs nothing of them if LibTorch finds no
GPU. The stand-in of a function prints its name and ends the program (no_cuda.cpp); those of a
class's type information and virtual table are only referred to. The names given are left out,
because they have a stand-in that works.
"""
import subprocess
import sys
from pathlib import Path

CUDA = ("libtorch_cuda.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so")
HERE = ("libtorch_cpu.so", "libc10.so", "libshm.so", "libc10_cuda.so")

FUNCTION = """\
.text
.globl {name}
.type {name},%function
{name}: {call}
.section .rodata
1: .string "{name}"
"""
# Calls hasten_no_cuda with the address of the string at label 1, by the name that CMake has for the
# processor.
X86 = "leaq 1f(%rip), %rdi\njmp hasten_no_cuda@PLT"
ARM = "adrp x0, 1f\nadd x0, x0, :lo12:1f\nb hasten_no_cuda"
CALL = {"x86_64": X86, "amd64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}
# The type information of a class without bases: the C++ ABI's __class_type_info and the class's
# name.
TYPE = """\
.section .data.rel.ro,"aw"
.balign 8
.globl {name}
.type {name},%object
{name}: .quad _ZTVN10__cxxabiv117__class_type_infoE+16
.quad 1f
.section .rodata
1: .string "{mangled}"
"""
TABLE = """\
.section .data.rel.ro,"aw"
.balign 8
.globl {name}
.type {name},%object
{name}: .zero 1024
"""


def names(which, library):
    out = subprocess.run(["nm", "--dynamic", which, library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()}


def stub(name, processor):
    form = TYPE if name.startswith("_ZTI") else TABLE if name.startswith("_ZTV") else FUNCTION
    return form.format(name=name, mangled=name[4:], call=CALL[processor])


def assembly(names, processor):
    return "".join(stub(name, processor) for name in names) + '.section .note.GNU-stack,"",%progbits\n'


def main(folder, out, processor, *own):
    defined = lambda libraries: set().union(*(names("--defined-only", folder / lib) for lib in libraries if (folder / lib).exists()))
    wanted = names("--undefined-only", folder / "libtorch_python.so") - defined(HERE) - set(own)
    cufile = {name for name in wanted if name.startswith("cuFile")}
    missing = sorted(wanted & defined(CUDA) | cufile)
    Path(out).write_text(assembly(missing, processor), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
