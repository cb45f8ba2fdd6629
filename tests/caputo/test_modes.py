import pytest
import torch

from fracdnn.caputo.modes import ACCURACY, kernel_modes


@pytest.mark.parametrize("nodes", ACCURACY)
def test_modes_are_as_accurate_as_their_table_says(nodes):
    order = torch.tensor([[0.02], [0.3], [0.9], [1.0], [1.02], [1.7], [2.0]], dtype=torch.float64)
    times = torch.logspace(-10, 0, 2000, base=2, dtype=torch.float64)
    modes = kernel_modes(2.0**-10, 1.0, ACCURACY[nodes])
    weights = modes.weights(order.squeeze(1))
    found = weights[:, :-1] @ torch.exp(-modes.rates.unsqueeze(1) * times) + weights[:, -1:] * times
    exact = times ** (order - 1) / torch.exp(torch.lgamma(order))
    error = float((found / exact - 1).abs().max())
    # With 14 nodes the rounding of the sum is larger.
    assert 0.5 * ACCURACY[nodes] < error < (3 if nodes == 14 else 1) * ACCURACY[nodes]
