"""A step of the estimators' default network on a table: value and gradient of the objective, float32, one thread.

"ours" is what training runs; "autograd" the same network and objective in torch operations (engine="autograd"), as
the library would run it otherwise. As in training, where the step before was one's own, a rival goes six
times and the last one counts.
"""

from functools import cached_property, partial

import torch

from benchmarks.case import Case, Group, Options, Rival
from benchmarks.networks import step
from benchmarks.ways import distance
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Regularization

N_FEATURES, WIDTH, N_LAYERS, N_CLASSES, N_SAMPLES = 64, 64, 3, 10, 200
OBJECTIVE = Objective(regularization=Regularization(decay_output=3e-4, decay=3e-4), label_smoothing=0.05)
ORDERS = {"0.5": {}, "learned": {"learn_order": True}, "1": {"order": 1.0}}


class Step:
    """One mini-batch of a network."""

    def __init__(self, order: str) -> None:
        generator = torch.Generator().manual_seed(0)
        self.network = FractionalNetwork(
            N_FEATURES,
            N_CLASSES,
            n_layers=N_LAYERS,
            width=WIDTH,
            step_size=0.5,
            activation="silu",
            activate_input=True,
            generator=generator,
            **ORDERS[order],  # type: ignore[arg-type]
        )
        self.x = torch.randn(N_SAMPLES, N_FEATURES, generator=generator)
        self.target = torch.arange(N_SAMPLES) % N_CLASSES
        self.weight = torch.rand(N_SAMPLES, generator=generator)

    def ours(self) -> float:
        return step(OBJECTIVE, self.network, self.x, self.target, self.weight)

    def autograd(self) -> float:
        self.network.engine = "autograd"
        value = OBJECTIVE(self.network, self.x, self.target, self.weight)
        value.backward()
        self.network.engine = "auto"
        return float(value.detach())

    @cached_property
    def expected(self) -> list[torch.Tensor]:
        """By autograd in float64."""
        self.network.double()
        value = OBJECTIVE(self.network, self.x.double(), self.target, self.weight.double())
        found = [value.detach(), *torch.autograd.grad(value, list(self.network.parameters()))]
        self.network.float()
        return found

    def error(self, name: str) -> float:
        expected = self.expected
        self.network.zero_grad()
        value = getattr(self, name)()
        found = [torch.tensor(value), *(p.grad for p in self.network.parameters())]
        return distance([each.double() for each in found], expected)


def rival(name: str, problem: Step) -> Rival:
    error = partial(problem.error, name)
    return Rival(getattr(problem, name), error, tolerance=1e-4, prepare=problem.network.zero_grad)


def cases(options: Options) -> list[Case]:
    return [
        Case(
            name=f"order {order}",
            settings={"order": order},
            build=partial(Step, order),
            rivals={name: partial(rival, name) for name in ("ours", "autograd")},
            turns=3 if options.quick else 101,
            settle=1 if options.quick else 5,
            threads=1,
        )
        for order in ORDERS
    ]


GROUP = Group("table", "a training step of the estimators' default network", cases)
