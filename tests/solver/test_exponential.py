import math

import numpy as np
import pytest
import torch

from fracdnn.caputo import mittag_leffler_matrix
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError, NotConvergedError
from fracdnn.solver import fdeint
from tests.solver.calls import grouped

STEPS = (20, 40, 80, 160)


def stiff_matrix():
    """Symmetric, with eigenvalues −1 … −10⁴; and its eigenvectors and -values."""
    vectors, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    values = -torch.tensor([1.0, 20.0, 500.0, 1e4], dtype=torch.float64)
    return (vectors * values) @ vectors.T, vectors, values


def nothing(t, u):
    return torch.zeros_like(u)


@pytest.mark.parametrize("order", [0.3, 1.0, 1.7])
def test_exact_without_a_nonlinear_part_at_any_step(order):
    matrix, _, _ = stiff_matrix()
    if order > 1.0:
        matrix = matrix / 100.0
    y0, slope0 = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    t = torch.tensor([0.0, 0.6, 1.5], dtype=torch.float64)
    start = (y0, slope0) if order > 1.0 else y0
    u = fdeint(nothing, start, t, order=order, method="exponential", n_steps=5, options={"linear": matrix})
    expected = y0 @ mittag_leffler_matrix(matrix, order, scale=t**order).mT
    if order > 1.0:
        of_slope = mittag_leffler_matrix(matrix, order, 2.0, scale=t**order).mT
        expected = expected + t[:, None, None] * (slope0 @ of_slope)
    torch.testing.assert_close(u, expected, rtol=0, atol=1e-11)


def manufactured(order):
    """A stiff semilinear problem solved by c (1 + t²)."""
    matrix, vectors, values = stiff_matrix()
    c = (vectors / values).sum(-1)

    def solution(t):
        return c * (1 + t**2)

    def rest(t, u):
        exact = solution(t)
        slope = 2 * c * t ** (2 - order) / math.gamma(3 - order)
        return slope - exact @ matrix.T + torch.sin(u) - torch.sin(exact)

    return matrix, rest, c, solution(torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("order", [0.5, 0.7, 1.0])
def test_second_order_for_a_stiff_problem(order):
    matrix, rest, start, exact = manufactured(order)
    errors = [
        float(
            (
                fdeint(rest, start, [0, 1], order=order, n_steps=n, trajectory=False, options={"linear": matrix})
                - exact
            ).norm()
        )
        for n in STEPS
    ]
    assert abs(-np.polyfit(np.log(STEPS), np.log(errors), 1)[0] - 2) < 0.15
    with pytest.raises(NotConvergedError, match="steps must be shorter for method 'adams' to be stable"):
        fdeint(lambda t, u: u @ matrix.T + rest(t, u), start, [0, 1], order=order, method="adams", n_steps=STEPS[-1])


@pytest.mark.parametrize("order", [0.6, 1.4])
def test_without_a_linear_part_it_is_the_adams_method(order):
    """On more steps than a block has."""
    y0 = torch.tensor([[1.0, 0.5], [0.2, -0.3]], dtype=torch.float64)
    start = (y0, y0.flip(-1)) if order > 1 else y0
    zero = torch.zeros(2, 2, dtype=torch.float64)

    def rest(t, u):
        return torch.sin(u.flip(-1)) * torch.cos(t)

    for corrections in (1, 2):
        options = {"order": order, "n_steps": 90, "corrections": corrections}
        adams = fdeint(rest, start, [0, 0.5, 1], method="adams", **grouped(**options))
        torch.testing.assert_close(fdeint(rest, start, [0, 0.5, 1], **grouped(linear=zero, **options)), adams)


@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param([[-2.0, 0.5], [0.3, -40.0]], marks=pytest.mark.slow),
        [[-1.0, 3.0], [-3.0, -1.0]],
        pytest.param([[-5.0, 0.0], [0.0, -5.0]], marks=pytest.mark.slow),
    ],
    ids=["stiff", "rotating", "equal eigenvalues"],
)
def test_gradients_with_respect_to_everything(matrix):
    matrix = torch.tensor(matrix, dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([[0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    order = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    rate = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 0.37, 1.0], dtype=torch.float64, requires_grad=True)

    def solve(matrix, y0, order, rate, t):
        return fdeint(
            lambda s, u: torch.tanh(rate * u) * s.cos(), y0, t, order=order, n_steps=4, options={"linear": matrix}
        )

    assert torch.autograd.gradcheck(solve, (matrix, y0, order, rate, t))


def test_single_precision_stays_single():
    matrix, rest, start, exact = manufactured(0.5)
    u = fdeint(
        lambda t, u: rest(t, u.double()).float(),
        start.float(),
        [0, 1],
        order=0.5,
        n_steps=80,
        options={"linear": matrix.float()},
    )
    assert u.dtype == torch.float32
    torch.testing.assert_close(u[-1].double(), exact, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "adams"}, InvalidArgumentError, "linear must not be given for method 'adams', got a Tensor; add"),
        ({"linear": None}, InvalidArgumentError, "linear must be given for method 'exponential', got None; pass"),
        ({"linear": [[1.0]]}, InvalidTypeError, r"linear must be a tensor \[d, d\], got list; pass a tensor"),
        ({"linear": torch.zeros(2, 3)}, InvalidArgumentError, r"linear must have shape \[d, d\] .* got \(2, 3\)"),
        ({"linear": torch.zeros(3, 3)}, InvalidArgumentError, r"got \(3, 3\) for a state of shape \(2,\); it acts"),
        ({"linear": torch.full((2, 2), torch.nan)}, InvalidArgumentError, "linear must be finite, got nan"),
        ({"order": torch.tensor([0.5, 0.6])}, InvalidArgumentError, "y0 must be one tensor, and order one number"),
        ({"n_steps": None}, InvalidArgumentError, "grid must be .* for method 'exponential', got 'adaptive'"),
        ({"n_steps": None, "grid": "given"}, InvalidArgumentError, "grid must be 'uniform' for method 'exponential'"),
        ({"checkpoint": True}, InvalidArgumentError, "checkpoint must be False .* got True and 'auto'; leave them out"),
        ({"compress": True}, InvalidArgumentError, "compress 'auto' or False .* got False and True"),
    ],
)
def test_arguments_that_do_not_fit(options, error, message):
    options = {"method": "exponential", "linear": torch.zeros(2, 2), "order": 0.5, "n_steps": 4, **options}
    with pytest.raises(error, match=message):
        fdeint(nothing, torch.ones(2), [0.0, 1.0], **grouped(**options))
