"""A singular mass matrix: against solutions with the constraints eliminated by hand, gradients, and what is refused."""

import math

import pytest
import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver import Graded, fdeint, fdeint_mass
from tests.slow import each_once

T = torch.linspace(0, 2, 5, dtype=torch.float64)


def tensor(value, **options):
    return torch.tensor(value, dtype=torch.float64, **options)


def linear(t, u):
    """With mass · (u + v) and v = 2 u: 3 mass · D u = −u."""
    return torch.stack([-u[..., 0], u[..., 1] - 2 * u[..., 0]], dim=-1)


def mass_of(c):
    return torch.stack([torch.stack([c, c]), torch.zeros(2, dtype=torch.float64)])


@pytest.mark.parametrize(("order", "rtol"), each_once([1.0, 0.6, 0.3], [1e-4, 1e-8]))
def test_a_constraint_to_the_tolerance(order, rtol):
    found = fdeint_mass(linear, [1.0, 2.0], T, mass=mass_of(tensor(0.5)), order=order, rtol=rtol, atol=1e-2 * rtol)
    exact = mittag_leffler(-(T**order) / 1.5, order)
    allowed = 10 * (rtol + 1e-2 * rtol)
    assert float((found[:, 0] / exact - 1).abs().max()) < allowed
    assert float((found[:, 1] - 2 * found[:, 0]).abs().max()) < 1e-14


def test_a_fixed_grid():
    found = fdeint_mass(linear, [1.0, 2.0], T, mass=mass_of(tensor(0.5)), order=0.6, grid=Graded(40))
    assert float((found[:, 0] - mittag_leffler(-(T**0.6) / 1.5, 0.6)).abs().max()) < 1e-8


def test_of_an_inconsistent_start_mass_times_it_counts():
    found = fdeint_mass(linear, [3.0, 0.0], T, mass=mass_of(tensor(0.5)), order=0.6, info=True)
    torch.testing.assert_close(found.states[0], tensor([1.0, 2.0]), rtol=1e-14, atol=1e-14)
    assert found.method == "collocation"
    torch.testing.assert_close(found.evaluate([1.0])[0], found.states[2], rtol=1e-6, atol=1e-8)
    end = fdeint_mass(linear, [3.0, 0.0], T, mass=mass_of(tensor(0.5)), order=0.6, trajectory=False)
    torch.testing.assert_close(end, found.states[-1], rtol=1e-6, atol=1e-8)


@pytest.mark.slow  # `test_solution.py` and `test_delay.py` ask for the same without a mass
@torch.no_grad()
def test_a_solution_that_ends_gives_what_there_is():
    """u′ = u v with v = u ends at t = 1."""
    found = fdeint_mass(
        lambda t, u: torch.stack([u[0] * u[1], u[0] - u[1]]),
        [1.0, 1.0],
        [0.0, 0.5, 1.1, 2.0],
        mass=torch.diag(tensor([1.0, 0.0])),
        order=1.0,
        options={"failures": "nan"},
    )
    torch.testing.assert_close(found[:2], (1 / (1 - T[:2]))[:, None].expand(2, 2), rtol=1e-4, atol=1e-4)
    assert bool(found[2:].isnan().all())


def test_a_regular_mass_is_its_inverse_in_func():
    mass, matrix = tensor([[2.0, 1.0], [0.5, 3.0]]), tensor([[-1.0, 0.3], [0.2, -2.0]])
    found = fdeint_mass(lambda t, u: matrix @ u, [1.0, -1.0], T, mass=mass, order=0.7, rtol=1e-8)
    plain = fdeint(lambda t, u: torch.linalg.solve(mass, matrix @ u), tensor([1.0, -1.0]), T, order=0.7, rtol=1e-8)
    torch.testing.assert_close(found, plain, rtol=1e-7, atol=1e-9)


