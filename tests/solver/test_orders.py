"""Orders of convergence, from both sides, on problems with known solutions."""

import numpy as np
import pytest
import torch

from fracdnn.solver import Given, fdeint, graded_mesh
from fracdnn.solver.collocation import Collocation, modes_for, walk
from fracdnn.solver.grids import Grid
from fracdnn.solver.panels import Weights
from fracdnn.solver.problem import posed_problem
from tests.slow import slow_but
from tests.solver.calls import grouped
from tests.solver.problems import LORENZ, charging, oscillator, parabola, power_sum, relaxation

STEPS = (48, 96, 192)
METHODS = ("collocation", "adams", "pece", "euler", "trapezoidal", "l1", "l1-implicit")


def slope_of(errors, steps):
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


def error_at_the_end(problem, n, dtype=torch.float64, **options):
    t = torch.tensor([0.0, problem.span], dtype=torch.float64)
    options = grouped(n_steps=n, **options)
    u = fdeint(problem.func, problem.start(dtype), t, order=problem.order, trajectory=False, **options)
    return abs(float(u) - float(problem.at(t[1:])))


ORDERS = [
    # Explicit.
    ("euler", parabola(0.5), "uniform", 1.0),
    ("euler", relaxation(1.0), "uniform", 1.0),
    ("euler", relaxation(1.0), "graded", 1.0),
    ("euler", oscillator(), "uniform", 1.0),
    ("l1", parabola(0.5), "uniform", 1.0),
    ("l1", relaxation(1.0), "uniform", 1.0),
    ("l1", relaxation(4.0), "graded", 1.0),
    ("pece", parabola(0.5), "uniform", 1.5),
    ("pece", parabola(0.8), "uniform", 1.8),
    ("pece", charging(0.6), "graded", 1.6),
    ("pece", power_sum(1.25), "uniform", 2.0),
    ("pece", charging(1.8), "uniform", 2.0),
    ("adams", parabola(0.5), "uniform", 2.0),
    ("adams", power_sum(0.8), "uniform", 2.0),
    ("adams", relaxation(1.0), "uniform", 1.5),
    ("adams", charging(0.6), "graded", 2.0),
    ("adams", power_sum(1.25), "uniform", 2.0),
    ("adams", oscillator(), "uniform", 2.0),
    ("adams", charging(1.8), "uniform", 2.0),
    # Implicit.
    ("trapezoidal", parabola(0.5), "uniform", 2.0),
    ("trapezoidal", relaxation(1.0), "uniform", 1.5),
    ("trapezoidal", relaxation(4.0), "graded", 2.0),
    ("trapezoidal", charging(1.8), "uniform", 2.0),
    ("l1-implicit", parabola(0.8), "uniform", 1.2),
    ("l1-implicit", relaxation(4.0), "uniform", 1.0),
    ("l1-implicit", relaxation(4.0), "graded", 1.5),
]


# Of each method a smooth solution or a slope at the start, and one that begins like a root of t.
OFTEN = [
    each
    for each in ORDERS
    if (each[0], each[1].name, each[2])
    in {
        ("euler", "relaxation, rate 1", "graded"),
        ("euler", "oscillator, order 1.5", "uniform"),
        ("l1", "parabola, order 0.5", "uniform"),
        ("l1", "relaxation, rate 4", "graded"),
        ("pece", "parabola, order 0.5", "uniform"),
        ("pece", "charging, order 0.6", "graded"),
        ("adams", "power sum, order 0.8", "uniform"),
        ("adams", "charging, order 0.6", "graded"),
        ("adams", "oscillator, order 1.5", "uniform"),
        ("trapezoidal", "relaxation, rate 4", "graded"),
        ("trapezoidal", "charging, order 1.8", "uniform"),
        ("l1-implicit", "relaxation, rate 4", "graded"),
        ("l1-implicit", "parabola, order 0.8", "uniform"),
    }
]


@pytest.mark.parametrize(
    ("method", "problem", "grid", "expected"),
    slow_but(OFTEN, ORDERS),
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_order_at_the_end(method, problem, grid, expected):
    errors = [error_at_the_end(problem, n, method=method, grid=grid) for n in STEPS]
    assert abs(slope_of(errors, STEPS) - expected) < 0.2


def test_a_second_correction_gives_pece_second_order():
    errors = [error_at_the_end(parabola(0.5), n, method="pece", corrections=2) for n in STEPS]
    assert abs(slope_of(errors, STEPS) - 2.0) < 0.2


@pytest.mark.parametrize(
    ("method", "grading", "expected"),
    slow_but(
        [("adams", 4.0, 2.0), ("l1-implicit", 3.0, 1.5)],
        [("euler", 2.0, 1.0), ("adams", 4.0, 2.0), ("trapezoidal", 4.0, 2.0), ("l1-implicit", 3.0, 1.5)],
    ),
)
def test_order_of_the_largest_error_on_graded_times(method, grading, expected):
    """Next to the begin, too; the same times as a uniform grid leave the order of the solution, 0.5 or 1."""
    problem, rates = relaxation(1.0), {}
    for power in (grading, 1.0):
        errors = []
        for n in STEPS[:3]:
            t = graded_mesh(1.0, n, power)
            u = fdeint(problem.func, problem.start(), t, order=0.5, method=method, grid=Given())
            errors.append(float((u - problem.at(t)).abs().max()))
        rates[power] = slope_of(errors, STEPS)
    assert abs(rates[grading] - expected) < 0.25
    assert rates[1.0] < 1.1


@pytest.mark.parametrize(
    ("method", "grid", "expected", "relative"),
    [
        ("collocation", "uniform", 1.0, 1e-5),
        pytest.param("l1-implicit", "uniform", 1.0, 2e-3, marks=pytest.mark.slow),
        ("l1-implicit", "graded", 1.5, 2e-4),
        # It keeps much of the first step's error, which is of the size of 1 while the solution is 6e-5 at the end.
        pytest.param("trapezoidal", "uniform", 1.5, 0.5, marks=pytest.mark.slow),
    ],
)
def test_stiff(method, grid, expected, relative):
    """At rate 10⁴ the begin is over before the first step; the slow rest is found nevertheless."""
    problem = relaxation(1e4)
    errors = [error_at_the_end(problem, n, method=method, grid=grid) for n in STEPS]
    assert abs(slope_of(errors, STEPS) - expected) < 0.2
    assert errors[-1] < relative * float(problem.at(torch.ones(1)))


def test_stiff_on_a_grid_that_resolves_the_begin():
    problem = relaxation(1e4)
    error = error_at_the_end(problem, STEPS[-1], method="trapezoidal", grid="graded")
    assert error < 1e-4 * float(problem.at(torch.ones(1)))


@pytest.mark.parametrize("method", METHODS)
def test_single_precision(method):
    """The same as in double precision, to the rounding of the state's dtype."""
    problem = charging(0.6)
    t = torch.linspace(0, 1, 4, dtype=torch.float64)
    single, double = (
        fdeint(problem.func, problem.start(dtype), t, order=0.6, method=method, n_steps=12)
        for dtype in (torch.float32, torch.float64)
    )
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-6)


