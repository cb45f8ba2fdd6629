"""The paper's remark that the order can be learned, with τ, the step factor or the horizon held while it moves."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fracdnn.caputo.weights import gamma, memory_matrix
from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import BFGS
from fracdnn.training import accuracy, normalize_batch
from reproduction.fast_training import fit_all
from reproduction.paper_training import level_set_split, paper_network, perfume_split

HOLDS = ("τ", "c", "horizon")


@dataclass(frozen=True)
class LearnedOrder:
    """BFGS on all training samples; what is held is that of a residual network with `step_size`. Perfumes by time."""

    starts: tuple[float, ...] = (0.1, 0.5, 0.9)
    fixed: tuple[float, ...] = (0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    layers: tuple[tuple[str, int], ...] = (("CLS", 5), ("PD", 35))
    holds: tuple[str, ...] = HOLDS
    n_points: int = 1000
    max_iter: int = 200
    class_map: float = 1e-4
    step_size: float = 0.2
    seeds: tuple[int, ...] = tuple(range(10))


def jobs(settings: LearnedOrder) -> list[dict[str, Any]]:
    cases = [(True, order) for order in settings.starts] + [(False, order) for order in settings.fixed]
    return [
        {"data": data, "n_layers": n_layers, "held": held, "learned": learned, "order": order, "seed": seed}
        for data, n_layers in settings.layers
        for held in settings.holds
        for learned, order in cases
        for seed in settings.seeds
    ]


def work(settings: LearnedOrder, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    assert perfume is not None
    if job["data"] == "CLS":
        X, X_test, y, y_test = level_set_split(settings.n_points, job["seed"])
    else:
        X, X_test, y, y_test = perfume_split(perfume, by_time=True)
    X, X_test = normalize_batch(X), normalize_batch(X_test)
    return (_learned if job["learned"] else _fixed)(settings, job, X, X_test, y, y_test)


def held_factor(held: str, order: torch.Tensor, n_layers: int, step_size: float) -> torch.Tensor:
    """The step factor c as a function of the order.

    Where τ is held, c = Γ(2−order) τ^order; a held horizon H = T^order/Γ(1+order), T = Nτ, makes it
    Γ(2−order) Γ(1+order) H / N^order. At order 1 all three are the same.
    """
    if held == "c":
        return torch.full_like(order, step_size)
    if held == "τ":
        return gamma(2.0 - order) * step_size**order
    return gamma(2.0 - order) * gamma(1.0 + order) * (n_layers * step_size) * n_layers ** (-order)


def held_step(held: str, order: float, n_layers: int, step_size: float) -> float:
    """The τ that gives this c."""
    factor = float(held_factor(held, torch.tensor(order, dtype=torch.float64), n_layers, step_size))
    return (factor / math.gamma(2 - order)) ** (1 / order)


class HeldNetwork(nn.Module):
    """The paper's network with an order in (0, 1) among its parameters, and c as a function of it."""

    def __init__(self, network: FractionalNetwork, order: float, held: str, step_size: float) -> None:
        super().__init__()
        assert network.b is not None
        self.K, self.b, self.W = network.K, network.b, network.W
        self.raw = nn.Parameter(torch.logit(torch.tensor([order], dtype=torch.float64)))
        self._held, self._step_size = held, step_size

    def order(self) -> torch.Tensor:
        return torch.sigmoid(self.raw[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_layers, order = len(self.K), self.order()
        weights = memory_matrix(order, n_layers)
        factor = held_factor(self._held, order, n_layers, self._step_size)
        states = x.unsqueeze(0)
        for j in range(n_layers):
            step = torch.tanh(states[-1] @ self.K[j].T + self.b[j])
            new = torch.tensordot(weights[j, : j + 1], states, 1) + factor * step
            states = torch.cat([states, new.unsqueeze(0)])
        return states[-1] @ self.W.T


def _learned(
    settings: LearnedOrder,
    job: dict[str, Any],
    X: torch.Tensor,
    X_test: torch.Tensor,
    y: torch.Tensor,
    y_test: torch.Tensor,
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(job["seed"])
    start = paper_network(X, y, generator, n_layers=job["n_layers"], order=job["order"])
    network = HeldNetwork(start, job["order"], job["held"], settings.step_size)
    optimizer = BFGS(network.parameters(), max_iter=settings.max_iter)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(network(X), y) + 0.5 * settings.class_map * network.W.square().sum()
        loss.backward()
        return loss

    loss = float(optimizer.step(closure))
    with torch.no_grad():
        shares = [float((network(x).argmax(1) == labels).double().mean()) for x, labels in ((X, y), (X_test, y_test))]
    return {"ends": float(network.order().detach()), "loss": loss, "train": shares[0], "test": shares[1]}


def _fixed(
    settings: LearnedOrder,
    job: dict[str, Any],
    X: torch.Tensor,
    X_test: torch.Tensor,
    y: torch.Tensor,
    y_test: torch.Tensor,
) -> dict[str, Any]:
    step = held_step(job["held"], job["order"], job["n_layers"], settings.step_size)
    generator = torch.Generator().manual_seed(job["seed"])
    network = paper_network(X, y, generator, n_layers=job["n_layers"], order=job["order"], step_size=step)
    fit = fit_all(network, X, y, max_iter=settings.max_iter, decay_class_map=settings.class_map)
    return {
        "loss": float(fit.losses[-1]),
        "train": accuracy(network, X, y),
        "test": accuracy(network, X_test, y_test),
    }
