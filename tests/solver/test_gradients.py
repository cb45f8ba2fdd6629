"""Gradients of every method by three witnesses: autograd through the definition, gradcheck, a Taylor remainder."""

import math

import numpy as np
import pytest
import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.solver import Given, fdeint, graded_mesh
from fracdnn.solver.collocation import Collocation, modes_for, walk
from fracdnn.solver.grids import Grid
from fracdnn.solver.panels import Weights
from fracdnn.solver.problem import posed_problem
from tests.slow import each_once, slow_but
from tests.solver import reference
from tests.solver.calls import grouped

ONE = torch.tensor(1.0, dtype=torch.float64)
BELOW = {"one order": 0.6, "an order each": (0.6, 0.9)}
ABOVE = {"above one": 1.6, "below and above one": (0.7, 1.4)}
STEPPERS = ("adams", "pece", "euler", "trapezoidal", "l1", "l1-implicit")
CASES = [
    (method, name, grid)
    for method in STEPPERS
    for name in (BELOW if method.startswith("l1") else {**BELOW, **ABOVE})
    for grid in ("uniform", "graded")
]
PANELS = [("collocation", name, grid) for name in {**BELOW, **ABOVE} for grid in ("uniform", "graded")]
# Every method once by the definition and once, with other orders or another grid, by a Taylor remainder.
OF_METHOD = [[case for case in CASES + PANELS if case[0] == method] for method in (*STEPPERS, "collocation")]
BY_DEFINITION = [cases[k % len(cases)] for k, cases in enumerate(OF_METHOD)]
BY_REMAINDER = [cases[(k + len(cases) // 2) % len(cases)] for k, cases in enumerate(OF_METHOD)]


def case(name):
    """Weight, y0, order and, for orders above 1, slope: all that a solution depends on."""
    generator = torch.Generator().manual_seed(1)
    order = torch.tensor({**BELOW, **ABOVE}[name], dtype=torch.float64)
    shapes = ((2, 2), (2,), None, (2,)) if float(order.max()) > 1 else ((2, 2), (2,), None)
    drawn = [order if s is None else torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]
    return [each.requires_grad_() for each in drawn]


def field(weight):
    return lambda t, y: torch.tanh(y @ weight) + 0.5 * torch.cos(2 * t) - 0.3 * y


def start(y0, slope):
    return (y0, *slope) if slope else y0


def end(method, grid, n, weight, y0, order, *slope, **options):
    """u(1.2); the nodes do not depend on the order."""
    t = torch.tensor([0.2, 1.2], dtype=torch.float64)
    if grid == "graded":
        options["power"] = 2.0
    return fdeint(
        field(weight),
        start(y0, slope),
        t,
        order=order,
        method=method,
        trajectory=False,
        **grouped(n_steps=n, grid=grid, **options),
    )


def nodes_of(grid, n):
    return 0.2 + graded_mesh(1.0, n, 2.0 if grid == "graded" else 1.0)


def loss(state):
    return (state * torch.tensor([1.0, -0.7], dtype=torch.float64)).sum()


def agree(found, expected, inputs, rtol=1e-10):
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)
    mine, theirs = torch.autograd.grad(loss(found), inputs), torch.autograd.grad(loss(expected), inputs)
    assert all(float(gradient.abs().max()) > 1e-3 for gradient in theirs)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("method", "name", "grid"), slow_but([c for c in CASES if c in BY_DEFINITION], CASES))
def test_autograd_through_the_definition(method, name, grid):
    inputs = case(name)
    weight, y0, order, *slope = inputs
    expected = reference.solve(method, field(weight), y0, order, nodes_of(grid, 11), *slope)[-1]
    agree(end(method, grid, 11, *inputs), expected, inputs)


@pytest.mark.parametrize("method", ["adams", "pece"])
def test_further_corrections_by_the_definition(method):
    inputs = case("an order each")
    weight, y0, order = inputs
    expected = reference.solve(method, field(weight), y0, order, nodes_of("uniform", 6), corrections=3)[-1]
    agree(end(method, "uniform", 6, *inputs, corrections=3), expected, inputs)


@pytest.mark.parametrize(("method", "name", "grid"), slow_but([c for c in PANELS if c in BY_DEFINITION], PANELS))
def test_autograd_through_the_definition_of_collocation(method, name, grid):
    """With three points a panel, few enough for monomials."""
    inputs = case(name)
    weight, y0, order, *slope = inputs
    nodes = nodes_of(grid, 5)
    elapsed = nodes - nodes[0]
    problem = posed_problem(field(weight), start(y0, slope), order)
    weights = Weights.of(problem.orders, 3, modes_for(Grid(elapsed, nodes), 1e-12))
    scheme = Collocation(problem, weights, nodes[0], nodes.dtype)
    packed = walk(scheme, Grid(elapsed, nodes), elapsed[-1:], checkpoint=False)
    expected = reference.collocation(field(weight), y0, order, nodes, 3, *slope)[-1]
    agree(problem.states.unpack(packed[-1]), expected, inputs)


@pytest.mark.parametrize(("method", "name", "grid"), slow_but(BY_REMAINDER, CASES + PANELS))
def test_taylor_remainder_of_second_order(method, name, grid):
    inputs = case(name)
    generator = torch.Generator().manual_seed(2)
    direction = [0.3 * torch.randn(each.shape, dtype=torch.float64, generator=generator) for each in inputs]
    n = 3 if method == "collocation" else 6
    value = loss(end(method, grid, n, *inputs))
    slopes = torch.autograd.grad(value, inputs)
    first = sum(float((g * d).sum()) for g, d in zip(slopes, direction, strict=True))
    lengths = [0.2, 0.1, 0.05]
    remainders = []
    with torch.no_grad():
        for h in lengths:
            moved = [each + h * d for each, d in zip(inputs, direction, strict=True)]
            remainders.append(abs(float(loss(end(method, grid, n, *moved))) - float(value) - h * first))
    # The smallest steps, where the third derivative counts less.
    assert abs(np.log2(remainders[1] / remainders[2]) - 2.0) < 0.25
    assert abs(first) > 1e-3


@pytest.mark.parametrize(("method", "grid"), sorted({(method, grid) for method, _, grid in CASES + PANELS}))
def test_gradcheck(method, grid):
    inputs = case("an order each" if method.startswith("l1") else "below and above one")
    n = 2 if method == "collocation" else 4
    assert torch.autograd.gradcheck(lambda *inputs: end(method, grid, n, *inputs), inputs)


@pytest.mark.parametrize("method", ["collocation", *STEPPERS])
def test_gradcheck_by_the_times(method):
    """Begin, end and a time between nodes."""
    weight, y0, _ = case("one order")
    t = torch.tensor([0.2, 0.67, 1.2], dtype=torch.float64, requires_grad=True)

    def solve(t):
        return fdeint(field(weight.detach()), y0.detach(), t, order=0.6, method=method, n_steps=4)

    assert torch.autograd.gradcheck(solve, t)


@pytest.mark.parametrize(
    ("method", "name", "grid"),
    [
        ("adams", "below and above one", "uniform"),
        pytest.param("adams", "an order each", "graded", marks=pytest.mark.slow),
        pytest.param("pece", "an order each", "uniform", marks=pytest.mark.slow),
        ("euler", "above one", "graded"),
        ("trapezoidal", "below and above one", "graded"),
        ("l1", "one order", "uniform"),
        pytest.param("l1-implicit", "an order each", "uniform", marks=pytest.mark.slow),
        pytest.param("collocation", "below and above one", "uniform", marks=pytest.mark.slow),
        ("collocation", "one order", "graded"),
    ],
)
def test_checkpoint_gives_the_same(method, name, grid):
    inputs = case(name)
    n = 10 if method == "collocation" else 70
    kept, again = (end(method, grid, n, *inputs, checkpoint=checkpoint) for checkpoint in (False, True))
    agree(again, kept, inputs, rtol=1e-12)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_adaptive_grid_is_a_constant(checkpoint):
    """The gradient is that of a solve on the nodes found. (At its rtol panels have eight points, as given ones.)"""
    inputs = case("an order each")
    weight, y0, order = inputs
    t = torch.tensor([0.2, 0.7, 1.2], dtype=torch.float64)
    options = {"order": order, "method": "collocation", "checkpoint": checkpoint}
    found = fdeint(field(weight), y0, t, rtol=1e-5, atol=1e-5, info=True, **grouped(**options))
    assert found.n_accepted > 2
    given = fdeint(field(weight), y0, found.grid, grid=Given(), **grouped(**options))
    agree(found.states[-1], given[-1], inputs)


def relaxation_at_one(rate, order, **options):
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return fdeint(lambda t, u: rate * u, 0.5 * ONE, t, order=order, trajectory=False, **grouped(**options))


def derivatives(**options):
    rate = torch.tensor(-4.0, dtype=torch.float64, requires_grad=True)
    order = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    return torch.stack(torch.autograd.grad(relaxation_at_one(rate, order, **options), (rate, order)))


def test_the_limits_of_the_derivatives_by_rate_and_order():
    """0.5 E_order(rate): its derivatives are those of the Mittag-Leffler function, and 0.0161918 and −0.082304."""
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (-4.0, 0.5)]
    exact = torch.stack(torch.autograd.grad(0.5 * mittag_leffler(*inputs), inputs))
    torch.testing.assert_close(exact, torch.tensor([0.0161918, -0.082304], dtype=torch.float64), rtol=3e-6, atol=0)
    torch.testing.assert_close(derivatives(rtol=1e-9, atol=1e-12), exact, rtol=1e-7, atol=0)
    torch.testing.assert_close(derivatives(), exact, rtol=1e-4, atol=0)
    for method, factor in (("adams", 4.0), ("trapezoidal", 4.0), ("l1-implicit", 2**1.5)):
        errors = [(derivatives(method=method, n_steps=n, power=4.0) - exact).abs().max() for n in (64, 128)]
        assert math.log2(errors[0] / errors[1]) > math.log2(factor) - 0.2
        assert errors[1] < 3e-3


