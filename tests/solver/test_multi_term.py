import math

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver import Graded, MultiTerm, Uniform, fdeint
from tests.slow import each_once

ZERO, ONE = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)


def forced(t, lower):
    return t**2 + 2 + 4 * torch.sqrt(t / math.pi)


def bagley_torvik(coefficients=(1.0, 1.0, 1.0), orders=(2.0, 1.5, 0.0)):
    """Solved by t² for the coefficients and orders given here."""
    return MultiTerm(orders, coefficients, forced)


def of_third_order():
    """Solved by sin t + cos t."""
    orders, coefficients = [3.0, 2.5, 2.0, 1.0, 0.5, 0.0], [1.0, 1.0, 1.0, 4.0, 1.0, 4.0]
    return MultiTerm(orders, coefficients, lambda t, lower: 6 * torch.cos(t))


PROBLEMS = [
    (bagley_torvik(), (ZERO, ZERO), 1.0),
    (of_third_order(), (ONE, ONE, -ONE), math.sin(1.0) + math.cos(1.0)),
]


def rate_of(equation, initial, exact, grid=Uniform, **options):
    errors = [
        abs(float(equation.solve(initial, [0.0, 1.0], grid=grid(n), trajectory=False, **options)) - exact)
        for n in (80, 160)
    ]
    return math.log2(errors[0] / errors[1])


@pytest.mark.parametrize(("place", "method"), each_once([0, 1], ["adams", "trapezoidal"]))
def test_second_order_on_a_graded_grid(place, method):
    equation, initial, exact = PROBLEMS[place]
    assert abs(rate_of(equation, initial, exact, method=method, grid=Graded) - 2) < 0.15


def test_equal_steps_leave_the_order_of_slopes_like_the_root_of_t():
    assert abs(rate_of(*PROBLEMS[0], method="adams") - 1.5) < 0.1


def test_the_system_is_the_equation_of_its_derivatives():
    """All components of the third-order problem: y, D^0.5 y, y′, y″ and D^2.5 y, on an adaptive grid."""
    equation, initial, _ = PROBLEMS[1]
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    states = fdeint(equation.func, equation.start(*initial), t, order=equation.order, rtol=1e-4)
    assert [float(order) for order in equation.order] == [0.5, 0.5, 1.0, 0.5, 0.5]
    whole = {0: torch.sin(t) + torch.cos(t), 2: torch.cos(t) - torch.sin(t), 3: -torch.sin(t) - torch.cos(t)}
    for place, expected in whole.items():
        torch.testing.assert_close(states[place], expected, rtol=1e-3, atol=1e-3)
    assert states[1][0] == states[4][0] == 0


def test_an_order_of_one_is_an_ordinary_differential_equation():
    equation = MultiTerm([1, 0], [2, 1], lambda t, lower: 0.0)
    y = equation.solve((torch.ones(3, dtype=torch.float64),), [0.0, 1.0], n_steps=100, info=True)
    torch.testing.assert_close(y.states[-1], torch.full((3,), math.exp(-0.5), dtype=torch.float64), rtol=1e-5, atol=0)


def test_right_side_gets_the_lower_derivatives_as_listed():
    """A linear term may as well stand on the right."""
    t, initial = [0.0, 0.5, 1.0], (ONE, ONE)
    left = MultiTerm([0.0, 0.5, 1.6], [3.0, 2.0, 1.0], lambda t, lower: 0.0)
    right = MultiTerm([0.5, 1.6, 0.0], [0.0, 1.0, 0.0], lambda t, lower: -2.0 * lower[0] - 3.0 * lower[1])
    torch.testing.assert_close(left.solve(initial, t, n_steps=20), right.solve(initial, t, n_steps=20))


def test_gradients_by_coefficients_orders_and_initial_values():
    coefficients = torch.tensor([1.2, 0.8, 0.5], dtype=torch.float64, requires_grad=True)
    order = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    y0, slope0 = (torch.tensor([0.3, value], dtype=torch.float64, requires_grad=True) for value in (1.0, -0.4))

    def solve(coefficients, order, y0, slope0):
        return bagley_torvik(coefficients, [2.0, order, 0.0]).solve((y0, slope0), [0.0, 0.7, 1.0], n_steps=6)

    assert torch.autograd.gradcheck(solve, (coefficients, order, y0, slope0))