def test_an_order_above_one_with_a_slope():
    """3 D^1.5 u = −u from u = 0 with a slope of 1."""
    options = {"slope": tensor([1.0, 2.0])}
    found = fdeint_mass(linear, [0.0, 0.0], T, mass=mass_of(tensor(1.0)), order=1.5, rtol=1e-8, options=options)
    torch.testing.assert_close(found[:, 0], T * mittag_leffler(-(T**1.5) / 3, 1.5, 2.0), rtol=1e-7, atol=1e-8)


def circuit(unit=1.0):
    """A source sin t behind a resistor, a fractional capacitor, and a diode after a second resistor.

    The unknowns are the capacitor's voltage, in some unit, and the current through the diode.
    """

    def func(t, u):
        voltage, current = u[0] / unit, u[1]
        diode = torch.log1p(current.clamp(min=-0.99) / 0.1)  # a voltage
        return torch.stack([torch.sin(t) - voltage - current, (voltage - current - diode) * 1e-6])

    return func


@pytest.mark.parametrize("unit", [pytest.param(1e6, marks=pytest.mark.slow), 1e-6])
@torch.no_grad()
def test_a_circuit_in_any_units(unit):
    """Against a solve of the capacitor's voltage alone, whose func finds the diode's current by bisection."""

    def current_at(voltage):
        low, high = torch.full_like(voltage, -0.099), torch.full_like(voltage, 10.0)
        for _ in range(60):
            middle = (low + high) / 2
            above = middle + torch.log1p(middle / 0.1) > voltage
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return low

    mass = torch.diag(tensor([1.0 / unit, 0.0]))
    found = fdeint_mass(circuit(unit), [0.0, 0.0], T, mass=mass, order=0.8, rtol=1e-6, atol=1e-9)
    voltage = found[:, 0] / unit
    torch.testing.assert_close(found[:, 1], current_at(voltage), rtol=1e-12, atol=1e-12)
    grid = {"method": "adams", "grid": Graded(400)}
    alone = fdeint(lambda t, v: torch.sin(t) - v - current_at(v), 0.0, T, order=0.8, **grid)
    torch.testing.assert_close(voltage, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_on", [pytest.param(lambda t: t > 1, marks=pytest.mark.slow), lambda t: t >= 1])
def test_a_current_where_a_source_switches_is_the_left_limit(is_on):
    """A capacitor behind a resistor: 0 = source − voltage − current."""
    found = fdeint_mass(
        lambda t, u: torch.stack([u[1], is_on(t).double() - u[0] - u[1]]),
        [0.0, 0.0],
        T,
        mass=torch.diag(tensor([1.0, 0.0])),
        order=0.7,
        rtol=1e-7,
        options={"breakpoints": [1.0]},
    )
    assert found[2].abs().max() < 1e-12
    left = mittag_leffler(-((T[3:] - 1) ** 0.7), 0.7)
    torch.testing.assert_close(found[3:], torch.stack([1 - left, left], dim=-1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("by_all", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_by_three_witnesses(by_all):
    """By mass and order: closed derivatives, differences and `torch.func`."""

    def end(c, order):
        return fdeint_mass(linear, [1.0, 2.0], [0.0, 2.0], mass=mass_of(c), order=order, rtol=1e-6, atol=1e-8)[-1, 1]

    given = [tensor(value, requires_grad=True) for value in (0.5, 0.6)]
    gradients = torch.autograd.grad(3 * end(given[0], given[1]), given)
    exact = 6 * mittag_leffler(-(2.0 ** given[1]) / (3 * given[0]), given[1])
    torch.testing.assert_close(gradients, torch.autograd.grad(exact, given), rtol=1e-5, atol=1e-6)
    if not by_all:
        return
    numbers = [each.detach() for each in given]
    by_func = torch.func.grad(lambda c: 3 * end(c, numbers[1]))(numbers[0])
    torch.testing.assert_close(by_func, gradients[0], rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        difference = 3 * (end(numbers[0] + 1e-4, numbers[1]) - end(numbers[0] - 1e-4, numbers[1])) / 2e-4
    assert abs(float(difference - gradients[0])) < 1e-5


@pytest.mark.slow
def test_the_gradient_by_masses_whose_null_spaces_turn():
    def end(moves):
        left = torch.stack([1 + 0 * moves[0], moves[0]])
        right = torch.stack([1 + moves[1], 0.5 + moves[2]])
        return fdeint_mass(
            lambda t, u: torch.stack([-(u[0] ** 3) - u[1], u[1] ** 3 + u[1] - 2 * u[0]]),
            [1.0, 1.0],
            [0.0, 0.5],
            mass=torch.outer(left, right),
            order=0.7,
            rtol=1e-6,
            atol=1e-8,
        )[-1].sum()

    moves = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(end(moves), moves)
    with torch.no_grad():
        for place in range(3):
            step = torch.zeros(3, dtype=torch.float64)
            step[place] = 1e-4
            assert abs(float((end(step) - end(-step)) / 2e-4 - gradient[place])) < 1e-5


def test_batches_and_float32():
    start = torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.5, 1.0]])
    found = fdeint_mass(linear, start, T.float(), mass=mass_of(tensor(0.5)).float(), order=0.6)
    assert found.shape == (5, 3, 2)
    assert found.dtype == torch.float32
    exact = mittag_leffler(-(T**0.6) / 1.5, 0.6)[:, None] * start[:, 0]
    assert float((found[..., 0] - exact).abs().max()) < 2e-5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mass": torch.zeros(2, 2)}, "mass must have a rank above 0, got zeros"),
        ({"mass": torch.eye(3)}, r"mass must be a tensor \[2, 2\], of the state's last dimension, got \(3, 3\)"),
        ({"mass": 1.0}, r"mass must be a tensor \[2, 2\], of the state's last dimension, got float"),
        ({"mass": torch.full((2, 2), math.nan)}, "mass must be finite, got nan"),
        ({"y0": 1.0}, r"y0 must be one tensor \[..., d\] with a mass, got one number; stack its components"),
        ({"y0": (torch.ones(2), torch.ones(2))}, r"y0 must be one tensor \[..., d\] with a mass, got a tuple"),
        (
            {"method": "adams", "n_steps": 9},
            "method must be 'collocation' for a singular mass, got 'adams'; leave it out",
        ),
        ({"batched": True}, "batched must not be given to fdeint_mass, got True; give y0 a dimension for the batch"),
        ({"order": [0.5, 0.6]}, r"order must be one number with a mass, got \[0.5, 0.6\]; pass a float"),
        ({"func": lambda t, u: u[0]}, r"func must return a tensor of the state's shape \(2,\), got \(\) at t = 0"),
    ],
)
def test_bad_input(changed, message):
    given = {"func": linear, "y0": [1.0, 2.0], "mass": mass_of(tensor(0.5)), "order": 0.5} | changed
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint_mass(given.pop("func"), given.pop("y0"), T, **given)


