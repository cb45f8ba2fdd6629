"""Networks of the paper's size: value and gradient of the full objective, with regularization.

"ours" is what training runs, "plain" one weighted sum per layer under autograd, "naive" the double loop of Alg. 1 under
autograd. As in training, where the step before was one's own, a rival goes twice and the second time counts.
"""

from functools import cached_property, partial
from typing import Any

import torch

from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.networks import (
    NaiveNetwork,
    PlainNetwork,
    exact_value_and_gradient,
    step,
    twin,
    value_and_gradient,
)
from benchmarks.ways import distance
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Regularization

N_LAYERS, N_CLASSES = 35, 4
CHUNK = 5000
OBJECTIVE = Objective(regularization=Regularization(decay_output=1e-3, smooth=1e-3, decay_bias=1e-3))
OTHERS = {"plain": PlainNetwork, "naive": NaiveNetwork}
TARGETS = (
    Target("paper's size: plain autograd / ours", "plain", "ours", at_least=1),
    Target("paper's size: double loop / ours", "naive", "ours", at_least=2),
)


class PaperSize:
    """One network and its twins, on the same samples."""

    def __init__(self, width: int, n: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.network = FractionalNetwork(
            width, N_CLASSES, n_layers=N_LAYERS, order=0.5, step_size=0.2, generator=generator
        ).double()
        self.x = torch.randn(n, width, dtype=torch.float64, generator=generator)
        self.target = torch.arange(n) % N_CLASSES

    @cached_property
    def expected(self) -> list[torch.Tensor]:
        return exact_value_and_gradient(OBJECTIVE, self.network, self.x, self.target, CHUNK)

    def value_and_gradient(self, network: FractionalNetwork) -> list[torch.Tensor]:
        return value_and_gradient(OBJECTIVE, network, self.x, self.target)

    def error(self, network: FractionalNetwork) -> float:
        return distance(self.value_and_gradient(network), self.expected)

    def ours(self) -> Rival:
        return self._rival(self.network)

    def other(self, name: str) -> Rival:
        return self._rival(twin(self.network, OTHERS[name]))

    def _rival(self, network: FractionalNetwork) -> Rival:
        return Rival(
            partial(step, OBJECTIVE, network, self.x, self.target),
            partial(self.error, network),
            tolerance=1e-10,
            prepare=network.zero_grad,
        )


def rivals(*names: str) -> dict[str, Any]:
    """Ours and the named others."""
    return {"ours": PaperSize.ours, **{name: partial(_other, name) for name in names}}


def _other(name: str, problem: PaperSize) -> Rival:
    return problem.other(name)


def cases(options: Options) -> list[Case]:
    sizes = [(2, 280), (4, 60)] if options.quick else [(w, n) for w in (2, 4, 8, 16) for n in (280, 560, 5000)]
    return [
        Case(
            name=f"width {width}, {n} samples",
            settings={"width": width, "samples": n},
            build=partial(PaperSize, width, n),
            rivals=rivals("plain", "naive"),
            turns=3 if options.quick else 15,
            settle=1,
            targets=TARGETS,
        )
        for width, n in sizes
    ]


GROUP = Group(
    "paper-size", "value and gradient of the objective for networks of the paper's size, 35 layers, float64", cases
)