def test_an_equation_sees_its_parameters_as_they_are_now():
    coefficient, order = torch.tensor(1.0, requires_grad=True), torch.tensor(1.4, requires_grad=True)
    equation = bagley_torvik([1.0, coefficient, 1.0], [2.0, order, 0.0])
    with torch.no_grad():
        coefficient.copy_(2.0)
        order.copy_(1.25)
    found = equation.solve((ONE, ONE), [0.0, 1.0], n_steps=8)
    expected = bagley_torvik([1.0, 2.0, 1.0], [2.0, 1.25, 0.0]).solve((ONE, ONE), [0.0, 1.0], n_steps=8)
    torch.testing.assert_close(found.detach(), expected)


def test_single_precision_stays_single():
    y = bagley_torvik().solve((torch.zeros(2), torch.zeros(2)), [0.0, 1.0], grid=Graded(80))
    assert y.dtype == torch.float32
    torch.testing.assert_close(y[-1], torch.ones(2), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("orders", "coefficients", "message"),
    [
        ([2.0, -1.0], [1.0, 1.0], r"orders\[1\] must be one number, not below 0, got -1.0; 0 stands for y itself"),
        ([2.0, 2.0], [1.0, 1.0], r"orders must differ, got \[2.0, 2.0\]; add up the coefficients of equal orders"),
        ([0.0], [1.0], r"orders must hold one above 0, got \[0.0\]; without a derivative"),
        ([0.5], [math.nan], r"coefficients\[0\] must be finite real numbers, got nan; check"),
        ([0.5, 0.0], [1.0, torch.tensor([1.0, math.inf])], r"coefficients\[1\] must be finite real numbers, got \[1.0"),
        ([2.0, 0.0], [1.0], "coefficients must hold one for each order, 2, got 1; pass as many as orders"),
        ([2.0, 0.0], [0.0, 1.0], "coefficients must not be 0 for the highest order, got 0.0 for order 2; leave"),
        ([torch.tensor(1.0, requires_grad=True)], [1.0], r"orders\[0\] must not be a whole number where it is learned"),
    ],
)
def test_terms_that_make_no_equation(orders, coefficients, message):
    with pytest.raises(InvalidArgumentError, match=message):
        MultiTerm(orders, coefficients, lambda t, lower: 0.0)


@pytest.mark.parametrize(
    ("orders", "coefficients", "right_side", "message"),
    [
        (2.0, [1.0], forced, "orders must be a list with one entry for each term, got 2.0; pass a list"),
        ([2.0], ["1"], forced, r"coefficients\[0\] must be a number or a tensor, got str; pass a float"),
        ([2.0], [1.0], 0.0, r"right_side must be callable as right_side\(t, lower\), got float; pass a function"),
    ],
)
def test_arguments_of_another_type(orders, coefficients, right_side, message):
    with pytest.raises(InvalidTypeError, match=message):
        MultiTerm(orders, coefficients, right_side)


def test_initial_values_that_do_not_fit():
    equation = bagley_torvik()
    with pytest.raises(
        InvalidArgumentError, match=r"initial must hold 2 tensors for these orders, y\(0\), y′\(0\), got"
    ):
        equation.solve((ZERO,), [0.0, 1.0], n_steps=4)
    with pytest.raises(InvalidArgumentError, match=r"initial\[1\] must be a tensor of the shape of initial\[0\], \(\)"):
        equation.solve((ZERO, torch.zeros(2, dtype=torch.float64)), [0.0, 1.0], n_steps=4)
    with pytest.raises(InvalidTypeError, match=r"initial must be a tuple of tensors.*pass \(y0,\) for one"):
        equation.solve(ZERO, [0.0, 1.0], n_steps=4)
    with pytest.raises(InvalidArgumentError, match=r"slope must not be given to MultiTerm.solve, got 0.0; pass slopes"):
        equation.solve((ZERO, ZERO), [0.0, 1.0], options={"slope": 0.0})
    vague = MultiTerm([1.0], [1.0], lambda t, lower: None)
    with pytest.raises(InvalidArgumentError, match=r"right_side must return a number or a tensor .*, got NoneType"):
        vague.solve((ZERO,), [0.0, 1.0], n_steps=4)
    uneven = MultiTerm([1.0, 0.0], [1.0, torch.ones(3)], lambda t, lower: 0.0)
    message = r"coefficients\[1\] must broadcast against y's shape \(2,\), got shape \(3,\); pass one number"
    with pytest.raises(InvalidArgumentError, match=message):
        uneven.solve((torch.zeros(2),), [0.0, 1.0], n_steps=4)
    wide = MultiTerm([1.0], [1.0], lambda t, lower: torch.zeros(3))
    with pytest.raises(
        InvalidArgumentError, match=r"right_side must broadcast against y's shape \(\), got shape \(3,\)"
    ):
        wide.solve((ZERO,), [0.0, 1.0], n_steps=4)
