"""Explicit steps that are too long: an error where the solution overflows, one warning where it has grown."""

import math
import warnings

import pytest
import torch
from torch import nn

from fracdnn.exceptions import NotFiniteError, UnstableStepsWarning
from fracdnn.solver import Given, fdeint
from tests.slow import each_once
from tests.solver.calls import grouped

EXPLICIT = ["adams", "pece", "euler", "l1"]
MESSAGE = r"grown more than a thousandfold until t = 1, .* steps of method '\w+' are too long .* pass a larger n_steps"


def decay(rate):
    return lambda t, u: -rate * u


@pytest.mark.parametrize(
    ("way", "method", "trajectory"),
    each_once([(0.5, 50.0, 40), (0.9, 300.0, 100), (1.0, 100.0, 30), (0.3, 20.0, 25)], EXPLICIT, [True, False]),
)
def test_a_solution_that_grew_against_func_is_reported_once(way, method, trajectory):
    order, rate, n_steps = way
    with pytest.warns(UnstableStepsWarning, match=MESSAGE) as caught:
        fdeint(decay(rate), 1.0, [0.0, 1.0], n_steps=n_steps, order=order, method=method, trajectory=trajectory)
    assert len(caught) == 1
    # Both remedies work.
    exact = fdeint(decay(rate), 1.0, [0.0, 1.0], order=order)[-1]
    found = fdeint(decay(rate), 1.0, [0.0, 1.0], order=order, method="collocation", n_steps=n_steps)[-1]
    assert abs(found - exact) < 0.1


def test_diffusion_on_many_cells_overflows_and_the_error_names_time_and_remedy():
    cells = 200
    start = torch.sin(math.pi * torch.arange(1, cells + 1, dtype=torch.float64) / (cells + 1))
    start += 1e-9 * torch.randn(cells, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def diffusion(t, u):
        padded = torch.nn.functional.pad(u, (1, 1))
        return (cells + 1) ** 2 * (padded[2:] - 2 * u + padded[:-2])

    with pytest.raises(NotFiniteError, match=r"not finite at t = 0\.\d+ \(step \d+\) .* use smaller steps, or the imp"):
        fdeint(diffusion, start, [0.0, 1.0], order=0.6, n_steps=200)
    found = fdeint(diffusion, start, [0.0, 1.0], order=0.6, n_steps=100, method="collocation")[-1]
    chosen = fdeint(diffusion, start, [0.0, 1.0], order=0.6)[-1]
    torch.testing.assert_close(found, chosen, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("method", EXPLICIT)
def test_a_small_component_explodes_beside_a_large_one(method):
    start = torch.tensor([1e9, 1e-3], dtype=torch.float64)
    func = lambda t, u: torch.stack([0 * u[0], -200 * u[1]])  # noqa: E731
    with pytest.warns(UnstableStepsWarning, match=MESSAGE):
        fdeint(func, start, [0.0, 1.0], order=0.6, method=method, n_steps=20)


@pytest.mark.parametrize("method", EXPLICIT)
@pytest.mark.parametrize(
    "func",
    [
        lambda t, u: 20.0 * u,  # grows by itself
        lambda t, u: 1e3 * torch.cos(300 * t) - u,  # is pushed to and fro
        lambda t, u: u.flip(0) * torch.tensor([-2.0, 2.0], dtype=u.dtype),  # turns
        lambda t, u: 1e4 - u,
    ],
    ids=["growth", "forcing", "rotation", "charging"],
)
def test_growth_of_the_problem_itself_is_not_reported(func, method):
    for order in (0.5, 1.0):
        u = fdeint(
            func, torch.tensor([1.0, 0.5], dtype=torch.float64), [0.0, 1.0], order=order, method=method, n_steps=64
        )
        assert bool(u.isfinite().all())


def test_swings_by_time_alone_are_not_reported():
    t = torch.linspace(0, 10, 101, dtype=torch.float64)
    square = lambda t, u: (1.0 - 2.0 * (torch.floor(10 * t + 1e-6) % 2)) + 0 * u  # noqa: E731
    u = fdeint(square, 0.0, t, order=1.0, method="euler", grid=Given())
    torch.testing.assert_close(u, 0.1 * (torch.arange(101) % 2).double(), rtol=0, atol=1e-12)
    drive = torch.randn(101, 64, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for method in EXPLICIT:
        noise = lambda t, u: drive[int(10 * t + 1e-6)] - u  # noqa: E731
        fdeint(noise, torch.zeros(64, 32, dtype=torch.float64), t, order=0.5, method=method, grid=Given())


@pytest.mark.parametrize(
    ("method", "order", "length"),
    each_once(["adams", "pece"], [1.8, 1.2, 1.5], [(1e3, 50), (1e3, 100), (1e4, 100), (1e4, 200)]),
)
def test_above_order_1_steps_that_are_too_long(method, order, length):
    """All solutions are smaller than 1; a larger one is reported, and the remedy works."""
    rate, n_steps = length
    way = {"order": order, "slope": 0.0, "n_steps": n_steps}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fdeint(decay(rate), 1.0, [0.0, 1.0], method=method, **grouped(**way))
    assert [each.category for each in caught] == [UnstableStepsWarning] * (float(found[-1].abs()) > 1e3)
    found = fdeint(decay(rate), 1.0, [0.0, 1.0], method="collocation", **grouped(**way))
    assert float(found[-1].abs()) <= 1.0


@pytest.mark.parametrize("method", ["l1", "adams", "euler"])
def test_a_network_in_16_bit_autocast_is_solved(method):
    """Rounding of a 16-bit func is not instability."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))
    y0 = torch.randn(4096, 64)
    with torch.no_grad():
        exact = fdeint(lambda t, y: net(y), y0, [0.0, 1.0], order=0.6, n_steps=100, method=method)[-1]
        with torch.autocast("cpu", torch.bfloat16):
            found = fdeint(lambda t, y: net(y), y0, [0.0, 1.0], order=0.6, n_steps=100, method=method)[-1]
    assert found.dtype == torch.float32
    assert float((found - exact).norm() / exact.norm()) < 0.004


def test_a_network_with_dropout_is_solved():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Dropout(0.5), nn.Linear(128, 64))
    u = fdeint(lambda t, y: net(y), torch.randn(256, 64), [0.0, 1.0], order=0.6, n_steps=50, method="adams")
    assert bool(u.isfinite().all())
