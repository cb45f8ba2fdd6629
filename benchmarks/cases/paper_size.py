"""Networks of the paper's size: value and gradient of the full objective, with regularisation.

"ours" is what training runs, within `joined`; "blocked" the library in torch operations (history="exact"), "plain" one
weighted sum a layer under autograd, "naive" the double loop of Alg. 1 under autograd. As in training, where the step
before was one's own, a rival goes twice and the second time counts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch

from benchmarks.registry import Case, Options, Rival, Target, group
from benchmarks.ways import DefinitionNetwork, NaiveNetwork, PlainNetwork, distance, twin
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Regularization

N_LAYERS, N_CLASSES = 35, 4
CHUNK = 5000
OBJECTIVE = Objective(regularization=Regularization(class_map=1e-3, operator=1e-3, bias=1e-3))
OTHERS = {"blocked": FractionalNetwork, "plain": PlainNetwork, "naive": NaiveNetwork}
TARGETS = (
    Target("paper's size: plain autograd / ours", "plain", "ours", at_least=8),
    Target("paper's size: double loop / ours", "naive", "ours", at_least=40),
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
        self.parameters: list[Any] = []

    @cached_property
    def expected(self) -> list[torch.Tensor]:
        """Value and gradient by the definition, some samples at a time: its graph holds every pair of layers."""
        network = twin(self.network, DefinitionNetwork)
        value = OBJECTIVE.regularization(network)
        value.backward()
        for x, target in zip(self.x.split(CHUNK), self.target.split(CHUNK), strict=True):
            part = OBJECTIVE.data_loss(network(x), target, None) * (len(x) / len(self.x))
            part.backward()
            value = value + part.detach()
        return [value.detach(), *(p.grad for p in network.parameters())]

    def value_and_gradient(self, network: FractionalNetwork) -> list[torch.Tensor]:
        network.zero_grad()
        with network.joined(self.x) as parameters:
            _clear(parameters)
            value, _ = OBJECTIVE.backward(network, self.x, self.target)
        return [torch.tensor(value, dtype=torch.float64), *(p.grad for p in network.parameters())]

    def run(self, network: FractionalNetwork) -> None:
        OBJECTIVE.backward(network, self.x, self.target)

    @contextmanager
    def joined(self) -> Iterator[None]:
        with self.network.joined(self.x) as parameters:
            self.parameters = [*parameters, *self.network.parameters()]
            yield

    def ours(self) -> Rival:
        return Rival(
            partial(self.run, self.network),
            lambda: distance(self.value_and_gradient(self.network), self.expected),
            tolerance=1e-10,
            prepare=lambda: _clear(self.parameters),
            around=self.joined,
        )

    def other(self, name: str) -> Rival:
        network = twin(self.network, OTHERS[name])
        return Rival(
            partial(self.run, network),
            lambda: distance(self.value_and_gradient(network), self.expected),
            tolerance=1e-10,
            prepare=network.zero_grad,
        )


def _clear(parameters: list[Any]) -> None:
    for parameter in parameters:
        parameter.grad = None


def rivals(*names: str) -> dict[str, Any]:
    """Ours and the named others."""
    return {"ours": PaperSize.ours, **{name: partial(_other, name) for name in names}}


def _other(name: str, problem: PaperSize) -> Rival:
    return problem.other(name)


@group("paper-size", "value and gradient of the objective for networks of the paper's size, 35 layers, float64")
def cases(options: Options) -> list[Case]:
    sizes = [(2, 280), (4, 60)] if options.quick else [(w, n) for w in (2, 4, 8, 16) for n in (280, 560, 5000)]
    return [
        Case(
            name=f"width {width}, {n} samples",
            settings={"width": width, "samples": n},
            build=partial(PaperSize, width, n),
            rivals=rivals("blocked", "plain", "naive"),
            turns=3 if options.quick else 15,
            settle=1,
            targets=TARGETS,
        )
        for width, n in sizes
    ]
