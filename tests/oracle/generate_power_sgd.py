#!/usr/bin/env python3
"""Trains a small model in two processes with torch's PowerSGD hooks, once per case; writes data/power_sgd/cases.json.

    python generate_power_sgd.py

The file has the initial weights, the rows of each step and process, and for each case its options (under PowerSGDState's
names) and the weights after the last step. The runs use SGD with learning rate 0.1 and the mean squared error.
"""
import json
import os
import pathlib
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

FILE = pathlib.Path(__file__).resolve().parent / "data" / "power_sgd" / "cases.json"
STEPS, ROWS, WORLD = 8, 4, 2
FROM_THE_THIRD = dict(start_powerSGD_iter=2)
CASES = {
    "rank_1": dict(hook="power_sgd", **FROM_THE_THIRD),
    "rank_2": dict(hook="power_sgd", matrix_approximation_rank=2, min_compression_rate=1.0, **FROM_THE_THIRD),
    "rank_3_by_qr": dict(hook="power_sgd", matrix_approximation_rank=3, min_compression_rate=1.0, **FROM_THE_THIRD),
    "no_error_feedback": dict(hook="power_sgd", use_error_feedback=False, **FROM_THE_THIRD),
    "no_warm_start": dict(hook="power_sgd", warm_start=False, **FROM_THE_THIRD),
    "epsilon_and_seed": dict(hook="power_sgd", orthogonalization_epsilon=1e-3, random_seed=7, **FROM_THE_THIRD),
    "from_the_first": dict(hook="power_sgd", use_error_feedback=False, warm_start=False, start_powerSGD_iter=0),
    "batched": dict(hook="batched_power_sgd", **FROM_THE_THIRD),
    "batched_rank_2": dict(hook="batched_power_sgd", matrix_approximation_rank=2, **FROM_THE_THIRD),
    "bf16": dict(hook="power_sgd", wrapper="bf16", **FROM_THE_THIRD),
}
HOOKS = {"power_sgd": powerSGD_hook.powerSGD_hook, "batched_power_sgd": powerSGD_hook.batched_powerSGD_hook}
WRAPPERS = {"fp16": default_hooks.fp16_compress_wrapper, "bf16": default_hooks.bf16_compress_wrapper}

# torch 2.11's batched hook passes a single matrix to a function that requires a batch of matrices. This wrapper makes a batch of one matrix.
orthogonalize = powerSGD_hook._orthogonalize
powerSGD_hook._orthogonalize = lambda matrices, epsilon=0: orthogonalize(matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon)


def numbers(tensor):
    """Returns the numbers, rounded to the digits that a float needs."""
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))


def rows():
    torch.manual_seed(2)
    return torch.randn(STEPS, WORLD, ROWS, 12), torch.randn(STEPS, WORLD, ROWS, 8)


def train(rank, store, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    inputs, targets = rows()
    results = {}
    for name, case in CASES.items():
        options = dict(case)
        hook, wrapper = HOOKS[options.pop("hook")], options.pop("wrapper", None)
        net = model()
        parallel = torch.nn.parallel.DistributedDataParallel(net)
        state = powerSGD_hook.PowerSGDState(None, **options)
        parallel.register_comm_hook(state, WRAPPERS[wrapper](hook) if wrapper else hook)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(parallel(inputs[step, rank]), targets[step, rank]).backward()
            optimizer.step()
        results[name] = dict(options=case, final=[numbers(p) for p in net.parameters()])
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(results))
    dist.barrier()  # a process must not end while the other one still reads
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (f"{folder}/store", f"{folder}/out"), nprocs=WORLD)
        cases = json.loads(pathlib.Path(f"{folder}/out").read_text())
    inputs, targets = rows()
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(dict(
        torch=torch.__version__, steps=STEPS, rows=ROWS, learning_rate=0.1, start=[numbers(p) for p in model().parameters()],
        inputs=numbers(inputs), targets=numbers(targets), cases=cases)) + "\n")


if __name__ == "__main__":
    main()
