"""Measures what c10d's check of collectives adds to an all-reduce. Rank 0 prints one JSON line.

    TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc_per_node 2 collective_cost.py --bytes 1048576 --calls 500

With this variable c10d wraps each new group in a ProcessGroupWrapper, which checks every collective. The wrapped group does not check.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--bytes", type=int, default=1 << 20)
parser.add_argument("--calls", type=int, default=500)
options = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("gloo")
checked = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
plain = checked.wrapped_pg  # the attribute exists only if the variable is set
data = torch.ones(options.bytes // 4)


def one_call(group):
    began = time.perf_counter()
    group.allreduce([data]).wait()
    return time.perf_counter() - began


seconds = {"plain": [], "checked": []}
for _ in range(options.calls):
    for name, group in (("plain", plain), ("checked", checked)):
        one_call(group)
        seconds[name].append(one_call(group))
if dist.get_rank() == 0:
    plain_quartile, plain_median, _ = statistics.quantiles(seconds["plain"])
    quartile, median, _ = statistics.quantiles(seconds["checked"])
    print(json.dumps(dict(bytes=options.bytes, plain_us=plain_median * 1e6, checked=median / plain_median,
                          checked_quartile=quartile / plain_quartile)), flush=True)
dist.barrier()
