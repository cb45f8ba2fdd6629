"""The perfume columns of Table 2 by compiled loops: the same start, mini-batches and optimizer as `paper_training`."""

import torch

from fracdnn.nn import FractionalNetwork
from reproduction.fast_training import Fit, fit_batches
from reproduction.paper_training import Setting, Split, paper_network


def perfume_network(
    setting: Setting, split: Split, seed: int, *, adjoint: str = "exact", residual: bool = True
) -> tuple[FractionalNetwork, torch.Generator]:
    """The network with random weights, and the generator that mini-batches are drawn from next."""
    generator = torch.Generator().manual_seed(seed)
    network = paper_network(
        split[0],
        split[2],
        generator,
        n_layers=setting.n_layers,
        order=setting.order,
        step_size=setting.step_size,
        adjoint=adjoint,
        residual=residual,
    )
    return network, generator


def half_batches(setting: Setting, n: int, generator: torch.Generator) -> torch.Tensor:
    """m1 random halves of n samples."""
    return torch.stack([torch.randperm(n, generator=generator)[: n // 2] for _ in range(setting.n_batches)])


def train_perfumes(
    setting: Setting, network: FractionalNetwork, split: Split, batches: torch.Tensor, *, method: str = "bfgs"
) -> Fit:
    assert not setting.operator
    assert not setting.bias
    return fit_batches(
        network,
        split[0],
        split[2],
        batches,
        iterations=setting.iterations,
        normalization=setting.normalization,
        method=method,
        decay_class_map=setting.class_map,
    )
