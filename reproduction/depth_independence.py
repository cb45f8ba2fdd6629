"""The paper's claim that the optimizer's iterations do not depend on the number of layers: T = Nτ fixed, N growing."""

import copy
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import BFGS, Iteration
from fracdnn.training import Objective, Regularization, Task, normalize_batch
from reproduction.paper_training import level_set_split, paper_network

STARTS = {
    "scratch": "each layer drawn by itself",
    "prolonged": "the coarsest network's random start, prolonged in time",
    "trained": "the next coarser network, trained, prolonged in time",
}


@dataclass(frozen=True)
class DepthIndependence:
    """Level sets, all samples at once, BFGS until the objective falls to `target`; ξ_W = `class_map`."""

    depths: tuple[int, ...] = (5, 10, 20, 40, 80)
    orders: tuple[float, ...] = (1.0, 0.5, 0.1)
    final_time: float = 1.0
    n_points: int = 1000
    class_map: float = 1e-3
    target: float = 0.02
    max_iter: int = 1000
    seeds: tuple[int, ...] = tuple(range(20))


class Reached(Exception):  # noqa: N818
    """The target is met."""


def jobs(settings: DepthIndependence) -> list[dict[str, Any]]:
    return [
        {"order": order, "start": start, "seed": seed}
        for order in settings.orders
        for start in STARTS
        for seed in settings.seeds
    ]


def work(settings: DepthIndependence, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    return {"target": settings.target, "steps": _ladder(**job, settings=settings)}


def _ladder(order: float, start: str, seed: int, settings: DepthIndependence) -> list[dict[str, Any]]:
    """Networks of growing depth, each trained to the target."""
    X, _, y, _ = level_set_split(settings.n_points, seed)
    X = normalize_batch(X)
    steps: list[dict[str, Any]] = []
    coarser: FractionalNetwork | None = None
    for n_layers in settings.depths:
        generator = torch.Generator().manual_seed(seed)
        step = settings.final_time / n_layers
        network = paper_network(X, y, generator, n_layers=n_layers, order=order, step_size=step)
        if start != "scratch" and coarser is not None:
            prolong(coarser, network)
        if start == "prolonged" and coarser is None:
            coarser = copy.deepcopy(network)
        task = Task(network, Objective(regularization=Regularization(decay_output=settings.class_map)), X, y)
        steps.append({"n_layers": n_layers, **_to_target(task, settings)})
        if start == "trained":
            coarser = network
    return steps


@torch.no_grad()
def prolong(coarse: FractionalNetwork, fine: FractionalNetwork) -> None:
    """K and b linear in time between the layers of the coarse network, at the layers of the fine one; W as it is."""
    fine.W.copy_(coarse.W)
    n, m = len(coarse.K), len(fine.K)
    for j in range(m):
        # Layer j stands at time j T/m, layer i of the coarse network at i T/n.
        place = min(j * n / m, n - 1)
        low = min(int(place), n - 1)
        high, share = min(low + 1, n - 1), place - low
        for wide, narrow in ((fine.K, coarse.K), (fine.b, coarse.b)):
            if wide is not None and narrow is not None:
                wide[j].copy_(torch.lerp(narrow[low], narrow[high], share))


def _to_target(task: Task, settings: DepthIndependence) -> dict[str, Any]:
    evaluations, iterations, reached = 0, 0, False

    def closure() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = task.loss()
        loss.backward()
        return loss

    def watch(iteration: Iteration) -> None:
        nonlocal iterations, reached
        iterations += 1
        if iteration.loss <= settings.target:
            reached = True
            raise Reached

    optimizer = BFGS(task.network.parameters(), max_iter=settings.max_iter, callback=watch)
    first = float(task.loss().detach())
    reached = first <= settings.target
    if not reached:
        with suppress(Reached):
            optimizer.step(closure)
    return {"iterations": iterations, "evaluations": evaluations, "reached": reached, "first_loss": first}
