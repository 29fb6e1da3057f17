"""Code that generate_exported.py and generate_architectures.py share: a training run in eager PyTorch, and writing files without local paths."""
import torch
from safetensors.torch import save_file

SEED = 7


def without_origins(program, keys):
    """Removes the example inputs, and those metadata entries of the nodes that say which local files the program came from."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for key in keys:
                    node.meta.pop(key, None)
    program._example_inputs = None
    return program


def train(model, batches, steps, loss_of):
    """Trains with SGD. Returns two values: the results and the final state. The results are the losses, the logits and gradients of the first step,
    and the logits of an evaluation at the end."""
    out, losses = {}, []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(SEED)
    for step in range(steps):
        optimizer.zero_grad()
        loss, logits = loss_of(model, *batches[step % len(batches)])
        loss.backward()
        if step == 0:
            out["logits"] = logits
            out.update({f"grad.{key}": value.grad.clone() for key, value in model.named_parameters() if value.grad is not None})
        optimizer.step()
        losses.append(loss.detach())
    out["losses"] = torch.stack(losses)
    final = {f"final.{key}": value.detach().clone() for key, value in [*model.named_parameters(), *model.named_buffers()]}
    model.eval()
    with torch.no_grad():
        out["eval_logits"] = loss_of(model, *batches[0])[1]
    return out, final


def save(tensors, path):
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()}, path)
