#!/usr/bin/env python3
"""Writes data/arrow: folders of save_to_disk, Arrow files and Parquet files, with datasets 5.2 and pyarrow 26. Also writes
expected.json with the rows that datasets reads from them.

    PEER/bin/python tests/oracle/generate_arrow.py
"""

import datetime
import json
import os
import pathlib
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Array2D, ClassLabel, Dataset, DatasetDict, Features, List, Value

HERE = pathlib.Path(__file__).parent / "data" / "arrow"

TYPES = Features(
    {
        "text": Value("string"),
        "label": ClassLabel(names=["zebra", "ant", "cat"]),
        "input_ids": List(Value("int32")),
        "box": List(Value("float32"), length=4),
        "pairs": List(List(Value("int16"), length=2)),
        "ok": Value("bool"),
        "flags": List(Value("bool")),
        "score": Value("float64"),
        "half": Value("float16"),
        "small": Value("uint8"),
        "wide": Value("uint64"),
        "matrix": Array2D((2, 3), "float32"),
        "tags": List(ClassLabel(names=["O", "B"])),
        "when": Value("timestamp[s]"),
    }
)
TENSORS = [name for name in TYPES if name not in ("text", "when")]


def row(i):
    return {
        "text": ["red green", "blue .", "grünish \U0001f98a", ""][i % 4],
        "label": i % 3,
        "input_ids": list(range(i + 1)),
        "box": [i, 0.5, -1.25, 1e-3],
        "pairs": [[i, j] for j in range(i % 3)],
        "ok": i % 2 == 0,
        "flags": [k % 3 == 0 for k in range(10 if i == 1 else i)],
        "score": i / 3,
        "half": i * 0.25,
        "small": 250 + i % 6,
        "wide": 2**40 + i,
        "matrix": (numpy.arange(6).reshape(2, 3) + i).tolist(),
        "tags": [k % 2 for k in range(i)],
        "when": datetime.datetime(2026, 1, 1 + i),
    }


def of(rows):
    return Dataset.from_list(rows, features=TYPES)


def plain(value):
    return [plain(each) for each in value] if isinstance(value, list) else value.tolist()


def expected(dataset):
    dataset = dataset.with_format("torch", columns=TENSORS)
    return [{name: plain(value) for name, value in each.items()} for each in dataset]


def write_stream(name, table, batch=2):
    with pa.OSFile(str(HERE / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        for part in table.to_batches(max_chunksize=batch):
            writer.write_batch(part)


def write_file(name, table, batch=2):
    with pa.OSFile(str(HERE / name), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for part in table.to_batches(max_chunksize=batch):
            writer.write_batch(part)


def write_rows(name):
    """Writes two batches that both claim to have 2^62 rows. Their sum exceeds the range of a signed 64-bit integer."""
    write_file(name, pa.table({"x": pa.array([0] * 502, pa.int8())}), batch=251)
    data = bytearray((HERE / name).read_bytes())
    number, at = (251).to_bytes(8, "little"), 0
    while (at := data.find(number, at)) >= 0:
        # The header of a batch has two equal numbers. The first one is the number of rows.
        data[at : at + 8] = (2**62).to_bytes(8, "little")
        at = data.find(number, at + 8) + 8
    (HERE / name).write_bytes(bytes(data))


def write_inflating(name):
    """Writes 640 MB of zeros, which take 20 KB."""
    table = pa.table({"x": numpy.zeros(80_000_000, numpy.int64)})
    with pa.OSFile(str(HERE / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)


def main():
    datasets.disable_progress_bars()
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    train, test = of([row(i) for i in range(7)]), of([row(i) for i in range(7, 10)])
    DatasetDict({"train": train, "test": test}).save_to_disk(HERE / "splits", num_shards={"train": 2, "test": 1})
    train.to_parquet(HERE / "rows.parquet", batch_size=3)

    animals = pa.array(["ant", "bee", "ant", "cat", "bee"]).dictionary_encode()
    dictionary = pa.table(
        {
            "animal": animals,
            "long": pa.array([[1], [2, 3], [], [4], [5]], pa.large_list(pa.int64())),
            "name": pa.array(["a", "b", "c", "d", "e"], pa.large_string()),
        }
    )
    write_file("dictionary.arrow", dictionary)
    pq.write_table(dictionary, HERE / "dictionary.parquet")

    write_stream("nulls.arrow", pa.table({"input_ids": [[1], [2], [3], [4, None]], "label": [0, 1, None, 1], "whole": [1, 2, 3, 4]}))
    write_stream("ragged.arrow", pa.table({"x": pa.array([[[1, 2], [3, 4]], [[1], [2, 3]]])}))
    # A row of 2^31 - 1 lists without items, which take no space in the file.
    items = pa.FixedSizeListArray.from_buffers(pa.list_(pa.int32(), 0), 2**31 - 1, [None], children=[pa.array([], pa.int32())])
    write_stream("lists.arrow", pa.table({"x": pa.FixedSizeListArray.from_arrays(items, 2**31 - 1)}))
    write_stream("big.arrow", pa.table({"x": pa.array([1, 2**63], pa.uint64())}))
    write_stream("empty.arrow", pa.table({"x": pa.array([], pa.int64())}))

    missing = {"text": ["red", None, "blue"], "label": ["a", "b", "a"], "note": [None, "x", None], "score": [0.5, float("nan"), None], "odd": [float("inf"), 1, 2]}
    pq.write_table(pa.table({**missing, "lists": [["a"], None, ["b", "c"]]}), HERE / "missing.parquet")
    precise = {"text": ["a", "b", "c"], "score": [0.1, 20240131.0, 1e300]}
    pq.write_table(pa.table({**precise, "small": pa.array([0.1, 0.25, 3], pa.float32())}), HERE / "precise.parquet")
    write_stream("masks.arrow", pa.table({"input_ids": [[2, 5, 3], [2, 3]], "attention_mask": [[1, 1, 1], [1]], "label": [0, 1]}))
    write_rows("rows.arrow")
    write_inflating("inflating.arrow")

    # The rows of a task, as texts and as ids.
    texts = Dataset.from_dict(
        {"text": ["red green", "blue", "green .", "red"], "label": [1, 0, -1, 1]},
        features=Features({"text": Value("string"), "label": ClassLabel(names=["zebra", "ant"])}),
    )
    texts.select([0, 1, 3]).save_to_disk(HERE / "texts")
    texts.to_parquet(HERE / "unlabelled.parquet")
    words = Dataset.from_dict(
        {"tokens": [["red", "green"], ["blue"]], "tags": [[1, 0], [0]]},
        features=Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=["O", "B"]))}),
    )
    words.to_parquet(HERE / "words.parquet")
    ids = Dataset.from_dict({"input_ids": [[2, 5, 3], [2, 6, 7, 3]], "label": [0, 1]}, features=Features(
        {"input_ids": List(Value("int32")), "label": ClassLabel(names=["no", "yes"])}))
    ids.save_to_disk(HERE / "ids")

    rows = {"train": expected(train), "test": expected(test)}
    (HERE / "expected.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")


main()
