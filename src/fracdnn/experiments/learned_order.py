"""The paper's remark that the order can be learned: where it ends from several starts, against fixed orders."""

from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.experiments.jobs import in_parallel
from fracdnn.experiments.paper_training import Split, level_set_split, paper_network, perfume_split
from fracdnn.experiments.part import Numbers, Part, Row, Table, Tick, percent
from fracdnn.report.experiment_figures import learned_order_figure
from fracdnn.training import FullBatchTraining, Objective, Regularization, Task, accuracy, normalize_batch


@dataclass(frozen=True)
class LearnedOrder:
    """BFGS on all training samples; networks of the paper's width. Perfumes by the time split."""

    starts: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    fixed: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    layers: tuple[tuple[str, int], ...] = (("CLS", 5), ("PD", 35))
    n_points: int = 1000
    max_iter: int = 500
    class_map: float = 1e-4
    step_size: float = 0.2
    seeds: tuple[int, ...] = (0, 1, 2)


def jobs(settings: LearnedOrder) -> list[tuple[str, int, bool, float, int]]:
    """Data, layers, whether the order is learned, the order it starts from, and the seed."""
    cases = [(True, order) for order in settings.starts] + [(False, order) for order in settings.fixed]
    return [
        (data, n_layers, learn, order, seed)
        for data, n_layers in settings.layers
        for learn, order in cases
        for seed in settings.seeds
    ]


def run(settings: LearnedOrder, perfume: Perfume | None, tick: Tick) -> Numbers:
    assert perfume is not None
    wanted = jobs(settings)
    splits = {seed: level_set_split(settings.n_points, seed) for seed in settings.seeds}
    by_time = perfume_split(perfume, by_time=True)
    arguments = [(splits[job[-1]] if job[0] == "CLS" else by_time, *job, settings) for job in wanted]
    found = in_parallel(_learn, arguments, tick)
    names = ("data", "n_layers", "learned", "start", "seed")
    return {"runs": [{**dict(zip(names, job, strict=True)), **each} for job, each in zip(wanted, found, strict=True)]}


def _learn(
    split: Split, data: str, n_layers: int, learn: bool, order: float, seed: int, settings: LearnedOrder
) -> Numbers:
    X_train, X_test, y_train, y_test = split
    X_train, X_test = normalize_batch(X_train), normalize_batch(X_test)
    generator = torch.Generator().manual_seed(seed)
    options = {"n_layers": n_layers, "order": order, "step_size": settings.step_size, "learn_order": learn}
    network = paper_network(X_train, y_train, generator, **options)
    objective = Objective(regularization=Regularization(class_map=settings.class_map))
    history = FullBatchTraining("bfgs", settings.max_iter).fit(Task(network, objective, X_train, y_train))
    return {
        "order": float(network.order.detach()),
        "loss": history.records[-1].loss,
        "train": accuracy(network, X_train, y_train),
        "test": accuracy(network, X_test, y_test),
    }


def _group(numbers: Numbers, data: str, learned: bool) -> dict[float, list[dict[str, Any]]]:
    groups: dict[float, list[dict[str, Any]]] = {}
    for r in numbers["runs"]:
        if r["data"] == data and r["learned"] == learned:
            groups.setdefault(r["start"], []).append(r)
    return groups


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for data in dict.fromkeys(r["data"] for r in numbers["runs"]):
        learned = [r for group in _group(numbers, data, True).values() for r in group]
        ends = [r["order"] for r in learned]
        fixed = _group(numbers, data, False)
        best = max(fixed, key=lambda order: sum(r["test"] for r in fixed[order]))
        found += [
            Row(f"{data}: learned order, range over starts and seeds", "-", f"{min(ends):.3f} to {max(ends):.3f}"),
            Row(f"{data}: test accuracy, order learned, %", "-", percent([r["test"] for r in learned])),
            Row(
                f"{data}: test accuracy, best fixed order ({best:g}), %", "-", percent([r["test"] for r in fixed[best]])
            ),
        ]
    return found


def tables(numbers: Numbers) -> list[Table]:
    found = []
    for data in dict.fromkeys(r["data"] for r in numbers["runs"]):
        lines = []
        for learned, word in ((True, "learned, from"), (False, "fixed at")):
            for start, group in _group(numbers, data, learned).items():
                ends = [r["order"] for r in group]
                loss = sum(r["loss"] for r in group) / len(group)
                ended = f"{min(ends):.3f} to {max(ends):.3f}" if learned else "-"
                accuracies = [percent([r[name] for r in group]) for name in ("train", "test")]
                lines.append([f"{word} {start:g}", ended, f"{loss:.2e}", *accuracies])
        headings = ("order", "ends at", "final loss, mean", "training, %", "test, %")
        found.append(Table(f"{data}: the order learned and fixed; mean and range over the seeds", headings, lines))
    return found


PART = Part(
    name="learned-order",
    title="The order as a parameter",
    full=LearnedOrder(),
    quick=LearnedOrder(starts=(0.5,), fixed=(0.5, 1.0), n_points=200, max_iter=15, seeds=(0,)),
    units=lambda settings: len(jobs(settings)),
    run=run,
    figure=learned_order_figure,
    rows=rows,
    tables=tables,
    needs_perfume=True,
)
