#!/usr/bin/env python3
"""Exports a PyTorch model for hasten: one .pt2 file with a program for training and one for evaluation.

In Python:

    from export_for_hasten import export_for_hasten
    report = export_for_hasten(model, {"input_ids": ids, "labels": labels}, "model.pt2")
    print(report)

On the command line, for a folder of transformers (needs transformers):

    export_for_hasten.py FOLDER out/model.pt2 --model AutoModelForSequenceClassification --labels train.tsv

`--labels` names a table with a column of classes, for a new classification head. The configuration and the files of the
tokenizer are written next to the .pt2 file: `hasten train` reads texts with them and copies them to the trained model.

The batch size is dynamic, and so is the length of texts if the model allows it. Before the file is written, the gradients of
the exported program are compared with the model's gradients: torch.export drops the backward of an autograd.Function without
a message, and the file does not show it. The report lists what could not be done. If the gradients differ, no file is
written and the command exits with 1. Needs torch 2.11 or a nearby version.
"""
import argparse
import copy
import csv
import dataclasses
import json
import pathlib
import shutil
import sys

import torch
from torch.export import Dim
from torch.export.pt2_archive._package import package_pt2


class ExportError(RuntimeError):
    """The model cannot be exported so that it trains as in Python."""


@dataclasses.dataclass
class Report:
    file: str
    dynamic: list  # the names of the dynamic sizes
    programs: list
    gradient_difference: float  # the largest one, relative to the largest gradient
    notes: list  # what could not be done, and why

    def __str__(self):
        lines = [f"{self.file}: {', '.join(self.programs)}; dynamic: {', '.join(self.dynamic) or 'nothing'}; "
                 f"gradients differ by at most {self.gradient_difference:.1e} from those of the model"]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def _first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _shapes(inputs, dims, length):
    def shape(value):
        if not isinstance(value, torch.Tensor):
            return None
        return {axis: dim for axis, dim in dims.items() if axis < value.dim() and (axis == 0 or value.shape[axis] == length)}
    return {name: shape(value) for name, value in inputs.items()}


def _loss_of(outputs):
    """Returns the model's own loss, or the sum of the squares of its outputs."""
    if isinstance(outputs, dict) and outputs.get("loss") is not None:
        return outputs["loss"]
    leaves = torch.utils._pytree.tree_leaves(dict(outputs) if isinstance(outputs, dict) else outputs)
    return sum(leaf.float().pow(2).mean() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad)


def _gradients(call, groups, parameters, seed):
    """Returns the gradient of each group of names. In an exported module, a tied parameter is several tensors."""
    torch.manual_seed(seed)
    loss = _loss_of(call())
    tensors = {id(tensor): tensor for tensor in parameters.values() if tensor.requires_grad}
    found = dict(zip(tensors, torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)))
    sums = {}
    for first, names in groups.items():
        parts = [found.get(key) for key in {id(parameters[name]) for name in names if name in parameters}]
        parts = [part for part in parts if part is not None]
        if parts:
            sums[first] = sum(parts)
    return sums


def compare_gradients(model, program, inputs, seed=0):
    """Returns the largest difference of a gradient relative to the largest gradient, and its parameter's name."""
    before = copy.deepcopy(model.state_dict())
    eager_parameters = dict(model.named_parameters(remove_duplicate=False))
    groups = {}
    for name, tensor in eager_parameters.items():
        groups.setdefault(id(tensor), []).append(name)
    groups = {names[0]: names for names in groups.values()}
    module = program.module()
    exported = _gradients(lambda: module(**inputs), groups, dict(module.named_parameters(remove_duplicate=False)), seed)
    eager = _gradients(lambda: model(**inputs), groups, eager_parameters, seed)
    model.load_state_dict(before)  # restores the statistics of batch norm
    largest = max((gradient.abs().max().item() for gradient in eager.values() if gradient.numel()), default=0.0)
    worst, where = 0.0, ""
    for name, gradient in eager.items():
        if not gradient.numel():
            continue
        difference = gradient.abs().max().item() if name not in exported else (exported[name] - gradient).abs().max().item()
        if difference > worst:
            worst, where = difference, name
    return (worst / largest if largest else worst), where


def _export(model, inputs, max_rows, max_length, length, notes):
    batch, tokens = Dim("batch", min=1, max=max_rows), Dim("length", min=2, max=max_length)
    two = Dim("batch", min=2, max=max_rows)
    choices = [{0: batch, 1: tokens}, {0: two, 1: tokens}] if length else []
    for dims in [*choices, {0: batch}, {0: two}, {}]:
        try:
            return torch.export.export(model, (), inputs, dynamic_shapes=_shapes(inputs, dims, length) if dims else None), dims
        except Exception as error:  # what a model raises here depends on the model
            if not dims:
                raise ExportError(f"torch.export cannot export the model: {_first_line(error)}") from error
            sizes = ", ".join(f"{dim.__name__} from {dim.min}" for dim in dims.values())
            notes.append(f"the model does not allow a dynamic {sizes}: {_first_line(error)}")
    raise AssertionError


