"""Networks of the paper trained by compiled loops: Alg. 3 with its mini-batches, or an optimizer on all samples.

They are made, and evaluated afterwards, by the library; the training between is what its `MiniBatchTraining` and
`FullBatchTraining` do, from two (a wide network) to fifty times (the printed gradient) faster.
"""

from dataclasses import dataclass

import numpy as np
import torch

from fracdnn.caputo import l1_weights
from fracdnn.caputo.weights import l1_differences
from fracdnn.nn import FractionalNetwork
from reproduction.compiled_network import EXACT, PRINTED, Batch, Network, compiled, n_right, space_for
from reproduction.compiled_search import IDENTITY, SCALED, STEEPEST, minimize

METHODS = {"bfgs": SCALED, "textbook-bfgs": IDENTITY, "steepest": STEEPEST}
STATUS = ("converged", "iteration limit", "line search failed", "not finite")
NORMALIZATIONS = {"none": 0, "feature": 1, "global": 2}


@dataclass(frozen=True)
class Fit:
    """What happened: of each iteration its loss and trials, and norms of each layer's gradient where asked for.

    `batch_accuracy` is the share of right answers on the last mini-batch, after its iterations.
    """

    losses: np.ndarray
    trials: np.ndarray
    norms: np.ndarray
    status: str
    batch_accuracy: float = float("nan")


def fit_batches(
    network: FractionalNetwork,
    X: torch.Tensor,
    y: torch.Tensor,
    batches: torch.Tensor,
    *,
    iterations: int,
    normalization: str,
    method: str = "bfgs",
    decay_class_map: float = 0.0,
    tolerance: float = 1e-6,
) -> Fit:
    """Alg. 3: an optimizer anew on each of the `batches` [m1, size], rows of indices of samples."""
    net, theta = _network(network), _parameters(network)
    losses, trials = np.full(len(batches) * iterations, np.nan), np.zeros(len(batches) * iterations, np.int64)
    share, n_done, status = _train_batches(
        net,
        theta,
        np.ascontiguousarray(X.numpy().T),
        y.numpy(),
        batches.numpy(),
        NORMALIZATIONS[normalization],
        METHODS[method],
        iterations,
        tolerance,
        decay_class_map,
        losses,
        trials,
    )
    _load(network, theta)
    done = np.isfinite(losses)
    assert done.sum() == n_done
    return Fit(losses[done], trials[done], np.empty((0, 0)), STATUS[status], share)


def fit_all(
    network: FractionalNetwork,
    X: torch.Tensor,
    y: torch.Tensor,
    *,
    max_iter: int,
    method: str = "bfgs",
    decay_class_map: float = 0.0,
    decay: float = 0.0,
    tolerance: float = 1e-6,
    with_norms: bool = False,
) -> Fit:
    """One optimizer on all samples; labels of classes, or values [n, n_outputs]."""
    net, theta = _network(network), _parameters(network)
    has_classes = not y.is_floating_point()
    labels = y.numpy() if has_classes else np.empty(0, np.int64)
    values = np.empty((0, 0)) if has_classes else np.ascontiguousarray(y.numpy().T)
    batch = Batch(np.ascontiguousarray(X.numpy().T), labels, values, decay_class_map, decay)
    losses, trials = np.zeros(max_iter), np.zeros(max_iter, np.int64)
    norms = np.zeros((max_iter if with_norms else 0, net.n_layers))
    space = space_for(net, len(X))
    n_done, status = minimize(net, theta, batch, space, METHODS[method], max_iter, tolerance, losses, trials, norms)
    _load(network, theta)
    return Fit(losses[:n_done], trials[:n_done], norms[:n_done], STATUS[status])


@compiled
def _train_batches(net, theta, X, y, batches, normalization, method, iterations, tolerance, decay, losses, trials):
    space = space_for(net, batches.shape[1])
    x = np.empty((net.width, batches.shape[1]))
    labels, nothing, no_norms = np.empty(batches.shape[1], np.int64), np.empty((0, 0)), np.empty((0, 0))
    share, total, status = 0.0, 0, 0
    for number in range(len(batches)):
        for s in range(batches.shape[1]):
            labels[s] = y[batches[number, s]]
            for i in range(net.width):
                x[i, s] = X[i, batches[number, s]]
        if normalization == 1:
            for i in range(net.width):
                _normalize(x[i : i + 1])
        elif normalization == 2:
            _normalize(x)
        batch = Batch(x, labels, nothing, decay, 0.0)
        at = number * iterations
        n_done, status = minimize(
            net,
            theta,
            batch,
            space,
            method,
            iterations,
            tolerance,
            losses[at : at + iterations],
            trials[at : at + iterations],
            no_norms,
        )
        total += n_done
        if number == len(batches) - 1:
            share = n_right(net, theta, batch, space) / batches.shape[1]
    return share, total, status


@compiled
def _normalize(rows):
    """In place: zero mean and unit deviation over all numbers."""
    mean = rows.sum() / rows.size
    total = 0.0
    for i in range(rows.shape[0]):
        for s in range(rows.shape[1]):
            rows[i, s] -= mean
            total += rows[i, s] ** 2
    rows /= np.sqrt(total / (rows.size - 1))


def _network(network: FractionalNetwork) -> Network:
    """What the compiled loops need to know; for networks as wide as their features, of one order and step."""
    a, memory = network.architecture, network.memory
    assert a.activation == "tanh"
    assert a.operator == "dense"
    assert a.bias
    assert not a.has_input_projection
    order, step = float(memory.order), float(memory.step_size)
    factor = float(step**order * torch.exp(torch.lgamma(torch.tensor(2.0 - order, dtype=torch.float64))))
    adjoint = getattr(network, "adjoint", "exact")
    return Network(
        n_layers=a.n_layers,
        width=a.width,
        n_outputs=a.n_outputs,
        n_biases=a.width if a.bias is True else 1,
        a=l1_weights(order, a.n_layers).numpy(),
        h=l1_differences(order, a.n_layers).numpy(),
        factor=factor if a.has_skip else 1.0,
        has_skip=a.has_skip,
        has_memory=a.has_skip and order < 1.0,
        adjoint=EXACT if adjoint == "exact" else PRINTED,
        has_sum=adjoint.startswith("continuous"),
        transposed=adjoint.endswith("transposed"),
    )


def _parameters(network: FractionalNetwork) -> np.ndarray:
    assert network.b is not None
    return torch.cat([p.detach().reshape(-1) for p in (network.K, network.b, network.W)]).numpy().copy()


@torch.no_grad()
def _load(network: FractionalNetwork, theta: np.ndarray) -> None:
    assert network.b is not None
    parts = torch.from_numpy(theta).split([network.K.numel(), network.b.numel(), network.W.numel()])
    for parameter, part in zip((network.K, network.b, network.W), parts, strict=True):
        parameter.copy_(part.view_as(parameter))