def by_panels(problem, count, nodes):
    """The error at the end with so many points on each panel."""
    nodes = problem.span * nodes
    posed, grid = posed_problem(problem.func, problem.start(), problem.order), Grid(nodes, nodes)
    scheme = Collocation(posed, Weights.of(posed.orders, count, modes_for(grid, 1e-12)), nodes[0], nodes.dtype)
    u = walk(scheme, grid, nodes[-1:], checkpoint=False)
    return abs(float(u) - float(problem.at(nodes[-1:])))


@pytest.mark.parametrize(
    ("problem", "grading"),
    [(relaxation(1.0), 8.0), (charging(0.6), 8.0), (power_sum(0.5), 1.0), (relaxation(1e4), 4.0), (oscillator(), 3.0)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_collocation_converges_spectrally_in_the_points(problem, grading):
    nodes = graded_mesh(1.0, 8, grading)
    coarse, middle, fine = (by_panels(problem, count, nodes) for count in (4, 6, 8))
    assert coarse > 50 * fine
    assert coarse > middle > fine


@pytest.mark.parametrize("count", [1, 2, 3])
def test_collocation_has_the_order_of_its_points_on_graded_panels(count):
    """At rate 10⁴; where nothing is stiff it has up to `order` more at the ends of panels."""
    steps = (12, 24, 48)
    errors = [by_panels(relaxation(1e4), count, graded_mesh(1.0, n, 4.0 * count)) for n in steps]
    assert abs(slope_of(errors, steps) - count) < 0.2


@pytest.mark.parametrize("grid", ["uniform", "graded"])
def test_collocation_on_grids_that_were_asked_for(grid):
    """Eight points: to nine digits with two dozen graded panels, while on equal ones the begin decides."""
    error = error_at_the_end(relaxation(1.0), 24, method="collocation", grid=grid)
    assert error < 1e-9 if grid == "graded" else 1e-8 < error < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_components_with_orders_of_their_own_are_separate_solves(method):
    """A tensor of orders, a tuple of tensors with an order each, and scalars one by one."""
    orders = {"l1": (0.4, 0.9), "l1-implicit": (0.4, 0.9)}.get(method, (0.6, 1.7))
    rates, starts, slopes = (-1.0, -0.5), (1.0, 2.0), (0.0, -0.5)
    t = torch.linspace(0, 1.5, 5, dtype=torch.float64)
    options = {"method": method, "n_steps": 21}

    def tensor(*values):
        return torch.tensor(values, dtype=torch.float64)

    def paired(value, slope):
        return (value, slope) if max(orders) > 1 else value

    alone = []
    for order, rate, value, slope in zip(orders, rates, starts, slopes, strict=True):
        y0 = (torch.tensor(value).double(), torch.tensor(slope).double()) if order > 1 else torch.tensor(value).double()
        alone.append(fdeint(lambda s, u, rate=rate: rate * u + s, y0, t, order=order, **grouped(**options)))
    alone = torch.stack(alone, dim=-1)
    together = fdeint(
        lambda s, u: tensor(*rates) * u + s,
        paired(tensor(*starts), tensor(*slopes)),
        t,
        order=tensor(*orders),
        **grouped(**options),
    )
    tuples = fdeint(
        lambda s, u: tuple(rate * part + s for rate, part in zip(rates, u, strict=True)),
        paired(tuple(map(tensor, starts)), tuple(map(tensor, slopes))),
        t,
        order=orders,
        **grouped(**options),
    )
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.cat(tuples, dim=-1), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.slow  # orders of each component and of each method are above
def test_a_chaotic_system_converges_to_itself():
    """Lorenz's, with three orders: two methods, each to its own order and to one another."""
    t = torch.tensor([0.0, LORENZ.span], dtype=torch.float64)
    order = torch.tensor(LORENZ.order, dtype=torch.float64)

    def end(**options):
        return fdeint(LORENZ.func, LORENZ.start(), t, order=order, trajectory=False, **grouped(**options))

    precise = end(rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(end(method="collocation", grid="graded", n_steps=32), precise, rtol=1e-7, atol=0)
    steps = (320, 640, 1280)
    errors = [float((end(method="adams", n_steps=n) - precise).abs().max()) for n in steps]
    assert abs(slope_of(errors, steps) - 2.0) < 0.25
    assert errors[-1] < 1e-2
