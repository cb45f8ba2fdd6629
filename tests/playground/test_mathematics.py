"""The playground's mathematics against the library's: values, gradients and 50 steps of Adam, to 1e-10."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from fracdnn.caputo import memory_weights
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective
from fracdnn.training.records import layer_gradient_norms
from reproduction.printed_adjoint import PrintedNetwork
from tests.playground.pages import opened

STEPS, RATE, TOLERANCE = 50, 0.01, 1e-10


@dataclass(frozen=True)
class Case:
    order: float = 0.5
    n_layers: int = 7
    width: int | None = 4
    n_outputs: int = 2
    activation: str = "tanh"
    learn_order: bool = False
    residual: bool = True
    step_size: float = 0.2
    n: int = 30

    def network(self, order=None, learn_order=None, kind=FractionalNetwork):
        learn_order = self.learn_order if learn_order is None else learn_order
        options = {"order": self.order if order is None else order, "learn_order": learn_order, "compress": False}
        shape = {"n_layers": self.n_layers, "width": self.width, "activation": self.activation}
        options |= {"step_size": self.step_size, "residual": self.residual}
        generator = torch.Generator().manual_seed(3)
        return kind(2, self.n_outputs, **shape, **options, generator=generator).double()

    def data(self):
        generator = torch.Generator().manual_seed(5)
        x = torch.randn(self.n, 2, dtype=torch.float64, generator=generator)
        angle = torch.atan2(x[:, 1], x[:, 0]) / (2 * torch.pi) + 0.5
        return x, (angle * self.n_outputs).long().clamp(max=self.n_outputs - 1)


CASES = {
    "one layer": Case(n_layers=1),
    "two layers": Case(n_layers=2, n_outputs=3),
    "as the paper": Case(width=None, order=0.9, n_layers=35),
    "residual": Case(order=1.0, n_layers=20, n_outputs=3),
    "plain": Case(order=1.0, residual=False, n_layers=5),
    "small order": Case(order=0.05, n_layers=35, n_outputs=4),
    "deep": Case(order=0.3, n_layers=60, width=8, n_outputs=5, step_size=0.05, n=17),
    "relu": Case(activation="relu", n_outputs=3),
    "silu": Case(activation="silu", order=0.7),
    "sigmoid": Case(activation="sigmoid", order=0.7, n_outputs=5),
    "identity": Case(activation="identity", width=3, step_size=0.1),
    "learned order": Case(learn_order=True, n_layers=20, n_outputs=3),
    "learned order near 1": Case(learn_order=True, order=0.95, n_layers=35, width=None),
    "learned small order": Case(learn_order=True, order=0.05, activation="silu"),
}
NAMES = {"inputWeight": "input_weight", "inputBias": "input_bias", "K": "K", "b": "b", "W": "W"}


def parts(network, of=lambda parameter: parameter):
    """Parameters, or what `of` makes of them, by the playground's names, flat; those a network lacks are empty."""
    found = {name: getattr(network, own) for name, own in NAMES.items()}
    learned = network.memory.learned_order
    found["rawOrder"] = None if learned is None else learned.raw
    return {name: [] if each is None else of(each).detach().reshape(-1).tolist() for name, each in found.items()}


def fixture_of(case):
    x, labels = case.data()
    names = {"nLayers": "n_layers", "nOutputs": "n_outputs", "width": "width", "activation": "activation"}
    names |= {"order": "order", "stepSize": "step_size", "learnOrder": "learn_order", "residual": "residual"}
    options = {name: getattr(case, own) for name, own in names.items()}
    common = {"labels": labels.tolist(), "steps": STEPS, "rate": RATE}
    return {"network": options, "parameters": parts(case.network()), "x": x.reshape(-1).tolist(), **common}


def expected_of(case):
    network, objective, (x, labels) = case.network(), Objective(), case.data()
    loss = objective(network, x, labels)
    loss.backward()
    found = {"loss": loss.item(), "logits": network(x), "states": network(x, trajectory=True)}
    found |= {"gradient": parts(network, lambda each: each.grad), "norms": layer_gradient_norms(network)}
    if case.activation == "tanh" and case.residual:
        found["printed"] = printed_gradient(case, network, x, labels)
    found["memory"] = memory_weights(network.order, case.n_layers)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = objective(network, x, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return {**found, "losses": losses, "trained": parts(network)}


def printed_gradient(case, network, x, labels):
    """By `reproduction`, at the order that the network has."""
    printed = case.network(kind=PrintedNetwork, order=network.order.item(), learn_order=False)
    Objective()(printed, x, labels).backward()
    return parts(printed, lambda each: each.grad)


@pytest.fixture(scope="module")
def found(browser):
    """Return what Chromium computes, by case."""
    page, wrong = opened(browser)
    script = Path(__file__).with_name("mathematics.js").read_text(encoding="utf-8")
    cases = [[name, fixture_of(case)] for name, case in CASES.items()]
    text = page.evaluate(
        f"(cases) => {{ {script}; return JSON.stringify(Object.fromEntries("
        "cases.map(([name, fixture]) => [name, results(fixture)]))); }",
        cases,
    )
    page.close()
    assert wrong == []
    return json.loads(text)


def flat(value):
    return np.asarray(value.detach() if isinstance(value, torch.Tensor) else value, dtype=np.float64).reshape(-1)


def compare(found, expected, what):
    if isinstance(expected, dict):
        assert found.keys() >= expected.keys()
        for name, value in expected.items():
            compare(found[name], value, f"{what}: {name}")
        return
    found, expected = flat(found), flat(expected)
    assert found.shape == expected.shape, what
    if len(expected):
        error, size = np.abs(found - expected).max(), np.abs(expected).max()
        assert error <= TOLERANCE * size, f"{what}: {error} against {size}"


@pytest.mark.parametrize("name", CASES)
def test_chromium_computes_what_the_library_does(name, found):
    expected = expected_of(CASES[name])
    if "printed" in expected:
        # It has no gradient of the order.
        expected["printed"].pop("rawOrder")
        assert (
            not np.allclose(expected["printed"]["K"], expected["gradient"]["K"], rtol=0.01) or CASES[name].n_layers < 3
        )
    compare(found[name], expected, name)
