"""Does the work of benchmarks/first_step.cpp in PyTorch: the first step of a linear model, with gradients averaged over all processes.

    torchrun --nproc_per_node 4 first_step.py
"""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
loss = model(torch.randn(8, 64)).pow(2).mean()
loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()
optimizer.step()
if dist.get_rank() == 0:
    print("loss", loss.item())
dist.destroy_process_group()
