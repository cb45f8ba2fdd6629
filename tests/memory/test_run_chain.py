"""`run_chain` where steps are computed again one by one, states in 16 bits, and methods whose sums are over slopes."""

import math

import pytest
import torch
from torch import nn

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.memory import general_weights, run_chain
from fracdnn.memory.plan import slope_weights

N = 100


def matrices(order, learned=False):
    order = torch.tensor(order, dtype=torch.float64, requires_grad=learned)
    return order, memory_matrix(order, N), l1_step_factor(order, 1.0 / N).expand(N).contiguous()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24)).double()


def gradients(weights, func, inputs, **options):
    """The result and its gradients, for a state of 480 kB in all its N + 1 copies times ten."""
    x = torch.randn(150, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = run_chain(weights, lambda j, y: func(y), x, **options)
    loss = (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)).sum()
    retained = torch.autograd.grad(loss, [x, *func.parameters(), *inputs], retain_graph=True)
    again = torch.autograd.grad(loss, [x, *func.parameters(), *inputs])
    for one, two in zip(retained, again, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    return [y.detach(), *again]


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("trajectory", [False, True])
def test_steps_computed_again_give_the_same(learned, trajectory):
    func, found = network(), []
    for checkpoint in (True, False):
        order, matrix, factors = matrices(0.6, learned)
        inputs = [order] if learned else []
        weights = general_weights(matrix, factors)
        found.append(gradients(weights, func, inputs, trajectory=trajectory, checkpoint=checkpoint))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_states_in_16_bits_are_as_good_as_16_bits():
    """Sums and the current block are not rounded, so that the error does not add up."""
    func, found = network(), []
    for store in (torch.float16, torch.bfloat16, None):
        _, matrix, factors = matrices(0.6)
        found.append(gradients(general_weights(matrix, factors), func, [], checkpoint=True, store=store))
    *coarse, exact = found
    for results, tolerance in zip(coarse, (2e-3, 2e-2), strict=True):
        for mine, theirs in zip(results, exact, strict=True):
            assert 0 < float((mine - theirs).norm() / theirs.norm()) < tolerance


def test_dropout_draws_the_same_numbers_again():
    func = nn.Sequential(network(), nn.Dropout(0.3))
    _, matrix, factors = matrices(0.6)
    found = []
    for checkpoint in (True, False):
        torch.manual_seed(5)
        found.append(gradients(general_weights(matrix, factors), func, [], checkpoint=checkpoint))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def rectangle_rule(order):
    lag = torch.arange(N + 1, dtype=torch.float64)
    by_lag = ((lag + 1) ** order - lag**order) / (math.gamma(1 + order) * N**order)
    row = torch.arange(N)
    return by_lag[(row.unsqueeze(1) - row).clamp(min=0)].tril()


@pytest.mark.parametrize("order", [0.1, 0.5, 0.9])
def test_a_sum_of_slopes_is_a_chain_of_states(order):
    slopes, y0 = rectangle_rule(order), torch.linspace(-1, 1, 5, dtype=torch.float64)

    def func(y):
        return torch.sin(3 * y) - torch.tanh(2 * y)

    states, known = [y0], []
    for row in slopes:
        known.append(func(states[-1]))
        states.append(y0 + (row[: len(known), None] * torch.stack(known)).sum(0))
    found = run_chain(slope_weights(slopes), lambda j, y: func(y), y0, trajectory=True)
    torch.testing.assert_close(found, torch.stack(states), rtol=1e-12, atol=1e-13)


def test_the_gradient_of_slope_weights():
    y0, inputs = torch.linspace(-1, 1, 3, dtype=torch.float64), []
    torch.manual_seed(0)
    slopes = (torch.rand(4, 4, dtype=torch.float64).tril() + torch.eye(4)).requires_grad_()

    def run(slopes):
        return run_chain(slope_weights(slopes.tril()), lambda j, y: torch.sin(y), y0, *inputs)

    assert torch.autograd.gradcheck(run, [slopes])
