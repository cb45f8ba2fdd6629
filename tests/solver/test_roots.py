"""Equations with several roots, or that are unstable: the solution is the one that begins at y0, or there is none."""

import math
from itertools import product

import pytest
import torch

from fracdnn import fdeint
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from tests.campaign.hard.references import graded, trapezoidal
from tests.slow import slow_but


def three_roots(t, u):
    return -100 * (u - 1) * (u - 2) * (u - 3)


def integrated(func, y0, order, span, n):
    """By the product trapezoidal rule on a graded mesh."""
    nodes = tuple(span * x for x in graded(n, 6.0))
    return trapezoidal(func, torch.tensor([y0]).double().numpy(), (order,), nodes)[-1, 0]


WAYS = [(1.999, 100.0, 0.7), (2.001, 100.0, 0.7), (1.999, 1.0, 0.5)]


@pytest.mark.parametrize(
    ("way", "mode"),
    slow_but(
        [(WAYS[0], torch.no_grad), (WAYS[1], torch.enable_grad)], product(WAYS, [torch.no_grad, torch.enable_grad])
    ),
)
def test_a_start_next_to_an_unstable_state_leaves_it(way, mode):
    y0, span, order = way
    with mode():
        u = float(fdeint(three_roots, y0, [0.0, span], order=order)[-1])
    right = integrated(three_roots, y0, order, span, 1500)
    assert abs(right - (1 if y0 < 2 else 3)) < 0.01
    assert math.isclose(u, right, rel_tol=2e-4)


def test_small_populations_grow():
    u = fdeint(lambda t, u: 30 * u * (1 - u), [1e-6, 0.0], [0.0, 1e4], order=0.7)[-1]
    assert abs(float(u[0]) - 1) < 1e-3
    assert float(u[1]) == 0.0  # exactly on the unstable state, where it stays


@pytest.mark.parametrize(
    ("func", "y0", "span", "order"),
    [
        pytest.param(lambda t, u: 1e5 * u, 1.0, 1.0, 0.4, marks=pytest.mark.slow),
        (lambda t, u: 10 * u, 1e-6, 1e4, 0.7),
        pytest.param(lambda t, u: u * u - 1, 1.001, 1e6, 0.7, marks=pytest.mark.slow),
        (lambda t, u: 1000 * (u - torch.cos(t)), 1.001, 10.0, 0.7),
    ],
)
def test_explosions_are_refused(func, y0, span, order):
    with pytest.raises((NotConvergedError, NotFiniteError)):
        fdeint(func, y0, [0.0, span], order=order)


@pytest.mark.slow  # the campaign's known cases have it too, over shorter spans
def test_robertson_s_reaction_to_the_end():
    """With a tolerance for each component; by SciPy's Radau with rtol=1e-10."""

    def reaction(t, u):
        made, lost = 0.04 * u[0] - 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
        return torch.stack([-made, made - lost, lost])

    atol = torch.tensor([1e-8, 1e-14, 1e-6], dtype=torch.float64)
    u = fdeint(reaction, [1.0, 0.0, 0.0], [0.0, 4e10], order=1.0, atol=atol)[-1]
    right = torch.tensor([5.20834518e-08, 2.08333818e-13, 0.99999994791634], dtype=torch.float64)
    torch.testing.assert_close(u, right, rtol=1e-5, atol=0)


def test_an_epidemic_that_begins_small():
    """By graded product integration, 1,200 and 2,400 steps."""

    def slopes(t, u):
        return torch.stack([-500 * u[0] * u[1], 500 * u[0] * u[1] - 50 * u[1]])

    u = fdeint(slopes, [1 - 1e-6, 1e-6], [0.0, 1000.0], order=0.8)[-1]
    torch.testing.assert_close(u, torch.tensor([0.09999000, 1.56098e-05], dtype=torch.float64), rtol=1e-4, atol=0)
