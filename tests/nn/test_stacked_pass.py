"""Stacked networks against each of them by itself: outputs and all gradients."""

import pytest
import torch

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.nn.architecture import Weights
from fracdnn.nn.operators import ACTIVATIONS
from fracdnn.nn.stacked_pass import StackedPass
from tests.nn.problems import network, outputs_by_definition

ORDERS = [0.3, 0.8, 1.0]


def pieces(activation="silu", *, activate_input=True, orders=ORDERS, n_layers=4, dtype=torch.float64, width=5):
    """Networks, their stacked weights, samples [M, n, 3] and a cotangent of the outputs."""
    options = {"width": width, "activation": activation, "activate_input": activate_input, "n_layers": n_layers}
    nets = [network(3, 2, order=order, seed=seed, dtype=dtype, **options) for seed, order in enumerate(orders)]
    weights = Weights(*[torch.stack(each).detach() for each in zip(*(net.weights() for net in nets), strict=True)])
    generator = torch.Generator().manual_seed(7)
    x, cotangent = (torch.randn(len(nets), 6, size, dtype=torch.float64, generator=generator) for size in (3, 2))
    return nets, weights, x.to(dtype), cotangent.to(dtype)


def check(found, weights, nets, x, cotangent, tolerance):
    gradients, _ = weights
    for member, net in enumerate(nets):
        expected = outputs_by_definition(net, x[member])
        torch.testing.assert_close(found[member], expected.detach(), rtol=tolerance, atol=tolerance)
        wanted = torch.autograd.grad(expected, list(net.weights()), cotangent[member])
        for mine, theirs in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(mine[member], theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("order", "dtype", "tolerance"), [(0.4, torch.float64, 1e-11), (1.0, torch.float32, 2e-4)])
def test_one_order_for_all(activation, order, dtype, tolerance):
    nets, weights, x, cotangent = pieces(activation, orders=[order] * 3, dtype=dtype)
    matrix, factor = memory_matrix(order, 4), l1_step_factor(order, 0.2)
    one = StackedPass((activation, activation), weights, matrix, torch.as_tensor(factor).expand(4))
    check(one.outputs(x), one.back(cotangent), nets, x, cotangent, tolerance)
    assert one.back(cotangent)[1] == ()


@pytest.mark.parametrize("n_layers", [1, 2, 7])
@pytest.mark.parametrize("activation", ["tanh", "gelu", "identity"])
def test_an_order_for_each(activation, n_layers):
    """Also the gradients of the memory's weights and factors, by autograd through these."""
    nets, weights, x, cotangent = pieces(activation, activate_input=False, n_layers=n_layers)
    matrix = torch.stack([memory_matrix(order, n_layers) for order in ORDERS], -1).requires_grad_()
    factors = torch.tensor([[float(l1_step_factor(order, 0.2)) for order in ORDERS]] * n_layers, dtype=torch.float64)
    stacked = StackedPass(("identity", activation), weights, matrix, factors)
    outputs = stacked.outputs(x)
    gradients = stacked.back(cotangent)
    check(outputs, gradients, nets, x, cotangent, 1e-11)

    def value(matrix, factors):
        return (StackedPass(("identity", activation), weights, matrix, factors).outputs(x) * cotangent).sum()

    for given, mine in zip((matrix, factors), gradients[1], strict=True):
        assert mine.dtype == torch.float64
        for place in ((0, 0, 0), (n_layers - 1, 0, 1), (n_layers - 1, n_layers - 1, 2)):
            place = place if given is matrix else place[1:]
            values = []
            for sign in (1, -1):
                moved = {True: matrix.detach().clone(), False: factors.clone()}
                moved[given is matrix][place] += sign * 1e-5
                values.append(float(value(moved[True], moved[False])))
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(float(mine[place]), rel=1e-6, abs=1e-8)


def test_gradients_lie_in_memory_as_their_weights_do():
    """The fused Adam pairs them by address."""
    _, weights, x, cotangent = pieces(orders=[0.5] * 3)
    K = weights.operators.transpose(0, 1).contiguous().transpose(0, 1)
    input_weight = weights.input_weight.mT.contiguous().mT
    weights = weights._replace(operators=K, input_weight=input_weight)
    stacked = StackedPass(("silu", "silu"), weights, memory_matrix(0.5, 4), torch.ones(4, dtype=torch.float64))
    stacked.outputs(x)
    for gradient, weight in zip(stacked.back(cotangent)[0], weights, strict=True):
        assert gradient.stride() == weight.stride()
