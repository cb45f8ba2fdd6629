"""The paper's network and what it is trained for, written out in float64 for autograd; nothing of the library.

Samples are rows: Y_0 = x or its input projection, f_j(y) = σ(K_j y + b_j), outputs W Y_N.
"""

import math

import torch

from tests.campaign import definition

# The places (row, column) of a stencil's numbers around its centre.
PLACES = {
    "nine-point": [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)],
    "five-point": [(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)],
}
ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": lambda a: torch.where(a > 0, a, 0.0),
    "gelu": lambda a: 0.5 * a * (1.0 + torch.erf(a / math.sqrt(2.0))),
    "silu": lambda a: a / (1.0 + torch.exp(-a)),
    "sigmoid": lambda a: 1.0 / (1.0 + torch.exp(-a)),
    "identity": lambda a: a,
}


def stencil_matrix(psi, stencil, shape):
    """K(ψ): entry (p, q) is the number of ψ that stands at q where its centre is at p."""
    rows, columns = shape
    matrix = [[psi.new_zeros(()) for _ in range(rows * columns)] for _ in range(rows * columns)]
    for p in range(rows * columns):
        for number, (down, right) in zip(psi, PLACES[stencil], strict=True):
            r, c = p // columns + down, p % columns + right
            if 0 <= r < rows and 0 <= c < columns:
                matrix[p][r * columns + c] = number
    return torch.stack([torch.stack(row) for row in matrix])


def network_states(parameters, case, x, arguments=None):
    """Y_0, …, Y_N; `arguments` collects those of the activations."""
    activation = ACTIVATIONS[case.activation]

    def activated(a):
        if arguments is not None:
            arguments.append(a.detach())
        return activation(a)

    def layer(j, y):
        K = parameters["K"][j] if case.grid is None else stencil_matrix(parameters["psi"][j], case.stencil, case.grid)
        return activated(y @ K.T + (parameters["b"][j] if "b" in parameters else 0.0))

    y = x
    if case.width is not None:
        y = x @ parameters["input_weight"].T + parameters["input_bias"]
        y = activated(y) if case.activate_input else y
    if not case.residual:
        states = [y]
        for j in range(case.n_layers):
            states.append(layer(j, states[-1]))
        return states
    order, steps = (torch.tensor(value, dtype=torch.float64) for value in (case.order, case.steps))
    if case.learn_order:
        order = 1.0 - parameters["memory.learned_order.raw"].abs()
    if case.learn_steps:
        steps = parameters["memory.learned_steps.raw"].exp()
    return definition.states(layer, y, order, definition.times_of(steps.expand(case.n_layers)))


def data_loss(outputs, target, weight, loss, smoothing):
    if loss == "cross_entropy":
        n_classes = outputs.shape[1]
        shares = torch.eye(n_classes, dtype=torch.float64)[target] * (1.0 - smoothing) + smoothing / n_classes
        losses = (shares * (outputs.logsumexp(1, keepdim=True) - outputs)).sum(1)
    else:
        losses = 0.5 * (outputs - target).square().mean(1)
    weight = torch.ones_like(losses) if weight is None else weight
    return (weight * losses).sum() / weight.sum()


def laplacian(n):
    """−Δ on n points with reflecting ends."""
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n - 1):
        matrix[i, i] += 1.0
        matrix[i + 1, i + 1] += 1.0
        matrix[i, i + 1] = matrix[i + 1, i] = -1.0
    return matrix


def power(matrix, exponent):
    values, vectors = torch.linalg.eigh(matrix)
    values = torch.where(values > 1e-12, values, 0.0)  # the constant's, up to rounding
    return vectors @ torch.diag(values**exponent) @ vectors.T


def regularization(parameters, class_map, operator, bias, decay, kind, exponent):
    """ξ_W/2 ‖W‖² + ξ_K/(2N) ‖(−Δ)^s K‖² + ξ_b/(2N) ‖b‖² + ξ/2 ‖K, input projection‖²."""
    K = parameters["K"] if "K" in parameters else parameters["psi"]
    n_layers, width = len(K), K.shape[-1]
    if kind == "time":
        image = power(laplacian(n_layers), exponent) @ K.reshape(n_layers, -1)
    else:
        one = torch.eye(width, dtype=torch.float64)
        plane = torch.kron(laplacian(width), one) + torch.kron(one, laplacian(width))
        image = K.reshape(n_layers, -1) @ power(plane, exponent)
    total = class_map / 2 * parameters["W"].square().sum() + operator / (2 * n_layers) * image.square().sum()
    if "b" in parameters:
        total = total + bias / (2 * n_layers) * parameters["b"].square().sum()
    for name in {"K", "psi", "input_weight"} & parameters.keys():
        total = total + decay / 2 * parameters[name].square().sum()
    return total
