import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fracdnn.caputo import (
    l1_differences,
    l1_step_factor,
    l1_weights,
    l1_weights_on_grid,
    memory_weights,
    memory_weights_on_grid,
)
from fracdnn.caputo.weights import _gamma_by_lanczos, gamma
from tests import references

ORDERS = [1e-6, 0.05, 0.1, 0.5, 0.9, 0.99, 1 - 1e-6]
LAGS = [1, 2, 3, 7, 16, 31, 32, 33, 1000, 10**5, 10**6]


@pytest.mark.parametrize("order", ORDERS)
def test_weights_have_thirteen_digits_up_to_a_million(order):
    weights, differences = l1_weights(order, 10**6 + 1), l1_differences(order, 10**6)
    for m in LAGS:
        exact = references.l1_weight(order, m)
        assert abs(float(weights[m]) - exact) <= 1e-13 * exact
        exact = references.l1_difference(order, m)
        assert abs(float(differences[m - 1]) - exact) <= 1e-13 * exact


@pytest.mark.parametrize("order", [*ORDERS, 1, 1.0])
def test_first_weight_is_one_for_every_order(order):
    assert float(l1_weights(order, 3)[0]) == 1.0


def test_order_one_has_no_memory():
    assert l1_weights(1.0, 4).tolist() == [1, 0, 0, 0]
    assert l1_differences(1.0, 4).tolist() == [1, 0, 0, 0]
    assert memory_weights(1.0, 4).tolist() == [0, 0, 0, 1]


def test_order_towards_zero_remembers_only_the_start():
    torch.testing.assert_close(
        memory_weights(1e-12, 4), torch.tensor([1, 0, 0, 0], dtype=torch.float64), atol=1e-11, rtol=0
    )


@given(order=st.floats(1e-3, 1.0), n=st.integers(1, 300))
def test_memory_is_an_average(order, n):
    weights = memory_weights(order, n)
    assert weights.shape == (n,)
    assert (weights >= 0).all()
    assert abs(float(weights.sum()) - 1.0) < 1e-13


@given(order=st.floats(1e-3, 0.999), n=st.integers(3, 300))
def test_differences_are_positive_and_decrease(order, n):
    differences = l1_differences(order, n)
    assert (differences > 0).all()
    assert (differences.diff() < 0).all()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_weights(n):
    assert l1_weights(0.5, n).shape == (n,)
    assert l1_differences(0.5, n).shape == (n,)


def test_an_order_per_row():
    orders = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    assert l1_weights(orders, 5).shape == (2, 1, 5)
    torch.testing.assert_close(l1_weights(orders, 5)[1, 0], l1_weights(0.7, 5))
    torch.testing.assert_close(l1_differences(orders, 5)[0, 0], l1_differences(0.2, 5))


@pytest.mark.parametrize("order", [0.3, 0.9, 1.0])
def test_grid_weights_of_equal_steps_are_the_weights_by_lag(order):
    t = 0.2 * torch.arange(8, dtype=torch.float64)
    by_lag = l1_weights(order, 7)
    expected = torch.stack([torch.cat([by_lag[: j + 1].flip(0), torch.zeros(6 - j)]) for j in range(7)])
    torch.testing.assert_close(l1_weights_on_grid(order, t), expected, atol=1e-14, rtol=1e-13)
    expected = torch.stack([torch.cat([memory_weights(order, j), torch.zeros(7 - j)]) for j in range(1, 8)])
    torch.testing.assert_close(memory_weights_on_grid(order, t), expected, atol=1e-14, rtol=0)


def test_grid_weights_against_their_formula_in_many_digits():
    import mpmath

    order, t = 0.3, torch.tensor([0.0, 1e-6, 0.1, 0.7, 5.0, 5.5], dtype=torch.float64)
    weights = l1_weights_on_grid(order, t)
    with mpmath.workdps(50):
        x, p = [mpmath.mpf(float(s)) for s in t], 1 - mpmath.mpf(order)
        for j in range(1, 6):
            for k in range(1, j + 1):
                old = (x[j] - x[k]) ** p if k < j else 0
                exact = (x[j] - x[j - 1]) ** mpmath.mpf(order) / (x[k] - x[k - 1])
                exact *= (x[j] - x[k - 1]) ** p - old
                assert abs(float(weights[j - 1, k - 1]) - exact) < 1e-13 * exact


@given(order=st.floats(0.01, 1.0), steps=st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=40))
def test_memory_on_any_grid_is_an_average(order, steps):
    t = torch.tensor([0.0, *steps], dtype=torch.float64).cumsum(0)
    weights = memory_weights_on_grid(order, t)
    assert (weights >= -1e-13).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(len(steps), dtype=torch.float64))


@pytest.mark.parametrize("order", [0.05, 0.5, 0.9, 0.999])
def test_gradients_with_respect_to_order_and_steps(order):
    gamma = torch.tensor(order, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 0.3, 0.5, 1.1, 1.2], dtype=torch.float64, requires_grad=True)
    step = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    # Small steps for the differences: order 0.999 is close to the edge of the interval.
    close = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-6}
    assert torch.autograd.gradcheck(lambda g: l1_weights(g, 6), gamma, **close)
    assert torch.autograd.gradcheck(lambda g: l1_differences(g, 6), gamma, **close)
    assert torch.autograd.gradcheck(l1_step_factor, (gamma, step), **close)
    assert torch.autograd.gradcheck(l1_weights_on_grid, (gamma, t), **close)
    assert torch.autograd.gradcheck(memory_weights_on_grid, (gamma, t), **close)


def test_gradient_at_order_one_is_finite_and_the_left_limit():
    gamma = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (at_one,) = torch.autograd.grad(l1_differences(gamma, 6)[3], gamma)
    eps = 1e-6
    difference = (l1_differences(1.0, 6)[3] - l1_differences(1.0 - eps, 6)[3]) / eps
    assert abs(float(at_one - difference)) < 1e-5


@pytest.mark.parametrize("order", [0.1, 0.5, 1.0])
def test_step_factor(order):
    assert float(l1_step_factor(order, 0.2)) == pytest.approx(math.gamma(2 - order) * 0.2**order, rel=1e-14)


def test_a_coarse_default_dtype_changes_nothing():
    usual = [l1_weights(0.3, 100), l1_differences(0.3, 100)]
    try:
        torch.set_default_dtype(torch.bfloat16)
        found = [l1_weights(0.3, 100), l1_differences(0.3, 100)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, usual, strict=True))


def test_gamma_by_elementary_operations_for_export():
    x = torch.linspace(0.05, 6.0, 500, dtype=torch.float64)
    torch.testing.assert_close(_gamma_by_lanczos(x), gamma(x), rtol=1e-14, atol=0)
