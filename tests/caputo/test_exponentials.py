import math

import pytest
import torch

from fracdnn.caputo import compress_differences, l1_differences
from fracdnn.caputo.exponentials import _quadrature_rates
from tests.slow import each_once

ORDERS = [0.05, 0.1, 0.5, 0.9, 0.99]


def largest_error(terms, order, max_lag):
    exact = l1_differences(order, max_lag)
    lags = torch.arange(terms.min_lag, max_lag + 1)
    errors = [(terms(part) / exact[part - 1] - 1).abs().max() for part in lags.split(10**5)]
    return float(torch.stack(errors).max())


@pytest.mark.parametrize(("order", "compress_tol"), each_once([0.05, 0.5, 0.99], [1e-6, 1e-10]))
def test_every_lag_up_to_a_million_meets_the_tolerance(order, compress_tol):
    terms = compress_differences(order, max_lag=10**6, compress_tol=compress_tol)
    error = largest_error(terms, order, 10**6)
    assert error <= compress_tol
    assert terms.error == pytest.approx(error, rel=0.05)  # what it says of itself is true
    assert (terms.weights > 0).all()
    assert (terms.rates > 0).all()


def test_counts_stated_in_the_docstring():
    counts = {
        compress_tol: [compress_differences(o, max_lag=10**6, compress_tol=compress_tol).n_terms for o in ORDERS]
        for compress_tol in (1e-6, 1e-10)
    }
    stated = [
        [int(word) for word in line.split() if word.isdigit()]
        for line in (compress_differences.__doc__ or "").splitlines()
        if line.strip().startswith(("1e-6 ", "1e-10 "))
    ]
    for found, said in zip(counts.values(), stated, strict=True):
        # Rounding differs between machines by a term; a lost reduction step would double the count.
        assert all(abs(a - b) <= 2 for a, b in zip(found, said, strict=True))


@pytest.mark.parametrize(
    ("min_lag", "max_lag"),
    [(2, 2), (2, 50), (32, 32), (32, 33), (8, 5000), (100, 10**5), pytest.param(100, 3000000, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("order", [0.05, 0.6, 0.99])
def test_any_range_of_lags(min_lag, max_lag, order):
    terms = compress_differences(order, min_lag=min_lag, max_lag=max_lag, compress_tol=1e-8)
    assert largest_error(terms, order, max_lag) <= 1e-8


@pytest.mark.parametrize("order", [0.05, 0.6, 0.99])
def test_few_lags_take_few_terms(order):
    assert compress_differences(order, max_lag=33, compress_tol=1e-8).n_terms <= 3


@pytest.mark.parametrize("order", [0.05, 0.5, 0.9])
def test_long_spans_take_few_terms(order):
    terms = compress_differences(order, max_lag=10**8, compress_tol=1e-10)
    assert terms.n_terms <= 66
    assert terms.error <= 1e-10


def test_lags_that_begin_late_take_fewer_terms_of_the_trapezoidal_rule():
    """These are the terms where they cannot be reduced, and else the cost of reducing them."""
    counts = [len(_quadrature_rates(0.5, min_lag, 10**9, 1e-10)[0]) for min_lag in (2, 32, 10**3, 10**5)]
    assert counts == sorted(counts, reverse=True)
    assert 200 > counts[0] > 1.3 * counts[-1]


def test_order_one_has_no_far_weights():
    terms = compress_differences(1.0, max_lag=1000)
    assert terms.n_terms == 0
    assert terms(torch.arange(32, 40)).tolist() == [0.0] * 8


@pytest.mark.parametrize("order", [0.1, 0.5, 0.9, 1.0])
def test_the_derivative_with_respect_to_the_order_is_carried(order):
    gamma = torch.tensor(order, dtype=torch.float64, requires_grad=True)
    terms = compress_differences(gamma, max_lag=5000, compress_tol=1e-10)
    lags = torch.tensor([32, 60, 300, 1000, 5000])
    exact = l1_differences(gamma, 5000)[lags - 1]
    for approximate, true in zip(terms(lags), exact, strict=True):
        (ours,) = torch.autograd.grad(approximate, gamma, retain_graph=True)
        (theirs,) = torch.autograd.grad(true, gamma, retain_graph=True)
        # At order 1 the weights are 0, and their derivative alone is a scale.
        assert abs(float(ours - theirs)) <= 1e-9 * float(true.detach() if order < 1 else theirs.abs())


def test_the_integral_it_rests_on():
    """h_m = (1−γ)/Γ(γ) ∫ s^(γ−2) 4 sinh²(s/2) e^(−sm) ds, checked by an independent quadrature."""
    from scipy.integrate import quad

    order, m = 0.4, 7
    value, _ = quad(lambda s: s ** (order - 2) * 4 * math.sinh(s / 2) ** 2 * math.exp(-s * m), 0, 50)
    value *= (1 - order) / math.gamma(order)
    assert value == pytest.approx(float(l1_differences(order, m)[-1]), rel=1e-9)


def test_a_coarse_default_dtype_changes_nothing():
    order = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)  # for which nothing is cached
    usual = compress_differences(order, max_lag=10**5)
    try:
        torch.set_default_dtype(torch.bfloat16)
        found = compress_differences(order, max_lag=10**5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found.rates, usual.rates)
    assert torch.equal(found.weights, usual.weights)
    assert found.error == usual.error


def test_what_a_caller_writes_into_is_a_copy():
    first = compress_differences(0.5, max_lag=100)
    rates, weights = first.rates.clone(), first.weights.clone()
    first.rates.zero_(), first.weights.zero_()
    again = compress_differences(0.5, max_lag=100)
    assert torch.equal(again.rates, rates)
    assert torch.equal(again.weights, weights)
