import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Regularization, Standardization, backward, normalize_batch
from fracdnn.training.objective import neumann_laplacian


def network(**options):
    options = {"n_layers": 4, "order": 0.5, "generator": torch.Generator().manual_seed(0), **options}
    net = FractionalNetwork(3, 2, **options).double()
    with torch.no_grad():
        for i, b in enumerate(net.b):
            b.fill_(0.1 * i)
    return net


def batch(n=5):
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_papers_regularisation_term_by_term():
    net = network(bias="scalar")
    W, K = net.W, net.K
    second = [K[1] - K[0], K[2] - 2 * K[1] + K[0], K[3] - 2 * K[2] + K[1], K[2] - K[3]]
    expected = 0.5 * 0.3 * W.pow(2).sum()
    expected = expected + 0.5 * 2.0 / 4 * sum(d.pow(2).sum() for d in second)
    expected = expected + 0.5 * 0.7 / 4 * (0.1**2 + 0.2**2 + 0.3**2)
    torch.testing.assert_close(Regularization(decay_output=0.3, smooth=2.0, decay_bias=0.7)(net), expected)


def test_the_laplacian_over_rows_and_columns():
    net = network()
    difference = neumann_laplacian(3)
    expected = sum((difference @ K + K @ difference).pow(2).sum() for K in net.K)
    found = Regularization(smooth=1.0, laplacian="matrix")(net)
    torch.testing.assert_close(found, 0.5 / 4 * expected)


def test_the_fractional_laplacian_is_a_power_of_the_laplacian():
    whole = neumann_laplacian(6)
    expected = 2 * torch.eye(6, dtype=torch.float64)
    expected -= torch.diag(torch.ones(5, dtype=torch.float64), 1) + torch.diag(torch.ones(5, dtype=torch.float64), -1)
    expected[0, 0] = expected[-1, -1] = 1.0
    torch.testing.assert_close(whole, expected)
    half = neumann_laplacian(6, 0.5)
    torch.testing.assert_close(half @ half, whole)
    net = network()
    K = net.K.flatten(1)
    found = Regularization(smooth=1.0, exponent=0.5)(net)
    torch.testing.assert_close(found, 0.5 / 4 * (K * (neumann_laplacian(4) @ K)).sum())
    half_matrix = Regularization(smooth=1.0, laplacian="matrix", exponent=0.5)(net)
    energy = sum((K * (neumann_laplacian(3) @ K + K @ neumann_laplacian(3))).sum() for K in net.K)
    torch.testing.assert_close(half_matrix, 0.5 / 4 * energy)


def test_decay_covers_operators_and_input_projection():
    net = network(width=6)
    expected = net.input_weight.pow(2).sum() + net.K.pow(2).sum()
    torch.testing.assert_close(Regularization(decay=0.2)(net), 0.1 * expected)


def test_a_stencil_takes_the_place_of_the_operator():
    net = FractionalNetwork(6, 2, n_layers=4, operator="nine-point", grid_shape=(2, 3)).double()
    expected = 0.5 / 4 * (neumann_laplacian(4) @ net.psi).pow(2).sum()
    torch.testing.assert_close(Regularization(smooth=1.0)(net), expected)


def test_a_term_without_a_factor_is_left_alone():
    net = network()
    torch.nn.init.constant_(net.K, torch.inf)
    for regularization in (Regularization(), Regularization(decay_output=0.3), Regularization(decay_bias=0.3)):
        assert torch.isfinite(regularization(net))


def test_nothing_is_added_by_default():
    assert float(Regularization()(network()).detach()) == 0.0


def test_cross_entropy_is_the_papers():
    """−1/n tr(C_obsᵀ log S(W, Y_N)) with the softmax written out."""
    net, x, target = network(), batch(), torch.tensor([0, 1, 1, 0, 1])
    logits = net(x)
    probabilities = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    expected = -sum(torch.log(probabilities[i, target[i]]) for i in range(5)) / 5
    torch.testing.assert_close(Objective()(net, x, target), expected)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_a_weight_is_a_repetition(loss):
    net, x = network(), batch()
    target = torch.tensor([0, 1, 1, 0, 1]) if loss == "cross_entropy" else batch()[:, :2]
    counts = torch.tensor([1, 3, 0, 2, 1])
    objective = Objective(loss, Regularization(decay_output=0.1))
    repeated = objective(net, x.repeat_interleave(counts, 0), target.repeat_interleave(counts, 0))
    torch.testing.assert_close(objective(net, x, target, counts.double()), repeated)


