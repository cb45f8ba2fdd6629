"""Starts that need very short first steps, or where func or its Jacobian has no value."""

import math

import pytest
import torch

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.solver import MultiTerm


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize(
    ("span", "rtol"),
    [(100.0, 1e-7), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(1e3, 1e-7), (1e3, 1e-9), (2e3, 1e-6)])],
)
@torch.no_grad()
def test_six_terms_over_a_long_span(span, rtol):
    """Six orders from 0 to 3; the solution is √2 sin(t + π/4)."""
    equation = MultiTerm([3, 2.5, 2, 1, 0.5, 0], [1.0, 1.0, 1.0, 4.0, 1.0, 4.0], lambda t, lower: 6 * torch.cos(t))
    found = equation.solve((1.0, 1.0, -1.0), [0.0, span], rtol=rtol, atol=1e-3 * rtol)[-1]
    assert abs(float(found) - math.sqrt(2) * math.sin(span + math.pi / 4)) < 2 * rtol


@torch.no_grad()
def test_an_infinite_jacobian_at_the_start():
    """Problem 5 of Xue and Bai: func has a sixth root of 0 at the start."""

    def func(t, u):
        root = ((u[1] - 0.5) * (u[2] - 0.3)) ** (1 / 6) + torch.sqrt(t)
        rest = [math.gamma(2.2) * (u[0] - 1), math.gamma(2.8) / math.gamma(2.2) * (u[1] - 0.5)]
        return torch.stack([root / math.sqrt(math.pi), *rest])

    found = fdeint(func, [1.0, 0.5, 0.3], [0.0, 5.0], order=tensor([0.5, 0.2, 0.6]))[-1]
    torch.testing.assert_close(found, tensor([6.0, 0.5 + 5**1.2, 0.3 + 5**1.8]), rtol=2e-5, atol=2e-8)


@pytest.mark.slow
@torch.no_grad()
def test_robertson_without_an_early_output():
    def func(t, u):
        slow, middle, fast = 0.04 * u[0], 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
        return torch.stack([middle - slow, slow - middle - fast, fast])

    found = fdeint(func, [1.0, 0.0, 0.0], [0.0, 1e11], order=1.0, atol=1e-12)[-1]
    torch.testing.assert_close(found, tensor([2.0833403e-8, 8.3333610e-14, 0.99999998]), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    ("order", "reference"),
    [(0.2, [0.43759581, 0.25638734, 0.30601684]), (0.3, [0.35462822, 0.22432773, 0.42104405])],
)
@torch.no_grad()
def test_an_epidemic_of_small_order(order, reference):
    """The reference is a solve with an early output."""

    def func(t, u):
        infected, recovered = 2.0 * u[0] * u[1], 0.5 * u[1]
        return torch.stack([-infected, infected - recovered, recovered])

    found = fdeint(func, [0.99, 0.01, 0.0], [0.0, 50.0], order=order)[-1]
    torch.testing.assert_close(found, tensor(reference), rtol=2e-5, atol=2e-8)


@torch.no_grad()
def test_growth_of_a_small_order():
    found = fdeint(lambda t, u: u, 1.0, [0.0, 100.0], order=0.4, rtol=1e-8, atol=1e-10)[-1]
    torch.testing.assert_close(found, mittag_leffler(tensor(100.0**0.4), 0.4), rtol=2e-8, atol=2e-10)


@torch.no_grad()
def test_a_rotation_of_a_small_order():
    found = fdeint(lambda t, u: torch.stack([-u[1], u[0]]), [1.0, 0.0], [0.0, 100.0], order=0.4)[-1]
    exact = mittag_leffler(1j * tensor(100.0**0.4), 0.4)
    torch.testing.assert_close(found, torch.stack([exact.real, exact.imag]), rtol=2e-5, atol=2e-8)


@pytest.mark.parametrize(("power", "rtol"), [(0.6, 1e-7), (0.5, 1e-9)])
@torch.no_grad()
def test_singular_functions_at_small_tolerances(power, rtol):
    found = fdeint(lambda t, u: t**-power, 0.0, [0.0, 1.0], order=0.9, rtol=rtol, atol=1e-2 * rtol)[-1]
    assert float(found) == pytest.approx(math.gamma(1 - power) / math.gamma(1.9 - power), rel=2 * rtol)


@pytest.mark.parametrize("begin", [0.0, 1.0])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_function_without_a_value_at_the_start(begin, mode):
    """Quotients sin(t)/t and t²/t, which are NaN at 0."""

    def func(t, u):
        elapsed = t - begin
        return torch.stack([torch.sin(elapsed) / elapsed - u[0], elapsed * elapsed / elapsed])

    with mode():
        found = fdeint(func, [1.0, 0.0], [begin, begin + 1.0], order=0.7)[-1]
    torch.testing.assert_close(found, tensor([0.9460845421, 1 / math.gamma(2.7)]), rtol=2e-5, atol=2e-8)
