"""Orders as parameters: where learning starts and ends, and the gradient at order 1."""

import pytest
import torch
from torch import nn

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.memory import reference
from fracdnn.nn import FractionalStack
from fracdnn.nn.learned import orders_from

STARTS = (0.1, 0.5, 0.9, 0.999, 1.0)


def frozen_layers():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).requires_grad_(False) for _ in range(12)]


def train(stack, x, target, optimizer, *, trajectory):
    for _ in range(300):
        optimizer.zero_grad()
        squares = (stack(x, trajectory=trajectory) - target).square()
        (squares.mean((1, 2)).sum() if trajectory else squares.mean()).backward()
        optimizer.step()
        order = stack.order
        assert bool(((order > 0) & (order <= 1)).all())


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("learn_order", [True, "layer"])
def test_an_order_is_learned_from_any_start(learn_order, start, kind):
    """Frozen layers at order 0.6; the order of each layer from the states of all of them."""
    layers, trajectory = frozen_layers(), learn_order == "layer"
    x = torch.randn(64, 4)
    target = FractionalStack(layers, order=0.6, step_size=0.3)(x, trajectory=trajectory)
    stack = FractionalStack(layers, order=start, step_size=0.3, learn_order=learn_order)
    optimizer = kind(stack.memory.parameters(), lr=1.0 if kind is torch.optim.SGD else 0.05)
    train(stack, x, target, optimizer, trajectory=trajectory)
    assert bool(((stack.order - 0.6).abs() <= 0.01).all())


def test_orders_are_reflected_at_both_ends_with_slope_one():
    raw = torch.tensor([-0.3, 0.0, 0.2, -1.2, 2.25, -2.25], dtype=torch.float64, requires_grad=True)
    orders = orders_from(raw)
    torch.testing.assert_close(orders, torch.tensor([0.7, 1.0, 0.8, 0.2, 0.75, 0.75], dtype=torch.float64))
    (slopes,) = torch.autograd.grad(orders.sum(), raw)
    assert slopes.tolist() == [1.0, 1.0, -1.0, -1.0, -1.0, 1.0]


@pytest.mark.parametrize("n_layers", [5, 20])
@pytest.mark.parametrize("compress", [False, True])
def test_the_gradient_of_an_order_at_one(n_layers, compress):
    """Against autograd through the definition, one-sided differences, and the slope of a Taylor remainder."""
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double() for _ in range(n_layers)]
    x = torch.randn(6, 3, dtype=torch.float64)
    options = {"step_size": 0.3, "compress": compress, "dtype": torch.float64}
    stack = FractionalStack(layers, order=1.0, learn_order=True, **options)
    stack(x).square().sum().backward()
    gradient = stack.memory.learned_order.raw.grad.item()

    def loss(order):
        factors = l1_step_factor(order, 0.3).expand(n_layers)
        states = reference.propagate(memory_matrix(order, n_layers), factors, lambda j, y: layers[j](y), x)
        return states[-1].square().sum()

    one = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (by_definition,) = torch.autograd.grad(loss(one), one)
    assert gradient == pytest.approx(by_definition.item(), rel=1e-9)
    h = 1e-5
    values = [loss(1.0 - k * h).item() for k in range(3)]
    assert gradient == pytest.approx((3 * values[0] - 4 * values[1] + values[2]) / (2 * h), rel=1e-7)
    remainders = [abs(loss(1.0 - k * h).item() - values[0] + k * h * gradient) for k in (256, 512, 1024)]
    slopes = torch.tensor(remainders).log2().diff()
    assert bool(((slopes - 2).abs() < 0.15).all())
