"""The paper's derivative test: gradients for W, K and b against central differences, exact and printed adjoint."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fracdnn.datasets import Perfume
from reproduction.arms import step_factor
from reproduction.printed_adjoint import network_with

Groups = dict[str, list[Any]]
Loss = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class GradientTest:
    """A network of the paper's kind (two features, scalar biases) with random weights and labels."""

    n_samples: int = 100
    n_features: int = 2
    n_classes: int = 3
    n_layers: int = 20
    step_size: float = 0.2
    orders: tuple[float, ...] = (1.0, 0.9, 0.5, 0.1)
    increments: tuple[float, ...] = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
    seed: int = 0


@dataclass(frozen=True)
class Comparison:
    """One order and one adjoint: |central difference − ⟨gradient, direction⟩| / |central difference| by increment.

    `off` is the norm of the difference to the exact gradient of K, or of b, over the norm of the latter. `cosine` is
    that between the two over all K and b, `first_layer` the ratio of their norms at the first layer's K, and
    `first_layer_with_c` the same with the factor c, which the printed one lacks, put back.
    """

    order: float
    adjoint: str
    errors: dict[str, list[float]]
    off: dict[str, float]
    cosine: float
    first_layer: float
    first_layer_with_c: float


def compare(test: GradientTest, order: float, adjoint: str) -> Comparison:
    groups, loss = _problem(test, order, adjoint)
    gradients = _gradients(loss(), groups)
    exact_groups, exact_loss = _problem(test, order, "exact")
    exact = _gradients(exact_loss(), exact_groups)
    generator = torch.Generator().manual_seed(test.seed + 2)
    errors = {}
    for name, parameters in groups.items():
        directions = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in parameters]
        predicted = sum(float((g * d).sum()) for g, d in zip(gradients[name], directions, strict=True))
        differences = [_central_difference(loss, parameters, directions, size) for size in test.increments]
        errors[name] = [abs(difference - predicted) / abs(difference) for difference in differences]
    ours, theirs = (torch.cat([g.reshape(-1) for g in (*found["K"], *found["b"])]) for found in (gradients, exact))
    (of_layers,), (of_exact,) = gradients["K"], exact["K"]  # [n_layers, n_features, n_features]
    first_layer = float(of_layers[0].norm() / of_exact[0].norm())
    return Comparison(
        order=order,
        adjoint=adjoint,
        errors=errors,
        off={name: float((gradients[name][0] - exact[name][0]).norm() / exact[name][0].norm()) for name in ("K", "b")},
        cosine=float(torch.cosine_similarity(ours, theirs, dim=0)),
        first_layer=first_layer,
        first_layer_with_c=first_layer * (1.0 if adjoint == "exact" else step_factor(order, test.step_size)),
    )


def _problem(test: GradientTest, order: float, adjoint: str) -> tuple[Groups, Loss]:
    generator = torch.Generator().manual_seed(test.seed)
    network = network_with(
        adjoint,
        test.n_features,
        test.n_classes,
        n_layers=test.n_layers,
        order=order,
        step_size=test.step_size,
        bias="scalar",
        generator=generator,
    ).double()
    assert network.b is not None
    nn.init.normal_(network.b, 0.0, 0.3, generator=generator)
    x = torch.randn(test.n_samples, test.n_features, dtype=torch.float64, generator=generator)
    target = torch.randint(test.n_classes, (test.n_samples,), generator=generator)
    groups: Groups = {"W": [network.W], "K": [network.K], "b": [network.b]}
    return groups, lambda: cross_entropy(network(x), target)


def _gradients(loss: torch.Tensor, groups: Groups) -> dict[str, list[torch.Tensor]]:
    names = list(groups)
    flat = torch.autograd.grad(loss, [p for name in names for p in groups[name]])
    found, start = {}, 0
    for name in names:
        found[name] = list(flat[start : start + len(groups[name])])
        start += len(groups[name])
    return found


@torch.no_grad()
def _central_difference(loss: Loss, parameters: list, directions: list, size: float) -> float:
    values = []
    for move in (size, -2 * size):
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.add_(direction, alpha=move)
        values.append(float(loss()))
    for parameter, direction in zip(parameters, directions, strict=True):
        parameter.add_(direction, alpha=size)
    return (values[0] - values[1]) / (2 * size)


def jobs(test: GradientTest) -> list[dict[str, Any]]:
    return [
        {"order": order, "adjoint": adjoint}
        for order in test.orders
        for adjoint in (("exact", "classical", "continuous") if order == 1.0 else ("exact", "continuous"))
    ]


def work(test: GradientTest, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    return {"increments": list(test.increments), **asdict(compare(test, **job))}
