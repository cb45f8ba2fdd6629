"""The paper's perfume training (N = 35, order 0.9, 567 mini-batches of 15 BFGS iterations), a stretch and whole.

Every rival trains the same network from the same start on the same mini-batches with the library's BFGS: "ours" as it
comes, "exact" with compress=False, "plain" by one weighted sum a layer under autograd. Checked: the losses of all
iterations on the first mini-batch. Later ones part: BFGS enlarges the rounding, so the number of objective evaluations
differs a little and is noted.
"""

from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.case import Case, Group, Options, Rival
from benchmarks.networks import DefinitionNetwork, PlainNetwork, twin
from benchmarks.profile import shares
from benchmarks.ways import distance
from fracdnn.datasets import Perfume, load_perfume
from fracdnn.exceptions import DownloadError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Task
from reproduction.paper_training import Split, perfume_split, task_of, training_of
from reproduction.table import TableSettings

# The table, if it lies where the tests look for it.
NEIGHBOUR = Path(__file__).parents[3] / "shared" / "data" / "perfume.csv"
KINDS = {"exact": FractionalNetwork, "plain": PlainNetwork, "definition": DefinitionNetwork}


def data(options: Options) -> tuple[Split, str]:
    """The 560 samples, or as many made ones of 20 classes where the table is not to be had."""
    path = options.perfume or (NEIGHBOUR if NEIGHBOUR.exists() else None)
    if path is not None or not options.quick:
        try:
            return perfume_split(load_perfume(path), by_time=False), "perfume table"
        except DownloadError:
            pass
    generator = np.random.default_rng(0)
    target = np.repeat(np.arange(20), 28)
    points = generator.normal(size=(20, 2))[target] + 0.1 * generator.normal(size=(560, 2))
    made = Perfume(points, target, np.tile(np.arange(1, 29), 20), [str(k) for k in range(20)])
    return perfume_split(made, by_time=False), "made, of the same shape"


class Training:
    """The same training, with networks of several kinds."""

    def __init__(self, n_batches: int, options: Options) -> None:
        column = next(c for c in TableSettings().columns if c.data == "PD" and c.order < 1)
        self.setting = replace(column, n_batches=n_batches)
        self.split, self.source = data(options)
        self.tasks: dict[str, Task] = {}
        self.told: dict[str, dict[str, Any]] = {}

    def start(self, kind: str) -> None:
        task = task_of(self.setting, self.split, seed=0)
        self.tasks[kind] = task if kind == "ours" else replace(task, network=twin(task.network, KINDS[kind]))

    def run(self, kind: str) -> None:
        history = training_of(self.setting).fit(self.tasks[kind])
        iterations, trials = len(history.records), history.line_search_trials
        self.told[kind] = {"iterations": iterations, "trials": trials, "data": self.source}

    def first_losses(self, kind: str) -> torch.Tensor:
        self.start(kind)
        history = training_of(replace(self.setting, n_batches=1)).fit(self.tasks[kind])
        return torch.tensor([record.loss for record in history.records], dtype=torch.float64)

    @cached_property
    def expected(self) -> torch.Tensor:
        return self.first_losses("definition")

    def profile(self, kind: str) -> dict[str, Any]:
        self.start(kind)
        return {**self.told[kind], "shares": shares(partial(self.run, kind))}


def rival(kind: str, problem: Training) -> Rival:
    return Rival(
        partial(problem.run, kind),
        lambda: distance([problem.first_losses(kind)], [problem.expected]),
        tolerance=1e-6,
        prepare=partial(problem.start, kind),
        notes=partial(problem.profile, kind),
    )


def cases(options: Options) -> list[Case]:
    n_batches, whole = (2, 3) if options.quick else (20, 567)
    kinds = ("ours", "exact", "plain")
    return [
        Case(
            name=f"{n_batches} mini-batches",
            settings={"mini-batches": n_batches},
            build=partial(Training, n_batches, options),
            rivals={kind: partial(rival, kind) for kind in kinds},
            turns=1 if options.quick else 5,
            warm_turns=0,
        ),
        Case(
            name=f"{whole} mini-batches, the whole",
            settings={"mini-batches": whole},
            build=partial(Training, whole, options),
            rivals={"ours": partial(rival, "ours")},
            turns=1,
            warm_turns=0,
        ),
    ]


GROUP = Group("perfume", "the paper's perfume training, 35 layers, order 0.9, BFGS, end to end", cases)
