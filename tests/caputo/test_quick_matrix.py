"""The matrix for an order that changes against the formulas, many digits, and its derivatives."""

import mpmath
import pytest
import torch

from fracdnn.caputo import memory_matrix
from fracdnn.caputo.weights import quick_memory_matrix
from tests import references

MANY_LAYERS = 300
ORDERS = [1e-9, 1e-3, 0.05, 0.3, 0.5, 0.77, 0.95, 1 - 1e-6, 1.0]


@pytest.mark.parametrize("n_layers", [1, 2, 3, 17, MANY_LAYERS])
@pytest.mark.parametrize("order", ORDERS)
def test_weights_and_two_derivatives(order, n_layers):
    order = torch.tensor(order, dtype=torch.float64, requires_grad=True)
    pair = [quick_memory_matrix(order, n_layers), memory_matrix(order, n_layers)]
    cotangent = torch.randn(n_layers, n_layers, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).tril()
    cotangent /= cotangent.abs().sum()
    tolerances = (1e-14, 5e-14, 5e-13)
    for tolerance in tolerances:
        torch.testing.assert_close(*pair, rtol=0, atol=tolerance)
        if tolerance == tolerances[-1]:
            return
        sums = [(each * cotangent).sum() if each.dim() else each for each in pair]
        pair = [torch.autograd.grad(each, order, create_graph=True)[0] for each in sums]


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_row_in_many_digits(order):
    n = MANY_LAYERS
    row = quick_memory_matrix(torch.tensor(order, dtype=torch.float64), n)[-1]
    exact = [references.l1_weight(order, n - 1), *(references.l1_difference(order, n - k) for k in range(1, n))]
    for mine, theirs in zip(row.tolist(), exact, strict=True):
        assert abs(mpmath.mpf(mine) - theirs) < 1e-14


def test_derivatives_by_finite_differences():
    order = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda o: quick_memory_matrix(o, 5), order)
    assert torch.autograd.gradgradcheck(lambda o: quick_memory_matrix(o, 5), order)