def test_constraints_that_determine_nothing():
    """Index 2: the constraint does not depend on the second component."""
    with pytest.raises(NotConvergedError, match=r"func's constraints must determine the components that mass leaves"):
        fdeint_mass(
            lambda t, u: torch.stack([-u[1], u[0] - 1]), [2.0, 0.0], T, mass=torch.diag(tensor([1.0, 0.0])), order=0.5
        )


SECOND_HAS_NONE = torch.diag(tensor([1.0, 0.0]))


@pytest.mark.parametrize(
    ("times", "tolerances"),
    [([0.0, 5.0], {"rtol": 1e-3, "atol": 1e-5}), ([0.0, 1.0, 5.0], {})],
    ids=["loose", "default"],
)
@torch.no_grad()
def test_a_constraint_with_many_roots_stays_on_its_branch(times, tolerances):
    """The branch z = 2 t, however far the outputs are apart; the reference is a solve of x alone."""

    def func(t, u):
        return torch.stack([torch.cos(u[1] / 4) - u[0], torch.sin(u[1] - 2 * t)])

    found = fdeint_mass(func, [0.0, 0.0], times, mass=SECOND_HAS_NONE, order=0.7, **tolerances)
    rtol, atol = tolerances.get("rtol", 1e-5), tolerances.get("atol", 1e-8)
    torch.testing.assert_close(found[-1], tensor([-0.37526, 10.0]), rtol=2 * rtol, atol=2 * atol + 5e-6)


