#!/usr/bin/env python3
"""Opens a folder of Arrow files with datasets, and reads random rows of it; prints one JSON line.

    python open_arrow.py FOLDER --write 10    # writes a folder of 10 GB; all ids are 0 and take no disk space
    python open_arrow.py FOLDER

The folder looks as if Dataset.save_to_disk had written it. Its shards are half a gigabyte in size, and a batch has 1,000 rows of 512 ids and
a label.
"""
import argparse
import json
import pathlib
import random
import time

import numpy as np
import pyarrow as pa

ROWS, LENGTH, SHARD = 1000, 512, 125


class SparseFile:
    """A file that stores long runs of zeros as holes."""

    def __init__(self, path):
        self.file, self.size, self.closed = open(path, "wb"), 0, False

    def write(self, data):
        data = memoryview(data).cast("B")
        if len(data) > 1 << 16 and not np.frombuffer(data, dtype=np.uint8).any():
            self.file.seek(len(data), 1)
        else:
            self.file.write(data)
        self.size += len(data)
        return len(data)

    def flush(self):
        pass

    def writable(self):
        return True

    def close(self):
        self.file.truncate(self.size)
        self.file.close()
        self.closed = True


def write(folder, gigabytes):
    from datasets import Dataset, Features, List, Value

    folder.mkdir(parents=True)
    features = Features({"input_ids": List(Value("int64")), "label": Value("int64")})
    schema = features.arrow_schema
    offsets = pa.array(np.arange(0, (ROWS + 1) * LENGTH, LENGTH, dtype=np.int32))
    ids = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(ROWS * LENGTH, dtype=np.int64)))
    batch = pa.record_batch([ids.cast(schema.field(0).type), pa.array(np.arange(ROWS) % 2)], schema=schema)
    shards = max(1, round(gigabytes * 2))
    names = [f"data-{shard:05d}-of-{shards:05d}.arrow" for shard in range(shards)]
    for name in names:
        sparse = SparseFile(folder / name)
        with pa.ipc.new_stream(pa.PythonFile(sparse, mode="w"), schema) as writer:
            for _ in range(SHARD):
                writer.write_batch(batch)
        sparse.close()
    Dataset.from_dict({"input_ids": [[0]], "label": [0]}, features=features).save_to_disk(folder / "one")
    for name in ("state.json", "dataset_info.json"):
        (folder / "one" / name).rename(folder / name)
    state = json.loads((folder / "state.json").read_text())
    state["_data_files"] = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps(state))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--write", type=float)
    parser.add_argument("--reads", type=int, default=2000)
    options = parser.parse_args()
    if options.write:
        return write(options.folder, options.write)
    from datasets import load_from_disk

    start = time.perf_counter()
    dataset = load_from_disk(options.folder)
    opened = time.perf_counter() - start
    dataset = dataset.with_format("torch")
    random.seed(1)
    start = time.perf_counter()
    for _ in range(options.reads):
        dataset[random.randrange(len(dataset))]["input_ids"].numel()
    print(json.dumps(dict(open_ms=opened * 1e3, rows=len(dataset), rows_per_s=options.reads / (time.perf_counter() - start))))


main()
