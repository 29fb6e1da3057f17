#!/usr/bin/env python3
"""Measures PyTorch's data loader on rows of 512 token ids. Prints one JSON line per kind of data set.

    python dataloader.py --batch 8 --shuffle 1 --workers 0

dict_rows: dictionaries (`input_ids`, `labels`) like those of a Hugging Face data set in tensor format. The default collate function stacks them.
hf_datasets: the same rows from the `datasets` library, if it is installed.
tensor_dataset: a TensorDataset.
index_select: each batch is selected with index_select, which a loader can do only if it knows its tensors.

rows_per_cpu_s counts only the processor time of this process, without its workers. It varies less on a machine that other people also use.
"""
import argparse
import json
import os
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--shuffle", type=int, choices=(0, 1), default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=3, help="the fastest one counts")
    return parser.parse_args()


def main():
    options = parse()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)

    import torch
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(100, 30000, (options.rows, options.seq), generator=generator)
    labels = torch.randint(0, 2, (options.rows,), generator=generator)

    class DictRows(torch.utils.data.Dataset):
        def __len__(self):
            return options.rows

        def __getitem__(self, index):
            return dict(input_ids=ids[index], labels=labels[index])

    def loader(data):
        return torch.utils.data.DataLoader(data, batch_size=options.batch, shuffle=bool(options.shuffle), num_workers=options.workers)

    def index_select():
        order = torch.randperm(options.rows) if options.shuffle else torch.arange(options.rows)
        for start in range(0, options.rows, options.batch):
            chosen = order[start:start + options.batch]
            yield dict(input_ids=ids.index_select(0, chosen), labels=labels.index_select(0, chosen))

    kinds = dict(dict_rows=lambda: loader(DictRows()), tensor_dataset=lambda: loader(torch.utils.data.TensorDataset(ids, labels)),
                 index_select=index_select)
    try:
        import datasets
        table = datasets.Dataset.from_dict(dict(input_ids=ids.numpy(), labels=labels.numpy())).with_format("torch")
        kinds["hf_datasets"] = lambda: loader(table)
    except ImportError:
        pass

    for kind, make in kinds.items():
        wall, cpu = [], []
        for _ in range(options.passes):
            seen, wall_start, cpu_start = 0, time.perf_counter(), time.process_time()
            for batch in make():
                seen += len(batch["labels"] if isinstance(batch, dict) else batch[1])
            wall.append(time.perf_counter() - wall_start)
            cpu.append(time.process_time() - cpu_start)
            assert seen == options.rows
        print(json.dumps(dict(kind=kind, rows=options.rows, seq=options.seq, batch=options.batch, shuffle=options.shuffle, workers=options.workers,
                              threads=options.threads, rows_per_s=round(options.rows / min(wall)), rows_per_cpu_s=round(options.rows / min(cpu)),
                              mtokens_per_s=round(options.rows * options.seq / min(wall) / 1e6, 2), torch=torch.__version__)))


if __name__ == "__main__":
    main()