def _without_paths(program):
    """Removes the paths and lines of this machine's source files."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "source_fn_stack", "from_node"):
                    node.meta.pop(key, None)
    program._example_inputs = None
    return program


def export_for_hasten(model, inputs, file, *, max_rows=1024, max_length=512, length=None, tolerance=1e-5, check=True):
    """Writes FILE and returns a Report. Raises ExportError if the model cannot be exported or its gradients would differ.

    model: an nn.Module. inputs: its keyword arguments as tensors, with at least two rows. length: the size of the
    dynamic second dimension of the inputs, by default the size in the first two-dimensional input of integers.
    """
    rows = {value.shape[0] for value in inputs.values() if isinstance(value, torch.Tensor) and value.dim()}
    if len(rows) != 1 or min(rows) < 2:
        raise ExportError(f"inputs: got {sorted(rows)} rows, expected the same number, at least 2, in all of them. Hint: a size of 1 is "
                          "taken for a constant")
    if length is None:
        length = next((value.shape[1] for value in inputs.values()
                       if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point()), None)
    notes, was_training = [], model.training
    if getattr(getattr(model, "config", None), "use_cache", False):
        model.config.use_cache = False
        notes.append("use_cache was set to False")
    try:
        train, dims = _export(model.train(), inputs, max_rows, max_length, length, notes)
        difference = 0.0
        if check:
            difference, where = compare_gradients(model, train, inputs)
            if not difference <= tolerance:
                raise ExportError(f"gradients: the exported program's gradient of {where} differs by {difference:.1e} from the model's, "
                                  f"expected at most {tolerance:.0e}. Hint: an autograd.Function of the model lost its backward; write it "
                                  "with PyTorch's operations")
        programs = {"model": _without_paths(train)}  # torch.export.load reads the program of this name
        shapes = _shapes(inputs, dims, length) if dims else None
        try:
            programs["eval"] = _without_paths(torch.export.export(model.eval(), (), inputs, dynamic_shapes=shapes))
        except Exception as error:
            notes.append(f"there is no program for evaluation, so hasten switches the one for training: {_first_line(error)}")
    finally:
        model.train(was_training)
    package_pt2(str(file), exported_programs=programs)
    return Report(str(file), [dim.__name__ for dim in dims.values()], list(programs), difference, notes)


def _inputs_of(model, rows, length):
    """Returns random inputs for a text model of transformers, with labels if the model takes them."""
    torch.manual_seed(0)
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    ids = torch.randint(0, config.vocab_size, (rows, length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    name = type(model).__name__
    if name.endswith("ForSequenceClassification"):
        inputs["labels"] = torch.randint(0, max(config.num_labels, 2), (rows,))
    elif name.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForTokenClassification")):
        limit = config.num_labels if name.endswith("ForTokenClassification") else config.vocab_size
        inputs["labels"] = ids % limit
    return inputs


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def class_names(file, column):
    """Returns the names in a column of a .tsv, .csv or .jsonl file sorted by their bytes, as in hasten."""
    path = pathlib.Path(file)
    with open(path, encoding="utf-8", newline="") as lines:
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in lines if line.strip()]
        elif path.suffix == ".tsv":
            rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        else:
            rows = list(csv.DictReader(lines))
    if not rows or column not in rows[0]:
        raise ExportError(f"{file}: got the columns {list(rows[0]) if rows else []}, expected one called {column}. Hint: name it with --label_column")
    return sorted({str(row[column]) for row in rows}, key=str.encode)


def _head(arguments):
    """Returns the settings of the head that the command line asks for."""
    if not arguments.labels:
        return {"num_labels": arguments.num_labels} if arguments.num_labels else {}
    names = class_names(arguments.labels, arguments.label_column)
    return {"num_labels": len(names), "id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


def _export_folder(arguments):
    import transformers
    transformers.logging.set_verbosity_error()
    torch.manual_seed(arguments.seed)  # for a new head
    model = getattr(transformers, arguments.model).from_pretrained(arguments.folder, **_head(arguments))
    file = pathlib.Path(arguments.file)
    file.parent.mkdir(parents=True, exist_ok=True)
    report = export_for_hasten(model, _inputs_of(model, arguments.rows, arguments.length), file)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(file.parent)
    for name in TOKENIZER_FILES:
        source = pathlib.Path(arguments.folder) / name
        if source.is_file() and source.resolve() != (file.parent / name).resolve():
            shutil.copyfile(source, file.parent / name)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a folder of transformers, with config.json and weights")
    parser.add_argument("file", help="the .pt2 file to write")
    parser.add_argument("--model", default="AutoModelForSequenceClassification", help="the class of transformers [%(default)s]")
    parser.add_argument("--labels", help="a .tsv, .csv or .jsonl file whose label column has the classes of a new head")
    parser.add_argument("--label_column", default="label", help="that column [%(default)s]")
    parser.add_argument("--num_labels", type=int, help="the number of classes of a new head, instead of --labels")
    parser.add_argument("--seed", type=int, default=42, help="for the weights of a new head [%(default)s]")
    parser.add_argument("--rows", type=int, default=4, help="rows of the example batch [%(default)s]")
    parser.add_argument("--length", type=int, default=32, help="tokens of the example batch [%(default)s]")
    arguments = parser.parse_args()
    if arguments.labels and arguments.num_labels:
        parser.error("--labels and --num_labels exclude each other")
    try:
        print(_export_folder(arguments))
    except ExportError as error:
        sys.exit(f"export_for_hasten: error: {error}")


if __name__ == "__main__":
    main()
