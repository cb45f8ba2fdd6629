import math

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver import cubic_input, fdeint, linear_input

UNEQUAL = torch.tensor([0.0, 0.1, 0.4, 0.5, 1.1, 1.3, 2.0], dtype=torch.float64)


def samples(n, *shape):
    return torch.randn(n, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(n))


def test_linear_input_is_numpys():
    values, t = samples(7), torch.linspace(0, 2, 41, dtype=torch.float64)
    expected = np.interp(t.numpy(), UNEQUAL.numpy(), values.numpy())
    np.testing.assert_allclose(linear_input(UNEQUAL, values)(t), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [4, 5, 6, 7, 33, 100])
def test_cubic_input_is_scipys_spline(n):
    times = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add(0.05).cumsum(0)
    values = samples(n, 2, 3)
    t = torch.linspace(float(times[0]), float(times[-1]), 57, dtype=torch.float64)
    expected = CubicSpline(times.numpy(), values.numpy(), bc_type="not-a-knot")(t.numpy())
    np.testing.assert_allclose(cubic_input(times, values)(t), expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize(("make", "order"), [(linear_input, 2), (cubic_input, 4)])
def test_order_of_convergence(make, order):
    t = torch.linspace(0, 2, 1001, dtype=torch.float64)
    errors = []
    for n in (20, 40, 80, 160):
        times = torch.linspace(0, 2, n + 1, dtype=torch.float64)
        errors.append(float((make(times, torch.exp(times))(t) - torch.exp(t)).abs().max()))
    assert abs(-np.polyfit(np.log([20, 40, 80, 160]), np.log(errors), 1)[0] - order) < 0.15


@pytest.mark.parametrize("make", [linear_input, cubic_input])
def test_gradients_by_values_and_time(make):
    values = samples(7, 2).requires_grad_()
    t = torch.tensor([[0.03, 0.7], [1.2, 1.9]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values, t: make(UNEQUAL, values)(t), (values, t))


@pytest.mark.parametrize("make", [linear_input, cubic_input])
def test_shapes_dtypes_and_samples(make):
    values = samples(7, 2, 3)
    u = make(UNEQUAL, values)
    assert u(0.3).shape == (2, 3)
    assert u(torch.zeros(4, 5)).shape == (4, 5, 2, 3)
    torch.testing.assert_close(u(UNEQUAL), values, rtol=0, atol=1e-13)
    single = make(UNEQUAL.float(), values.float())(torch.tensor(0.3, dtype=torch.float64))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), u(0.3), rtol=1e-4, atol=1e-4)


def test_a_solve_with_a_measured_input_and_its_gradient():
    """The solution of d^0.5 u = input, for the input t: t^1.5 / Γ(2.5), exact in the samples."""
    times = torch.linspace(0, 1, 5, dtype=torch.float64)
    values = times.clone().requires_grad_()
    u = linear_input(times, values)
    start = torch.zeros((), dtype=torch.float64)
    end = fdeint(lambda t, y: u(t) + 0 * y, start, [0.0, 1.0], order=0.5, n_steps=8, trajectory=False)
    assert math.isclose(end.item(), 1 / math.gamma(2.5), rel_tol=1e-12)
    (gradient,) = torch.autograd.grad(end, values)
    assert math.isclose(float(gradient.sum()), 1 / math.gamma(1.5), rel_tol=1e-12)


def test_times_outside_of_the_samples():
    u = linear_input(UNEQUAL, samples(7))
    u(torch.tensor(2.0 * (1 + 1e-15), dtype=torch.float64))
    for t in (-0.1, 2.001, float("nan")):
        with pytest.raises(InvalidArgumentError, match=f"first and last sample's time, 0 and 2, got {t:.6g}; solve"):
            u(t)


@pytest.mark.parametrize(
    ("make", "times", "values", "error", "message"),
    [
        (linear_input, [0, 1], "01", InvalidTypeError, r"values must be a tensor \[T, ...\], got str; pass"),
        (linear_input, [0], [0.0], InvalidArgumentError, "hold at least 2 times, got 1; pass two or more samples"),
        (
            linear_input,
            [0, 1],
            torch.zeros(3),
            InvalidArgumentError,
            r"one row for each of the 2 times, got shape \(3,\)",
        ),
        (linear_input, [1, 0], torch.zeros(2), InvalidArgumentError, "times must increase strictly"),
        (
            cubic_input,
            [0, 1, 2],
            torch.zeros(3),
            InvalidArgumentError,
            "at least 4 times, got 3; pass more samples, or",
        ),
    ],
)
def test_samples_that_make_no_input(make, times, values, error, message):
    with pytest.raises(error, match=message):
        make(times, values)
