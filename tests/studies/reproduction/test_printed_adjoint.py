import pytest
import torch
from torch.nn.functional import cross_entropy

from fracdnn.caputo import l1_step_factor, l1_weights
from fracdnn.exceptions import FracdnnError
from reproduction.printed_adjoint import PrintedNetwork, network_with
from tests.nn.test_network import batch, flat_gradient, random_biases


def network(adjoint="exact", **options):
    options = {"n_layers": 8, "order": 0.5, "generator": torch.Generator().manual_seed(0), **options}
    return PrintedNetwork(2, 3, adjoint=adjoint, **options).double()


CLASSICAL = [(1.0, "classical"), (1.0, "classical-transposed")]
PRINTED = [(order, name) for order in (0.1, 0.5, 0.9, 1.0) for name in ("continuous", "continuous-transposed")]


@pytest.mark.parametrize("n_layers", [1, 2, 7])
@pytest.mark.parametrize("bias", ["scalar", True])
@pytest.mark.parametrize(("order", "adjoint"), PRINTED + CLASSICAL)
def test_the_printed_adjoint_is_what_the_paper_prints(order, adjoint, bias, n_layers):
    """Alg. 2 and the design equations written out, samples as columns like the paper; its sum is not in the classical
    adjoint.
    """
    net = random_biases(network(order=order, n_layers=n_layers, bias=bias, adjoint=adjoint))
    x, target = batch(), torch.arange(6) % 3
    loss = cross_entropy(net(x), target)
    gradients = dict(
        zip((n for n, _ in net.named_parameters()), torch.autograd.grad(loss, list(net.parameters())), strict=True)
    )
    K, b = net.K.detach(), net.b.detach().view(n_layers, -1, 1)
    Y = [state.T for state in net(x, trajectory=True).detach()]
    W = net.W.detach()
    S, C = torch.softmax(W @ Y[-1], dim=0), torch.nn.functional.one_hot(target, 3).T.double()
    a, c = l1_weights(order, n_layers), float(l1_step_factor(order, 0.2))
    a = torch.zeros_like(a) if "classical" in adjoint else a
    P = {n_layers: -W.T @ (S - C) / 6}
    for j in range(n_layers - 1, -1, -1):
        history = sum((a[k - j - 1] * (P[k + 1] - P[k]) for k in range(j + 1, n_layers)), torch.zeros_like(P[n_layers]))
        slope = 1 - torch.tanh(K[j] @ Y[j + 1] + b[j]) ** 2
        P[j] = P[j + 1] + history - c * (-K[j].T @ (P[j + 1] * slope))
    for j in range(n_layers):
        slope = 1 - torch.tanh(K[j] @ Y[j] + b[j]) ** 2
        printed = -Y[j] @ (P[j + 1] * slope).T
        torch.testing.assert_close(gradients["K"][j], printed if "transposed" in adjoint else printed.T)
        torch.testing.assert_close(gradients["b"][j], -(slope * P[j + 1]).sum((0, 1) if bias == "scalar" else 1))
    torch.testing.assert_close(gradients["W"], (S - C) @ Y[-1].T / 6)


def test_the_printed_adjoint_is_not_the_gradient():
    x, target = batch(30), torch.arange(30) % 3
    cosines = {}
    for order in (1.0, 0.1):
        exact, printed = (
            flat_gradient(random_biases(network(order=order, n_layers=20, adjoint=kind)), x, target)
            for kind in ("exact", "continuous")
        )
        cosines[order] = float(torch.cosine_similarity(exact, printed, dim=0))
    assert cosines[1.0] > 0.9
    assert cosines[0.1] < 0.6


def test_the_printed_adjoint_overflows_in_silence():
    """As a line search needs it."""
    net = network(n_layers=3, adjoint="continuous")
    with torch.no_grad():
        net.W.fill_(1e308)
    gradients = torch.autograd.grad(1e308 * net(batch()).sum(), [net.K])
    assert not torch.isfinite(gradients[0]).all()


def test_the_printed_adjoint_has_no_second_derivatives():
    net, x = network(adjoint="continuous"), batch().requires_grad_()
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_an_adjoint_may_be_asked_for_later():
    """And is not that of the pass before."""
    net, x, target = random_biases(network(order=1.0)), batch(), torch.arange(6) % 3
    found = {}
    for adjoint in ("exact", "continuous", "continuous-transposed", "classical", "classical-transposed"):
        net.adjoint = adjoint
        found[adjoint] = torch.autograd.grad(cross_entropy(net(x), target), [net.K])[0]
    for name in ("continuous", "classical"):
        assert torch.equal(found[f"{name}-transposed"], found[name].mT)
        assert not torch.equal(found[name], found["exact"])
    assert not torch.equal(found["continuous"], found["classical"])


BAD = [
    (
        lambda: network(adjoint="discrete"),
        r"adjoint must be one of \('exact', 'continuous', 'continuous-transposed', 'classical', "
        r"'classical-transposed'\), got 'discrete'",
    ),
    (
        lambda: network(adjoint="classical-transposed", order=0.5),
        "adjoint='classical-transposed' must go with order=1, got 0.5; below it the paper prints "
        "adjoint='continuous-transposed'",
    ),
    (lambda: setattr(network(order=0.5), "adjoint", "classical"), "adjoint='classical' must go with order=1, got 0.5"),
    (lambda: network(adjoint="continuous", activation="relu"), "adjoint='continuous' must go with operator='dense'"),
    (lambda: network(adjoint="continuous", learn_order=True), "adjoint='continuous' must go with"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_the_paper_does_not_print_is_refused(call, message):
    with pytest.raises(FracdnnError, match=message):
        call()


def test_states_and_outputs_are_those_of_the_network():
    net, x = random_biases(network("continuous", width=5)), batch()
    plain = network_with("exact", 2, 3, n_layers=8, order=0.5, width=5).double()
    plain.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(x), plain(x), rtol=1e-12, atol=1e-12)
