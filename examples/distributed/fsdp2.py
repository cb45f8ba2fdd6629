"""A stack whose parameters, gradients and optimizer state are divided among processes: FSDP2's `fully_shard`.

    torchrun --standalone --nproc-per-node 2 examples/distributed/fsdp2.py
    python examples/distributed/fsdp2.py                                 # one process: the same losses

It runs on CPUs with gloo. For GPUs: backend "nccl", a mesh of "cuda", and model and data on cuda:LOCAL_RANK.
"""

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fracdnn.nn import FractionalStack, parameter_groups

STEPS = 5


def made_model() -> nn.Sequential:
    torch.manual_seed(0)  # alike in all processes
    layers = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(12)]
    return nn.Sequential(nn.Linear(8, 32), FractionalStack(layers, order=0.5, learn_order=True), nn.Linear(32, 1))


def shard(model: nn.Sequential, size: int) -> None:
    """Layers one by one, so that a process holds one whole layer at a time; then what is left of the model."""
    mesh = init_device_mesh("cpu", (size,))
    stack = model[1]
    for layer in stack:
        fully_shard(layer, mesh=mesh)
    fully_shard(stack.memory.learned_order, mesh=mesh)  # by itself: where others have an mp_policy, it has none
    fully_shard(model, mesh=mesh)


def trained(rank: int, size: int) -> list[float]:
    """The loss of the whole batch before each step."""
    model = made_model()
    if size > 1:
        shard(model, size)
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.01), lr=0.01)  # of the shards, so after shard
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    x = x.chunk(size)[rank]  # parts of equal size, so that the mean of their gradients is that of the whole
    losses = []
    for _ in range(STEPS):
        loss = (model(x) - x.norm(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean_over_processes(loss.detach(), size))
    return losses


def mean_over_processes(loss: torch.Tensor, size: int) -> float:
    if size > 1:
        distributed.all_reduce(loss)
    return float(loss) / size


def main() -> None:
    rank, size = 0, 1
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo")
        rank, size = distributed.get_rank(), distributed.get_world_size()
    for step, loss in enumerate(trained(rank, size)):
        if rank == 0:
            print(f"step {step}: loss {loss:.6f}")
    if size > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
