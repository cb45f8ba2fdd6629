"""The paper's figure on vanishing gradients: first and last layer of plain, residual and fractional networks."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.experiments.jobs import in_parallel
from fracdnn.experiments.paper_training import paper_network, perfume_split
from fracdnn.experiments.part import Numbers, Part, Row, Table, Tick
from fracdnn.report.experiment_figures import vanishing_gradient_figure
from fracdnn.training import FullBatchTraining, Objective, Task, normalize_batch
from fracdnn.training.history import layer_gradient_norms


@dataclass(frozen=True)
class Kind:
    """A network: the plain one has no skip connections, order 1 is residual; with the exact or the printed adjoint."""

    residual: bool
    order: float
    adjoint: str = "exact"

    @property
    def name(self) -> str:
        base = "plain" if not self.residual else "residual" if self.order == 1.0 else f"order {self.order:g}"
        return base if self.adjoint == "exact" else f"{base}, printed"


@dataclass(frozen=True)
class VanishingGradient:
    """70 layers, no regularisation, steepest descent on the perfume data, as in the paper; its iterations are ours."""

    kinds: tuple[Kind, ...] = (
        Kind(False, 1.0),
        Kind(True, 1.0),
        Kind(True, 0.9),
        Kind(True, 0.5),
        Kind(True, 0.1),
        Kind(True, 1.0, "continuous"),
        Kind(True, 0.9, "continuous"),
        Kind(True, 0.5, "continuous"),
        Kind(True, 0.1, "continuous"),
    )
    n_layers: int = 70
    step_size: float = 0.2
    iterations: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)


def run(settings: VanishingGradient, perfume: Perfume | None, tick: Tick) -> Numbers:
    assert perfume is not None
    wanted = [(kind, seed) for kind in settings.kinds for seed in settings.seeds]
    curves = in_parallel(_curve, [(kind, seed, settings, perfume) for kind, seed in wanted], tick)
    return {
        "curves": [
            {**asdict(kind), "name": kind.name, "seed": seed, **curve}
            for (kind, seed), curve in zip(wanted, curves, strict=True)
        ]
    }


def _curve(kind: Kind, seed: int, settings: VanishingGradient, perfume: Perfume) -> Numbers:
    X, _, y, _ = perfume_split(perfume, by_time=False)
    generator = torch.Generator().manual_seed(seed)
    network = paper_network(
        X,
        y,
        generator,
        n_layers=settings.n_layers,
        order=kind.order,
        step_size=settings.step_size,
        residual=kind.residual,
        adjoint=kind.adjoint,
    )
    task = Task(network, Objective(), normalize_batch(X), y, None, generator)
    loss = task.loss()
    loss.backward()
    norms, losses = [layer_gradient_norms(network)], [float(loss.detach())]
    history = FullBatchTraining("steepest", settings.iterations, tolerance=0.0).fit(task)
    norms += history.column("layer_gradients")
    losses += history.column("loss")
    return {
        "first": [float(f"{norm[0]:.6g}") for norm in norms],
        "last": [float(f"{norm[-1]:.6g}") for norm in norms],
        "loss": [float(f"{loss:.6g}") for loss in losses],
        "status": history.status,
    }


def ratio(curve: dict[str, Any]) -> float:
    """First over last layer, geometric mean over the points of the descent, the start among them."""
    ratios = torch.tensor(curve["first"], dtype=torch.float64) / torch.tensor(curve["last"], dtype=torch.float64)
    return float(ratios.log().mean().exp())


def _by_name(numbers: Numbers) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for curve in numbers["curves"]:
        groups.setdefault(curve["name"], []).append(curve)
    return groups


def _spread(values: list[float]) -> str:
    return f"{min(values):.2g} to {max(values):.2g}"


def rows(numbers: Numbers) -> list[Row]:
    paper = {"plain": "vanishes", "residual": "about 0.1", "order 0.9": "same magnitude"}
    groups = _by_name(numbers)
    return [
        Row(f"gradient norm, first / last layer, {name}", paper.get(name, "-"), _spread([ratio(c) for c in curves]))
        for name, curves in groups.items()
        if not name.endswith("printed")
    ]


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    for name, curves in _by_name(numbers).items():
        at_start = [c["first"][0] / c["last"][0] for c in curves]
        steps = " / ".join(str(len(c["loss"]) - 1) for c in curves)
        spreads = [_spread(each) for each in (at_start, [ratio(c) for c in curves], [c["loss"][-1] for c in curves])]
        lines.append([name, *spreads, steps])
    headings = ("network", "first / last at the start", "mean over all steps", "final loss", "steps taken, by seed")
    return [Table("Gradient norm of (K, b) at the first layer over the last; range over the seeds", headings, lines)]


PART = Part(
    name="vanishing-gradient",
    title="Gradient norms at the first and last of 70 layers",
    full=VanishingGradient(),
    quick=VanishingGradient(iterations=5, seeds=(0,)),
    units=lambda settings: len(settings.kinds) * len(settings.seeds),
    run=run,
    figure=vanishing_gradient_figure,
    rows=rows,
    tables=tables,
    needs_perfume=True,
)
