"""Gradients keep the tolerance as values do: held against equations of their own, without a derivative of a solver."""

from itertools import product

import pytest
import torch

from benchmarks.adaptive_gradients import SIX, gradient_error
from fracdnn import fdeint
from tests.slow import slow_but

F64 = torch.float64


@pytest.mark.parametrize(
    ("problem", "rtol"),
    slow_but(product(SIX[:4], [1e-9]), product(SIX, [1e-5, 1e-9])),
    ids=lambda value: getattr(value, "name", None),
)
def test_six_problems(problem, rtol):
    assert gradient_error(problem, rtol)[0] <= 10.0


def test_a_smaller_tolerance_helps():
    """At order 0.5 the gradient stayed 2e-7 off, however small the tolerance."""
    problem = SIX[0]
    errors = [rtol * gradient_error(problem, rtol)[0] for rtol in (1e-7, 1e-9, 1e-11)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] <= 1e-10


def test_samples_of_a_batch():
    """At k = 1 the solution is t^order, of a constant slope; but its gradient by k has slopes like t^0.75."""
    order, size = 0.5, 3
    gamma = torch.tensor(order + 1.0, dtype=F64).lgamma().exp()
    gradients = []
    for batched in (False, True):
        k = torch.ones(size, dtype=F64, requires_grad=True)

        def func(t, u, k=k):
            known = t**order
            return gamma + known**1.5 - k * u.abs() ** 1.5

        if batched:
            found = fdeint(func, torch.zeros(size, dtype=F64), [0.0, 1.0], order=order, rtol=1e-9, batched=True)[-1]
        else:
            found = fdeint(
                lambda t, u, f=func: f(t, u), torch.zeros(size, dtype=F64), [0.0, 1.0], order=order, rtol=1e-11
            )[-1]
        gradients.append(torch.autograd.grad(found.sum(), k)[0])
        assert torch.allclose(found, torch.ones(size, dtype=F64), rtol=1e-8)
    assert torch.allclose(*gradients, rtol=1e-8)


def test_kinks_of_func_do_not_make_steps_many():
    """A network of ReLU has derivatives that jump all along."""
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(64, 8, dtype=F64, generator=generator) / 3 for _ in range(2))
    first.requires_grad_()
    start = torch.randn(8, dtype=F64, generator=generator)

    def func(t, y):
        return second.T @ torch.relu(first @ y) / 8 - y

    wanted = fdeint(func, start, [0.0, 2.0], order=0.7, rtol=1e-6, info=True)
    with torch.no_grad():
        plain = fdeint(func, start, [0.0, 2.0], order=0.7, rtol=1e-6, info=True)
    assert wanted.n_accepted + wanted.n_rejected <= 4 * (plain.n_accepted + plain.n_rejected)
