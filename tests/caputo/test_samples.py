import math

import numpy as np
import pytest
import torch

from fracdnn.caputo import caputo_derivative, fractional_integral
from fracdnn.solver import graded_mesh


def slope(sizes, errors):
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0]


@pytest.mark.parametrize("order", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("side", ["left", "right"])
def test_derivative_converges_with_order_two_minus_gamma_for_smooth_functions(order, side):
    steps, errors = [1 / n for n in (64, 128, 256, 512, 1024)], []
    for step in steps:
        t = np.arange(round(1 / step) + 1) * step
        u = t**3 if side == "left" else (1 - t) ** 3
        exact = 6 / math.gamma(4 - order) * (t if side == "left" else 1 - t) ** (3 - order)
        errors.append(np.abs(caputo_derivative(u, order=order, step_size=step, side=side) - exact).max())
    assert abs(slope(steps, errors) - (2 - order)) < 0.15


@pytest.mark.parametrize("order", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("n", [2, 33, 511, 2000])
def test_derivative_of_the_absolute_value_is_exact(order, n):
    """The paper's remark: d^γ |t| = t^(1−γ)/Γ(2−γ) for t ≥ 0, at once and on any grid."""
    t = graded_mesh(2.0, n, 1.7).numpy()
    exact = t ** (1 - order) / math.gamma(2 - order)
    np.testing.assert_allclose(caputo_derivative(np.abs(t), order=order, t=t), exact, rtol=1e-11)
    t = np.arange(n + 1) * 0.1
    exact = t ** (1 - order) / math.gamma(2 - order)
    np.testing.assert_allclose(caputo_derivative(np.abs(t), order=order, step_size=0.1), exact, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("order", [0.2, 0.7, 1.0])
def test_integral_converges_with_second_order(order):
    steps, errors = [1 / n for n in (64, 128, 256, 512, 1024)], []
    for step in steps:
        t = np.arange(round(1 / step) + 1) * step
        exact = 6 / math.gamma(4 + order) * t ** (3 + order)
        errors.append(np.abs(fractional_integral(t**3, order=order, step_size=step) - exact).max())
    assert abs(slope(steps, errors) - 2) < 0.15


@pytest.mark.parametrize("order", [0.3, 1.0])
def test_integral_is_exact_for_linear_functions_on_any_grid(order):
    t = graded_mesh(3.0, 40, 2.0).numpy()
    exact = 2 * t**order / math.gamma(1 + order) - 0.5 * t ** (1 + order) / math.gamma(2 + order)
    np.testing.assert_allclose(fractional_integral(2 - 0.5 * t, order=order, t=t), exact, rtol=1e-12)


def test_integral_of_the_derivative_gives_the_function_back():
    t = np.linspace(0, 1, 4001)
    derivative = caputo_derivative(np.sin(t), order=0.4, step_size=t[1])
    back = fractional_integral(derivative, order=0.4, step_size=t[1])
    # Next to 0 the derivative behaves like t^0.6, which a piecewise-linear interpolant meets slowly.
    np.testing.assert_allclose(back[400:], np.sin(t)[400:], atol=1e-6)


@pytest.mark.parametrize("order", [0.25, 0.6, 0.9])
def test_fractional_integration_by_parts(order):
    """The paper's Lemma, with both boundary terms; the errors vanish with the step."""
    errors, sizes = [], (200, 400, 800, 1600)
    for n in sizes:
        t, step = np.linspace(0, 1, n + 1), 1 / n
        f, g = 1 + np.sin(2 * t), np.exp(-t) + t**2
        options = {"step_size": step}
        left = np.trapezoid(caputo_derivative(f, order=order, **options) * g, t)
        right = np.trapezoid(f * caputo_derivative(g, order=order, side="right", **options), t)
        right += g[-1] * fractional_integral(f, order=1 - order, **options)[-1]
        right -= f[0] * fractional_integral(g, order=1 - order, side="right", **options)[0]
        errors.append(abs(left - right))
    assert errors[-1] < 4e-3
    # The trapezoidal sum of a t^(1−γ) singularity costs order 2−γ, the L1 error the same.
    assert abs(-slope(sizes, errors) - (2 - order)) < 0.15


def test_order_one_gives_differences():
    t = np.array([0.0, 0.5, 1.5])
    u = t**2
    np.testing.assert_allclose(caputo_derivative(u, order=1, t=t), [0.5, 0.5, 2.0])
    np.testing.assert_allclose(caputo_derivative(u, order=1, t=t, side="right"), [-0.5, -2.0, -2.0])
    np.testing.assert_allclose(fractional_integral(t, order=1, t=t), t**2 / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out_with_any_trailing_shape(dtype):
    samples = torch.randn(700, 2, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    together = caputo_derivative(samples, order=0.5, step_size=0.1)
    assert together.dtype == dtype
    assert together.shape == samples.shape
    alone = caputo_derivative(samples[:, 1, 2].numpy(), order=0.5, step_size=0.1)
    assert isinstance(alone, np.ndarray)
    np.testing.assert_allclose(together[:, 1, 2].numpy(), alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [caputo_derivative, fractional_integral])
@pytest.mark.parametrize("side", ["left", "right"])
def test_convolution_agrees_with_the_triangular_product(function, side):
    samples = torch.randn(1500, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    t = 0.01 * torch.arange(1500, dtype=torch.float64)
    fast = function(samples, order=0.6, step_size=0.01, side=side)
    torch.testing.assert_close(fast, function(samples, order=0.6, t=t, side=side), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", [caputo_derivative, fractional_integral])
def test_gradients(function):
    samples = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    order = torch.tensor(0.6, dtype=torch.float64)
    t = torch.tensor([0.0, 0.2, 0.5, 0.6, 1.0, 1.7], dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (samples, order, t)]
    assert torch.autograd.gradcheck(lambda u, g, s: function(u, order=g, t=s), inputs)


@pytest.mark.parametrize("function", [caputo_derivative, fractional_integral])
def test_early_values_survive_large_later_ones(function):
    """The rounding of a convolution must be measured against what is nearby."""
    t = np.arange(2001) / 2000
    samples = np.exp(40 * t)
    fast = function(samples, order=0.5, step_size=t[1])
    np.testing.assert_allclose(fast, function(samples, order=0.5, t=t), rtol=1e-11)


@pytest.mark.parametrize("function", [caputo_derivative, fractional_integral])
@pytest.mark.parametrize("n", [6, 520])
def test_gradient_of_the_step_size_and_the_samples_with_equal_steps(function, n):
    samples = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    t = step * torch.arange(n, dtype=torch.float64)
    weights = torch.linspace(-1, 1, n, dtype=torch.float64)
    fast = torch.autograd.grad(function(samples, order=0.6, step_size=step) @ weights, (samples, step))
    slow = torch.autograd.grad(function(samples, order=0.6, t=t) @ weights, (samples, step))
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", [caputo_derivative, fractional_integral])
def test_only_differences_of_times_matter(function):
    t = np.array([0.0, 0.25, 0.5, 2.0])
    samples = np.array([1.0, 3.0, 2.0, 5.0])
    np.testing.assert_allclose(function(samples, order=0.3, t=t + 8.0), function(samples, order=0.3, t=t), rtol=1e-14)


def test_any_float_array_is_taken():
    samples = np.linspace(0, 1, 6)
    expected = caputo_derivative(samples, order=0.5, step_size=0.2)
    for other in (samples.astype(">f8"), samples.astype(np.longdouble), samples[::-1][::-1]):
        result = caputo_derivative(other, order=0.5, step_size=0.2)
        assert result.dtype == other.dtype
        np.testing.assert_allclose(result.astype(float), expected)
    t = np.linspace(1, 0, 6)[::-1]
    np.testing.assert_allclose(caputo_derivative(samples, order=0.5, t=t), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [10, 600])
def test_samples_without_columns(n):
    """Nothing, but of the right shape, however many samples there are."""
    assert caputo_derivative(np.zeros((n, 0)), order=0.5, step_size=0.1).shape == (n, 0)
