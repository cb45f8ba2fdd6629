"""The order learned on held-out samples (bilevel): outside the order, inside a network trained with it.

Two thirds of the training samples train, a third chooses the order, and the test samples judge it. One number is
learned outside, so a search by values is enough: a grid, then smaller and smaller steps about its best order. With
several trainings at each order, their mean loss decides, since a single one depends on where BFGS ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fracdnn.datasets import Perfume
from reproduction.fast_training import fit_all
from reproduction.learned_order import held_step
from reproduction.paper_training import level_set_split, paper_network, perfume_split


@dataclass(frozen=True)
class HeldOutOrder:
    """Trained as in the part on learned orders, on two thirds of its samples; perfumes by time."""

    grid: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    refinements: int = 3
    trainings: int = 3
    layers: tuple[tuple[str, int], ...] = (("CLS", 5), ("PD", 35))
    holds: tuple[str, ...] = ("horizon", "τ")
    n_points: int = 1000
    max_iter: int = 200
    class_map: float = 1e-4
    step_size: float = 0.2
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: HeldOutOrder) -> list[dict[str, Any]]:
    return [
        {"data": data, "n_layers": n_layers, "held": held, "seed": seed}
        for data, n_layers in settings.layers
        for held in settings.holds
        for seed in settings.seeds
    ]


def work(settings: HeldOutOrder, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """The order chosen, and for it and for order 1: loss on the held-out and on the test samples, and accuracy."""
    assert perfume is not None
    seed = job["seed"]
    split = level_set_split(settings.n_points, seed) if job["data"] == "CLS" else perfume_split(perfume, by_time=True)
    rows = torch.randperm(len(split[0]), generator=torch.Generator().manual_seed(seed))
    third = len(rows) // 3
    X, y, held_X, held_y = (
        split[0][rows[third:]],
        split[2][rows[third:]],
        split[0][rows[:third]],
        split[2][rows[:third]],
    )
    mean, deviation = X.mean(0), X.std(0)  # of what trains: a random third has others
    X, held_X, test_X = ((x - mean) / deviation for x in (X, held_X, split[1]))
    sets = {"held_out": (held_X, held_y), "test": (test_X, split[3])}

    @cache
    def found(order: float) -> dict[str, float]:
        """Means over trainings that begin elsewhere."""
        step = held_step(job["held"], order, job["n_layers"], settings.step_size)
        each = []
        for number in range(settings.trainings):
            generator = torch.Generator().manual_seed(1000 * seed + number)
            network = paper_network(X, y, generator, n_layers=job["n_layers"], order=order, step_size=step)
            fit_all(network, X, y, max_iter=settings.max_iter, decay_class_map=settings.class_map)
            each.append(_scores(network, sets))
        return {name: round(sum(one[name] for one in each) / len(each), 6) for name in each[0]}

    order = least(lambda order: found(order)["held_out_loss"], settings.grid, settings.refinements)
    return {
        "order": order,
        **{f"chosen_{name}": value for name, value in found(order).items()},
        **{f"residual_{name}": value for name, value in found(1.0).items()},
    }


def least(value: Callable[[float], float], grid: tuple[float, ...], refinements: int) -> float:
    """Where a value is least: on the grid, then again and again in the middles to the neighbors of the best one."""
    tried = sorted(grid)
    best = min(tried, key=value)
    for _ in range(refinements):
        place = tried.index(best)
        near = tried[max(place - 1, 0) : place + 2]
        tried = sorted({*tried, *(round((best + other) / 2, 6) for other in near)})
        best = min(tried, key=value)
    return best


@torch.no_grad()
def _scores(network: torch.nn.Module, sets: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    scores = {}
    for name, (x, labels) in sets.items():
        outputs = network(x)
        scores[f"{name}_loss"] = float(cross_entropy(outputs, labels))
        scores[f"{name}_accuracy"] = 100 * float((outputs.argmax(1) == labels).double().mean())
    return scores