@pytest.mark.parametrize(
    ("method", "name", "grading"),
    [
        pytest.param("adams", "below and above one", 1.0, marks=pytest.mark.slow),
        ("adams", "below and above one", 3.0),
        pytest.param("pece", "an order each", 3.0, marks=pytest.mark.slow),
        ("euler", "above one", 1.0),
        pytest.param("l1-implicit", "one order", 1.0, marks=pytest.mark.slow),
    ],
)
def test_far_nodes_through_modes(method, name, grading):
    """Beyond 256 steps; values between nodes, too."""
    inputs = case(name)
    weight, y0, order, *slope = inputs
    t = torch.tensor([0.2, 0.9, 1.0, 1.19, 1.2], dtype=torch.float64)
    options = {"n_steps": 272} if grading == 1.0 else {"n_steps": 272, "power": grading}
    exact, modes = (
        fdeint(field(weight), start(y0, slope), t, order=order, method=method, **grouped(compress=compress, **options))
        for compress in (False, True)
    )
    assert not torch.equal(exact, modes)
    agree(modes.sum(0), exact.sum(0), inputs)


@pytest.mark.parametrize(
    ("method", "checkpoint"), each_once(["trapezoidal", "l1-implicit", "collocation"], [False, True])
)
def test_large_states_are_many_small_ones(method, checkpoint):
    """Too many components for a dense Jacobian: iterated, with the adjoint's own iteration; so are those with one."""
    found = []
    for copies in (1, 4, 150):
        inputs = case("one order")
        weight, y0, order = inputs
        wide = y0.expand(copies, 2)
        n = 3 if method == "collocation" else 8
        u = end(method, "graded", n, weight, wide, order, checkpoint=checkpoint)
        found.append([u[0], *torch.autograd.grad(loss(u.mean(0)), inputs)])
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