def test_squared_error():
    net, x, target = network(), batch(), torch.ones(5, 2, dtype=torch.float64)
    torch.testing.assert_close(Objective("squared_error")(net, x, target), 0.5 * (net(x) - 1).pow(2).mean())


def test_standardisation_by_training_statistics():
    x = batch(50) * 3 + 7
    scaled = Standardization.of(x)(x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(Standardization.of(x).undo(scaled), x)
    counts = torch.tensor([2, 0, 1] + [1] * 47)
    weighted, repeated = Standardization.of(x, counts.double()), Standardization.of(x.repeat_interleave(counts, 0))
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.deviation, repeated.deviation)


def test_a_constant_feature_is_only_centred():
    x = batch(6)
    x[:, 1] = 0.1
    for scaled in (Standardization.of(x)(x), normalize_batch(x)):
        assert torch.isfinite(scaled).all()
        torch.testing.assert_close(scaled[:, 1], torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)


def test_batch_normalisation_by_feature_and_over_all():
    x = batch(20) * torch.tensor([1.0, 10.0, 100.0])
    by_feature, over_all = normalize_batch(x), normalize_batch(x, per_feature=False)
    torch.testing.assert_close(by_feature.std(0), torch.ones(3, dtype=torch.float64))
    assert float(over_all.std()) == pytest.approx(1.0)
    assert float(over_all[:, 0].std()) < 0.1
    assert torch.isfinite(normalize_batch(batch(1))).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Objective("hinge"), "loss must be one of 'cross_entropy', 'squared_error', got 'hinge'"),
        (lambda: Objective(label_smoothing=1), r"label_smoothing must lie in \[0, 1\), got 1; 0 takes the labels"),
        (lambda: Objective(label_smoothing=-0.1), r"label_smoothing must lie in \[0, 1\), got -0.1"),
        (lambda: Regularization(laplacian="space"), "laplacian must be one of 'time', 'matrix', got 'space'"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make()


@pytest.mark.parametrize(("n_layers", "stencil"), [(4, "nine-point"), (9, "nine-point"), (5, "five-point")])
def test_a_stencil_has_no_rows_and_columns(n_layers, stencil):
    """Also where there are as many layers as points, and a product of matrices would be possible."""
    net = FractionalNetwork(6, 2, n_layers=n_layers, operator=stencil, grid_shape=(2, 3)).double()
    objective = Objective(regularization=Regularization(smooth=1.0, laplacian="matrix"))
    x, target = torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)
    message = "laplacian must be 'time' for stencils, got 'matrix'; a stencil has no rows and columns"
    with pytest.raises(InvalidArgumentError, match=message):
        objective.regularization(net)
    with pytest.raises(InvalidArgumentError, match=message):
        backward(objective, net, x, target)
    assert Regularization(decay_output=1.0, laplacian="matrix")(net) > 0  # where K is not smoothed at all


def test_targets_of_another_shape_are_not_broadcast():
    net, x = FractionalNetwork(3, 1, n_layers=2).double(), batch(9)
    with pytest.raises(InvalidArgumentError, match=r"target must have the shape of the outputs, \(9, 1\), got \(9,\)"):
        Objective("squared_error")(net, x, torch.zeros(9, dtype=torch.float64))


@pytest.mark.parametrize("regularization", [Regularization(), Regularization(0.3, 2.0, 0.4, 0.5, exponent=0.7)])
def test_gradients_are_those_of_the_objective_and_added_to_those_that_are_there(regularization):
    net, objective = network(), Objective(regularization=regularization)
    given = batch(), torch.tensor([0, 1, 1, 0, 1])
    expected = torch.autograd.grad(objective(net, *given), list(net.parameters()))
    for times in (1, 2):
        loss, outputs = backward(objective, net, *given)
        assert loss == float(objective(net, *given).detach())
        assert outputs.shape == (5, 2)
        for parameter, gradient in zip(net.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, times * gradient)


def test_labels_without_an_output_are_refused():
    with pytest.raises(InvalidArgumentError, match="target must hold classes from 0 to 1 for 2 outputs, got 2; number"):
        Objective().check_labels(2, torch.tensor([0, 2, 1]))