@torch.no_grad()
def test_a_cubic_constraint_to_late_times():
    def func(t, u):
        return torch.stack([-u[1], u[1] ** 3 / 3 - u[1] - u[0]])

    found = fdeint_mass(func, [3.0, 2.6], [0.0, 1.0, 1.5], mass=SECOND_HAS_NONE, order=0.8)
    torch.testing.assert_close(found[-1], tensor([-0.073, 1.694]), rtol=0, atol=5e-4)
    x, z = found.unbind(1)
    assert float((z**3 / 3 - z - x).abs().max()) < 1e-12


def diode_circuit(saturation, thermal):
    """A source sin 2πt, 1 Ω, a diode and a capacitor in a row; the unknowns are the voltages of the latter two."""

    def func(t, u):
        current = saturation * torch.expm1(u[1] / thermal)
        return torch.stack([current, torch.sin(2 * math.pi * t) - current - u[1] - u[0]])

    return func


def diode_eliminated(saturation, thermal):
    """The same for the capacitor's voltage alone: func finds the diode's by bisection."""

    def func(t, u):
        driving = torch.sin(2 * math.pi * t) - u
        low, high = driving.clamp(max=0.0) - 1.0, driving.clamp(min=0.0)
        for _ in range(60):
            middle = (low + high) / 2
            above = saturation * torch.expm1(middle / thermal) + middle > driving
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return driving - high

    return func


@pytest.mark.parametrize(
    ("saturation", "thermal"),
    [
        pytest.param(saturation, thermal, marks=[] if (saturation, thermal) == (1e-12, 26e-3) else pytest.mark.slow)
        for saturation in (1e-12, 1e-9, 1e-6)
        for thermal in (26e-3, 52e-3)
    ],
)
@torch.no_grad()
def test_diode_circuits(saturation, thermal):
    times, options = [0.0, 0.3, 0.5], {"order": 0.9, "rtol": 1e-4, "atol": 1e-7}
    found = fdeint_mass(diode_circuit(saturation, thermal), [0.0, 0.0], times, mass=SECOND_HAS_NONE, **options)
    alone = fdeint(diode_eliminated(saturation, thermal), 0.0, times, **options)
    torch.testing.assert_close(found[:, 0], alone, rtol=4e-4, atol=4e-7)


def test_the_gradient_of_a_nonlinear_constraint_against_differences():
    def end(capacity, rate):
        mass = torch.diag(torch.stack([capacity, 0 * capacity]))

        def func(t, u):
            return torch.stack([torch.sin(t) - u[1], u[1] ** 3 / 3 + rate * u[1] - u[0]])

        return fdeint_mass(func, [1.0, 0.5], [0.0, 1.0], mass=mass, order=0.7, rtol=1e-7, atol=1e-9)[-1].sum()

    given = [tensor(value, requires_grad=True) for value in (2.0, 0.8)]
    gradients = torch.autograd.grad(end(*given), given)
    with torch.no_grad():
        for place, gradient in enumerate(gradients):
            moved = [[value + sign * 1e-4 * (place == k) for k, value in enumerate((2.0, 0.8))] for sign in (1, -1)]
            up, down = (end(*map(tensor, each)) for each in moved)
            assert abs(float((up - down) / 2e-4 - gradient)) < 1e-6
