"""The paper's network with its loss and gradient, written out and compiled by Numba: for trainings by the thousand.

It is the network of `FractionalNetwork` as wide as its features, in float64, without what serves others; the tests hold
it to that. Samples are columns here, [width, n], as in the paper.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

# Sums may be taken in another order, and a product and a sum be one instruction; what is not finite stays so.
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})

EXACT, PRINTED = 0, 1
SQUARE = 0.5  # half the mean square, as `Objective` has it


class Network(NamedTuple):
    """Sizes and memory: `a` and `h` are the weights of `l1_weights` and `l1_differences`, `factor` is c.

    `n_biases` of a layer is 1 or the width. `adjoint` is EXACT or PRINTED, the latter with or without its sum and the
    transposition of ∇_K. `has_memory` is False at order 1, `has_skip` False for the plain network.
    """

    n_layers: int
    width: int
    n_outputs: int
    n_biases: int
    a: np.ndarray
    h: np.ndarray
    factor: float
    has_skip: bool
    has_memory: bool
    adjoint: int
    has_sum: bool
    transposed: bool


class Batch(NamedTuple):
    """Samples `x` [width, n]; `labels` [n] of classes, or, where there are none, `values` [n_outputs, n]."""

    x: np.ndarray
    labels: np.ndarray
    values: np.ndarray
    decay_class_map: float
    decay: float


class Space(NamedTuple):
    """Room for states, activations, adjoint states and outputs of a batch."""

    states: np.ndarray
    active: np.ndarray
    adjoint: np.ndarray
    outputs: np.ndarray


@compiled
def space_for(net, n):
    states = np.empty((net.n_layers + 1, net.width, n))
    return Space(
        states,
        np.empty((net.n_layers, net.width, n)),
        np.empty((net.n_layers + 1, net.width, n)),
        np.empty((net.n_outputs, n)),
    )


@compiled
def tanh(x):
    return 1.0 - 2.0 / (math.exp(2.0 * x) + 1.0)


@compiled
def layer(net, theta, j, state, result):
    """σ(K_j y + b_j)."""
    w = net.width
    K, b = j * w * w, net.n_layers * w * w + j * net.n_biases
    for i in range(w):
        bias = theta[b + (i if net.n_biases > 1 else 0)]
        for s in range(state.shape[1]):
            z = bias
            for k in range(w):
                z += theta[K + i * w + k] * state[k, s]
            result[i, s] = tanh(z)


@compiled
def propagate(net, theta, batch, space):
    """Y_0, …, Y_N and W Y_N."""
    n = batch.x.shape[1]
    states, active = space.states, space.active
    states[0] = batch.x
    for j in range(net.n_layers):
        layer(net, theta, j, states[j], active[j])
        for i in range(net.width):
            new = states[j + 1, i]
            for s in range(n):
                new[s] = net.factor * active[j, i, s]
            if net.has_memory:
                add(new, net.a[j], states[0, i])
                for k in range(1, j + 1):
                    add(new, net.h[j - k], states[k, i])
            elif net.has_skip:
                add(new, 1.0, states[j, i])
    W = class_map_at(net)
    for i in range(net.n_outputs):
        for s in range(n):
            z = 0.0
            for k in range(net.width):
                z += theta[W + i * net.width + k] * states[net.n_layers, k, s]
            space.outputs[i, s] = z


@compiled
def add(row, weight, other):
    for s in range(len(row)):
        row[s] += weight * other[s]


@compiled
def class_map_at(net):
    """Where W begins among the parameters K, b, W."""
    return net.n_layers * (net.width * net.width + net.n_biases)


@compiled
def loss_of_outputs(net, batch, outputs):
    """Mean cross-entropy or half the mean square; outputs become their derivatives."""
    n, total = batch.x.shape[1], 0.0
    for s in range(n):
        if len(batch.labels):
            largest = -np.inf
            for i in range(net.n_outputs):
                largest = max(largest, outputs[i, s])
            norm, chosen = 0.0, batch.labels[s]
            total -= (outputs[chosen, s] - largest) / n
            for i in range(net.n_outputs):
                outputs[i, s] = math.exp(outputs[i, s] - largest)
                norm += outputs[i, s]
            total += math.log(norm) / n
            for i in range(net.n_outputs):
                outputs[i, s] /= norm * n
            outputs[chosen, s] -= 1.0 / n
        else:
            for i in range(net.n_outputs):
                difference = outputs[i, s] - batch.values[i, s]
                total += SQUARE * difference * difference / (n * net.n_outputs)
                outputs[i, s] = 2.0 * SQUARE * difference / (n * net.n_outputs)
    return total


@compiled
def loss(net, theta, batch, space):
    """The objective; states and derivatives of the outputs stay in `space`."""
    propagate(net, theta, batch, space)
    total, W = loss_of_outputs(net, batch, space.outputs), class_map_at(net)
    for p in range(net.n_layers * net.width * net.width):
        total += 0.5 * batch.decay * theta[p] * theta[p]
    for p in range(W, len(theta)):
        total += 0.5 * batch.decay_class_map * theta[p] * theta[p]
    return total


@compiled
def gradient(net, theta, batch, space):
    """The gradient, or what the paper prints for it, after `loss` of the same parameters."""
    found = np.zeros(len(theta))
    W, w, last = class_map_at(net), net.width, net.n_layers
    space.adjoint[last] = 0.0
    for i in range(net.n_outputs):
        for k in range(w):
            found[W + i * w + k] = dot(space.outputs[i], space.states[last, k])
            add(space.adjoint[last, k], theta[W + i * w + k], space.outputs[i])
    if net.adjoint == EXACT:
        exact_adjoint(net, theta, space, found)
    else:
        printed_adjoint(net, theta, space, found)
    for p in range(net.n_layers * w * w):
        found[p] += batch.decay * theta[p]
    for p in range(W, len(theta)):
        found[p] += batch.decay_class_map * theta[p]
    return found


@compiled
def dot(a, b):
    total = 0.0
    for s in range(len(a)):
        total += a[s] * b[s]
    return total


@compiled
def exact_adjoint(net, theta, space, found):
    """Q_j = c J_jᵀ Q_{j+1} + Σ_m h_{m−j} Q_m, ∂E/∂θ_j = c (∂f_j/∂θ_j)ᵀ Q_{j+1}."""
    Q, w = space.adjoint, net.width
    weighted = np.empty_like(Q[0])
    for j in range(net.n_layers - 1, -1, -1):
        for i in range(w):
            for s in range(Q.shape[2]):
                weighted[i, s] = net.factor * Q[j + 1, i, s] * (1.0 - space.active[j, i, s] ** 2)
        add_layer_gradient(net, j, weighted, space.states[j], 1.0, False, found)
        if j == 0:
            break
        through(net, theta, j, weighted, Q[j])
        for i in range(w):
            if net.has_memory:
                for m in range(j + 1, net.n_layers + 1):
                    add(Q[j, i], net.h[m - j - 1], Q[m, i])
            elif net.has_skip:
                add(Q[j, i], 1.0, Q[j + 1, i])


@compiled
def printed_adjoint(net, theta, space, found):
    """Alg. 2 and the design equations: see `reproduction.printed_adjoint`. Holds −P in the place of P."""
    P, w, n_layers = space.adjoint, net.width, net.n_layers
    weighted, later = np.empty_like(P[0]), np.empty_like(P[0])
    for j in range(n_layers - 1, -1, -1):
        layer(net, theta, j, space.states[j + 1], later)
        for i in range(w):
            for s in range(P.shape[2]):
                weighted[i, s] = net.factor * P[j + 1, i, s] * (1.0 - later[i, s] ** 2)
        through(net, theta, j, weighted, P[j])
        for i in range(w):
            add(P[j, i], 1.0, P[j + 1, i])
            if net.has_sum:
                for k in range(j + 1, n_layers):
                    add(P[j, i], net.a[k - j - 1], P[k + 1, i])
                    add(P[j, i], -net.a[k - j - 1], P[k, i])
            for s in range(P.shape[2]):
                weighted[i, s] = P[j + 1, i, s] * (1.0 - space.active[j, i, s] ** 2)
        add_layer_gradient(net, j, weighted, space.states[j], 1.0, net.transposed, found)


@compiled
def through(net, theta, j, weighted, result):
    """K_jᵀ of weighted adjoint states."""
    w = net.width
    result[:] = 0.0
    for i in range(w):
        for k in range(w):
            add(result[k], theta[j * w * w + i * w + k], weighted[i])


@compiled
def add_layer_gradient(net, j, weighted, state, factor, transposed, found):
    w = net.width
    K, b = j * w * w, net.n_layers * w * w + j * net.n_biases
    for i in range(w):
        for k in range(w):
            place = K + (k * w + i if transposed else i * w + k)
            found[place] += factor * dot(weighted[i], state[k])
        total = 0.0
        for s in range(weighted.shape[1]):
            total += weighted[i, s]
        found[b + (i if net.n_biases > 1 else 0)] += factor * total


@compiled
def n_right(net, theta, batch, space):
    """How many samples have the largest output at their label."""
    propagate(net, theta, batch, space)
    right = 0
    for s in range(batch.x.shape[1]):
        best = 0
        for i in range(1, net.n_outputs):
            if space.outputs[i, s] > space.outputs[best, s]:
                best = i
        right += best == batch.labels[s]
    return right
