"""Tempered derivatives: closed solutions, gradients, and what is refused."""

import pytest
import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver import fdeint, fdeint_tempered

T = torch.linspace(0, 3, 7, dtype=torch.float64)


def relaxed(t, tempering, order):
    """Solves e^(−λ t) D^order (e^(λ t) u) = −u from 1 at t[0]."""
    elapsed = t - t[0]
    return torch.exp(-tempering * elapsed) * mittag_leffler(-(elapsed**order), order)


@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
@pytest.mark.parametrize("tempering", [0.0, 1.5, 20.0])
@pytest.mark.parametrize("begin", [0.0, 100.0])
def test_closed_solutions_to_the_tolerance(begin, tempering, rtol):
    t = begin + T
    with torch.no_grad():
        found = fdeint_tempered(lambda t, u: -u, 1.0, t, tempering=tempering, order=0.6, rtol=rtol)
    assert float((found / relaxed(t, tempering, 0.6) - 1).abs().max()) < 10 * rtol


def test_a_nonlinear_equation_at_order_one():
    """u′ + λ u = −u² from 1 is solved by λ / ((λ + 1) e^(λ t) − 1)."""
    with torch.no_grad():
        found = fdeint_tempered(lambda t, u: -(u**2), 1.0, T, tempering=2.0, order=1.0, rtol=1e-8)
    torch.testing.assert_close(found, 2 / (3 * torch.exp(2 * T) - 1), rtol=1e-7, atol=1e-10)


def test_gradients_by_three_witnesses():
    """By tempering and order: closed derivatives, `torch.func` and differences."""

    def end(tempering, order):
        return fdeint_tempered(lambda t, u: -u, 1.0, T, tempering=tempering, order=order, rtol=1e-9)[-1]

    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.7, 0.6)]
    gradients = torch.autograd.grad(end(*given), given)
    exact = torch.exp(-3 * given[0]) * mittag_leffler(-(3.0 ** given[1]), given[1])
    closed = torch.autograd.grad(exact, given)
    torch.testing.assert_close(gradients, closed, rtol=1e-7, atol=1e-8)
    numbers = [each.detach() for each in given]
    torch.testing.assert_close(torch.func.grad(end)(*numbers), gradients[0], rtol=1e-8, atol=1e-9)
    with torch.no_grad():
        difference = (end(numbers[0], numbers[1] + 1e-4) - end(numbers[0], numbers[1] - 1e-4)) / 2e-4
    assert abs(float(difference - gradients[1])) < 1e-6


def test_tuples_of_several_orders_and_the_last_state_alone():
    start = (torch.ones(2, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    options = {"tempering": 1.5, "order": (0.6, 0.9), "rtol": 1e-7}
    first, second = fdeint_tempered(lambda t, y: (-y[0], -y[1]), start, T, trajectory=False, **options)
    torch.testing.assert_close(first, relaxed(T, 1.5, 0.6)[-1].expand(2), rtol=1e-6, atol=1e-10)
    found = fdeint_tempered(lambda t, y: (-y[0], -y[1]), start, T, info=True, **options)
    torch.testing.assert_close(found.states[1], relaxed(T, 1.5, 0.9), rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(found.states[1][-1], second, rtol=1e-6, atol=1e-10)
    with pytest.raises(InvalidArgumentError, match="pass the times in t"):  # e^(λ t) u is what has been solved for
        found.evaluate([1.0])


def test_without_tempering_it_is_fdeint():
    found = fdeint_tempered(lambda t, u: -u, torch.ones(2), T.float(), tempering=0.0, order=0.5)
    assert torch.equal(found, fdeint(lambda t, u: -u, torch.ones(2), T.float(), order=0.5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tempering": -1.0}, r"tempering must be one number, from 0 to 603 over the span, got -1.0; pass a smaller"),
        ({"tempering": 300.0}, r"tempering must be one number, from 0 to 603 over the span, got 300.0"),
        ({"tempering": float("nan")}, r"tempering must be one number, from 0 to 603 over the span, got nan"),
        ({"tempering": torch.ones(2)}, r"tempering must be one number, .* got \[1.0, 1.0\]"),
        (
            {"batched": True},
            "batched must not be given to fdeint_tempered, got True; give y0 a dimension for the batch",
        ),
        ({"order": 1.5, "options": {"slope": 0.0}}, "order must be at most 1 with a tempering, got 1.5; use fdeint"),
    ],
)
def test_bad_input(changed, message):
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint_tempered(lambda t, u: -u, 1.0, T, **({"tempering": 1.0, "order": 0.5} | changed))


def test_a_tempering_that_is_no_number():
    with pytest.raises(InvalidTypeError, match="tempering must be a number, got str; pass a rate, 0 for none"):
        fdeint_tempered(lambda t, u: -u, 1.0, T, tempering="1", order=0.5)
