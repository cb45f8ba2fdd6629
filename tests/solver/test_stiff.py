from functools import cache

import pytest
import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.solver import fdeint
from tests.solver.calls import NotePoints, grouped


def rest(t, u):
    return torch.sin(3 * u) + 1


@cache
def stiff_stages():
    """Matrix, start, and the solution at t = 1 by 1,280 steps of an exponential integrator, to 5e-6."""
    vectors, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    matrix = (vectors * -torch.tensor([1.0, 20.0, 500.0, 1e4], dtype=torch.float64)) @ vectors.T
    y0 = torch.ones(4, dtype=torch.float64)
    exact = torch.tensor([1.198037304, 0.479769123, 0.649424178, -0.565465035], dtype=torch.float64)
    return matrix, y0, exact


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-5),
        pytest.param({"rtol": 1e-9, "atol": 1e-12}, 1e-5, marks=pytest.mark.slow),
        pytest.param({"method": "trapezoidal", "grid": "graded", "n_steps": 100}, 5e-5, marks=pytest.mark.slow),
    ],
    ids=["collocation", "collocation, precise", "trapezoidal"],
)
def test_stiff_stages_are_solved_as_far_as_rounding_lets_them(options, tolerance):
    """Eigenvalues −1 … −10⁴, where slopes round like 1e-12 and no iteration can do better."""
    matrix, y0, exact = stiff_stages()
    u = fdeint(
        lambda t, u: u @ matrix.T + rest(t, u), y0, [0.0, 1.0], order=0.5, trajectory=False, **grouped(**options)
    )
    torch.testing.assert_close(u, exact, rtol=0, atol=tolerance)


def test_components_of_very_different_sizes():
    """Robertson's reactions at order 1, against the sum and a solve to more digits; small components count, too."""

    def reactions(t, u):
        first, second = 0.04 * u[0] - 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
        return torch.stack([-first, first - second, second])

    start = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        found = fdeint(reactions, start, [0.0, 40.0], order=1.0, info=True)
        finer = fdeint(reactions, start, [0.0, 40.0], order=1.0, rtol=1e-9, atol=1e-13)
    assert found.n_accepted < 40
    torch.testing.assert_close(found.states[-1], finer[-1], rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(fdeint(reactions, start, [0.0, 40.0], order=1.0)[-1], finer[-1], rtol=1e-4, atol=1e-8)


def test_a_large_mild_state_is_iterated_to_rounding():
    rates = torch.linspace(0.1, 20.0, 100, dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0, 10, 3, dtype=torch.float64)
    found = fdeint(lambda t, u: -rates * u, torch.ones(100, dtype=torch.float64), t, order=0.6)
    exact = mittag_leffler(-rates * 10**0.6, 0.6)
    torch.testing.assert_close(found[-1], exact, rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(found[-1].sum(), rates)
    (expected,) = torch.autograd.grad(exact.sum(), rates)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_one_call_of_func_for_all_points_of_a_panel():
    """Inside of `torch.func.vmap` where func allows it; the values are those of calls one by one."""
    calls, points = [], []

    def plain(t, u):
        calls.append(t)
        NotePoints.apply(t, points.append)
        return torch.stack([-u[0] + u[1] * u[2], -1e3 * u[1] * u[2] + u[0], u[0] - u[2] * torch.cos(t)])

    def deciding(t, u):
        return plain(t, u) if float(t) >= 0 else u

    solutions = []
    for func in (plain, deciding):
        calls.clear()
        points.clear()
        solutions.append(fdeint(func, [1.0, 0.5, 0.0], [0.0, 2.0], order=0.9, info=True))
        assert sum(points) == solutions[-1].n_evaluations
        # A func that decides by values is called one by one, and counted the same.
        assert (len(calls) < 0.5 * solutions[-1].n_evaluations) is (func is plain)
    torch.testing.assert_close(solutions[0].states, solutions[1].states, rtol=1e-9, atol=1e-12)
    assert solutions[0].n_evaluations == solutions[1].n_evaluations
