import pytest
import torch

from fracdnn.caputo import l1_weights, memory_matrix, memory_weights
from fracdnn.memory.reference import propagate


@pytest.mark.parametrize("order", [0.1, 0.5, 0.9, 1.0])
def test_propagation_is_the_papers_algorithm_one(order):
    """The averaged form against the sums of differences as printed in Alg. 1."""
    n_layers, c = 9, 0.3
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(n_layers, 3, 3, dtype=torch.float64, generator=generator)
    y0 = torch.randn(5, 3, dtype=torch.float64, generator=generator)

    def step(j, y):
        return torch.tanh(y @ matrices[j])

    a = l1_weights(order, n_layers)
    states = [y0]
    for j in range(1, n_layers + 1):
        z = sum((a[j - k] * (states[k] - states[k - 1]) for k in range(1, j)), torch.zeros_like(y0))
        states.append(states[-1] - z + c * step(j - 1, states[-1]))
    factors = torch.full((n_layers,), c, dtype=torch.float64)
    ours = propagate(memory_matrix(order, n_layers), factors, step, y0)
    torch.testing.assert_close(torch.stack(ours), torch.stack(states), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_field_is_the_identity(dtype):
    y0 = torch.randn(4, 2, dtype=dtype, generator=torch.Generator().manual_seed(1))
    states = propagate(memory_matrix(0.3, 12), torch.ones(12), lambda j, y: torch.zeros_like(y), y0)
    assert states[-1].dtype == dtype
    torch.testing.assert_close(states[-1], y0)


@pytest.mark.parametrize("order", [0.2, 1.0])
def test_the_matrix_holds_the_weights_of_each_layer(order):
    matrix = memory_matrix(order, 6)
    for n in range(1, 7):
        torch.testing.assert_close(matrix[n - 1, :n], memory_weights(order, n))
        assert (matrix[n - 1, n:] == 0).all()


def test_an_order_for_each_layer():
    orders = torch.tensor([0.2, 0.5, 1.0], dtype=torch.float64)
    matrix = memory_matrix(orders, 3)
    torch.testing.assert_close(matrix[1], memory_matrix(0.5, 3)[1])
    torch.testing.assert_close(matrix[2], torch.tensor([0, 0, 1], dtype=torch.float64))
