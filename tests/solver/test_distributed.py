"""Distributed order: closed solutions, Laplace transforms, learned densitys, and what is refused."""

from itertools import pairwise

import mpmath
import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver import distributed_order, gauss_orders, linear_input

T = torch.tensor([0.0, 0.5, 1.5], dtype=torch.float64)


def forced(t, y):
    """With the density Γ(3 − γ): solved by t², since D^γ t² = 2 t^(2 − γ)/Γ(3 − γ)."""
    return 2 * t * (t - 1) / torch.log(t) if float(t) > 0 else 0 * t


@torch.no_grad()
def test_the_error_falls_exponentially_with_the_nodes():
    errors = []
    for n_nodes in (1, 2, 3, 4, 6):
        equation = distributed_order(lambda order: torch.lgamma(3 - order).exp(), forced, n_nodes=n_nodes)
        errors.append(float((equation.solve((0.0,), T, rtol=1e-9, atol=1e-12) - T**2).abs().max()))
    assert all(later < 0.05 * earlier for earlier, later in pairwise(errors[:4]))
    assert errors[-1] < 1e-9


@torch.no_grad()
def test_relaxation_against_its_laplace_transform():
    """∫ D^γ y dγ = −y from 1: the transform of y is B/(B + 1)/s with B = (s − 1)/log s."""

    def transform(s):
        mean = (s - 1) / mpmath.log(s)
        return mean / (mean + 1) / s

    exact = [float(mpmath.invertlaplace(transform, float(time), method="talbot")) for time in T[1:]]
    equation = distributed_order(lambda order: 1.0, lambda t, y: -y, n_nodes=12)
    found = equation.solve((1.0,), T, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(found[1:], torch.tensor(exact, dtype=torch.float64), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_orders_between_one_and_two():
    """Solved by t² with the same density, from a value and a slope of 0."""
    equation = distributed_order(
        lambda order: torch.lgamma(3 - order).exp(),
        lambda t, y: 2 * (t - 1) / torch.log(t) if float(t) > 0 else 0 * t,
        between=(1.0, 2.0),
        n_nodes=6,
    )
    found = equation.solve((0.0, 0.0), T, rtol=1e-7, atol=1e-9)
    assert float((found - T**2).abs().max()) < 1e-5


def test_values_at_the_nodes_are_learned():
    orders = gauss_orders(4)
    density = torch.lgamma(3 - orders).exp().requires_grad_()

    def end(density):
        return distributed_order(density, forced, n_nodes=4).solve((0.0,), T, rtol=1e-8, atol=1e-10)[-1]

    (gradient,) = torch.autograd.grad(end(density), density)
    with torch.no_grad():
        assert abs(float(end(density)) - 2.25) < 1e-6
        for place in range(4):
            step = torch.zeros(4, dtype=torch.float64)
            step[place] = 1e-4
            assert abs(float((end(density + step) - end(density - step)) / 2e-4 - gradient[place])) < 1e-6


@torch.no_grad()
def test_samples_of_a_density():
    grid = torch.linspace(0, 1, 3, dtype=torch.float64)
    sampled = distributed_order(linear_input(grid, 1 + grid), lambda t, y: -y, n_nodes=5)
    given = distributed_order(1 + gauss_orders(5), lambda t, y: -y, n_nodes=5)
    torch.testing.assert_close(sampled.solve((1.0,), T), given.solve((1.0,), T), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"density": torch.ones(3)},
            r"hold a value for each of n_nodes = 8 orders, got shape \(3,\); pass n_nodes=len",
        ),
        ({"between": (1.0, 0.5)}, r"between must be two increasing orders, not below 0, got \(1, 0.5\)"),
        ({"between": (-0.5, 0.5)}, r"between must be two increasing orders, not below 0, got \(-0.5, 0.5\)"),
        ({"n_nodes": 0}, "n_nodes must be at least 1, got 0"),
        ({"density": lambda order: 0.0}, "coefficients must not be 0 for the highest order"),
    ],
)
def test_bad_input(changed, message):
    given = {"density": lambda order: 1.0, "right_side": lambda t, y: -y} | changed
    with pytest.raises(InvalidArgumentError, match=message):
        distributed_order(given.pop("density"), given.pop("right_side"), **given)
