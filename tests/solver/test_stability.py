"""Explicit steps that are too long for a stiff problem are refused, with remedies that work."""

import math
import re

import pytest
import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver import fdeint
from tests.slow import each_once
from tests.solver.calls import grouped

EXPLICIT = ["adams", "pece", "euler", "l1"]


def decay(rate):
    return lambda t, u: -rate * u


@pytest.mark.parametrize(
    ("way", "method", "trajectory"),
    each_once([(0.5, 50.0, 40), (0.9, 300.0, 100), (1.0, 100.0, 30), (0.3, 20.0, 25)], EXPLICIT, [True, False]),
)
def test_steps_that_are_not_stable_are_refused(way, method, trajectory):
    order, rate, n_steps = way
    options = {"order": order, "method": method, "trajectory": trajectory}
    message = f"steps must be shorter for method '{method}' to be stable, got .* pass the implicit method='collocation'"
    with pytest.raises(NotConvergedError, match=message) as caught:
        fdeint(decay(rate), 1.0, [0.0, 1.0], n_steps=n_steps, **grouped(**options))
    exact = fdeint(decay(rate), 1.0, [0.0, 1.0], order=order)[-1]  # no steps at all
    found = fdeint(decay(rate), 1.0, [0.0, 1.0], order=order, method="collocation", n_steps=n_steps)[-1]
    assert abs(found - exact) < 0.1
    enough = re.search(r"n_steps=(\d+) or more", str(caught.value))
    if enough and int(enough[1]) < 20_000:
        found = fdeint(decay(rate), 1.0, [0.0, 1.0], n_steps=int(enough[1]), **grouped(**options))
        assert abs(float(found[-1] if trajectory else found) - exact) < 0.02


def test_diffusion_on_many_cells():
    cells = 200
    start = torch.sin(math.pi * torch.arange(1, cells + 1, dtype=torch.float64) / (cells + 1))

    def diffusion(t, u):
        padded = torch.nn.functional.pad(u, (1, 1))
        return (cells + 1) ** 2 * (padded[2:] - 2 * u + padded[:-2])

    with pytest.raises(NotConvergedError, match=r"method='collocation' with the same steps, or no steps at all"):
        fdeint(diffusion, start, [0.0, 1.0], order=0.6, n_steps=100)
    found = fdeint(diffusion, start, [0.0, 1.0], order=0.6, n_steps=100, method="collocation")[-1]
    chosen = fdeint(diffusion, start, [0.0, 1.0], order=0.6)[-1]
    torch.testing.assert_close(found, chosen, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("method", EXPLICIT)
def test_a_small_component_explodes_beside_a_large_one(method):
    start = torch.tensor([1e9, 1e-3], dtype=torch.float64)
    with pytest.raises(NotConvergedError, match="to be stable"):
        fdeint(
            lambda t, u: torch.stack([0 * u[0], -200 * u[1]]), start, [0.0, 1.0], order=0.6, method=method, n_steps=20
        )


@pytest.mark.parametrize("method", EXPLICIT)
@pytest.mark.parametrize(
    "func",
    [
        lambda t, u: 20.0 * u,  # grows by itself
        lambda t, u: 1e3 * torch.cos(300 * t) - u,  # is pushed to and fro
        lambda t, u: u.flip(0) * torch.tensor([-2.0, 2.0], dtype=u.dtype),  # turns
        lambda t, u: 100.0 - u,
    ],
    ids=["growth", "forcing", "rotation", "charging"],
)
def test_what_the_problem_does_is_not_refused(func, method):
    for order in (0.5, 1.0):
        u = fdeint(
            func, torch.tensor([1.0, 0.5], dtype=torch.float64), [0.0, 1.0], order=order, method=method, n_steps=64
        )
        assert bool(u.isfinite().all())


def test_what_comes_of_time_alone_is_not_taken_for_a_pull():
    t = torch.linspace(0, 10, 101, dtype=torch.float64)
    square = lambda t, u: (1.0 - 2.0 * (torch.floor(10 * t + 1e-6) % 2)) + 0 * u  # noqa: E731
    u = fdeint(square, 0.0, t, order=1.0, method="euler", grid="given")
    torch.testing.assert_close(u, 0.1 * (torch.arange(101) % 2).double(), rtol=0, atol=1e-12)
    drive = torch.randn(101, 64, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for method in EXPLICIT:
        noise = lambda t, u: drive[int(10 * t + 1e-6)] - u  # noqa: E731
        fdeint(noise, torch.zeros(64, 32, dtype=torch.float64), t, order=0.5, method=method, grid="given")


@pytest.mark.parametrize(
    ("method", "order", "length"),
    each_once(["adams", "pece", "trapezoidal"], [1.8, 1.2, 1.5], [(1e3, 50), (1e3, 100), (1e4, 100), (1e4, 200)]),
)
def test_above_order_1_steps_that_are_too_long(method, order, length):
    """Right, or refused with a remedy that works: all solutions are smaller than 1."""
    rate, n_steps = length
    way = {"order": order, "slope": 0.0, "n_steps": n_steps}
    remedy = None
    try:
        found = fdeint(lambda t, u: -rate * u, 1.0, [0.0, 1.0], method=method, **grouped(**way))
    except NotConvergedError as error:
        remedy = str(error)
        found = fdeint(lambda t, u: -rate * u, 1.0, [0.0, 1.0], method="collocation", **grouped(**way))
    assert remedy is None or "method='collocation' with the same steps" in remedy
    assert float(found[-1].abs()) <= 1.0


@pytest.mark.parametrize(("method", "order", "n_steps"), [("l1", 0.5, 30), ("adams", 0.8, 10)])
def test_slow_growth_against_func(method, order, n_steps):
    with pytest.raises(NotConvergedError, match="steps must be shorter"):
        fdeint(lambda t, u: -10 * u, 1.0, [0.0, 1.0], order=order, method=method, n_steps=n_steps)
