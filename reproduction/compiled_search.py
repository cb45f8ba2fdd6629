"""BFGS and steepest descent with Armijo's search, compiled: what `fracdnn.optim` does, for a compiled network.

`SCALED` is the library's BFGS, `IDENTITY` the textbook's (H = I, first length 1), `STEEPEST` steepest descent.
"""

import math

import numpy as np

from fracdnn.optim.bfgs import DECREASE, LONGEST, MAX_TRIALS, SHORTEST, SMALLEST_CURVATURE
from reproduction.compiled_network import compiled, dot, gradient, loss

SCALED, IDENTITY, STEEPEST = 0, 1, 2
CONVERGED, LIMIT, SEARCH_FAILED, NOT_FINITE = 0, 1, 2, 3


@compiled
def minimize(net, theta, batch, space, method, max_iter, tolerance, losses, trials, norms):
    """Change the parameters in place, up to `max_iter` iterations. Returns how many were taken and why it ended.

    What happened is noted in `losses` and `trials` [max_iter], and in `norms` [max_iter, n_layers], where it has rows,
    the norm of each layer's gradient.
    """
    value = loss(net, theta, batch, space)
    slope_at = gradient(net, theta, batch, space)
    H, fresh, length = np.empty((0, 0)), True, -1.0
    if not (math.isfinite(value) and np.isfinite(slope_at).all()):
        return 0, NOT_FINITE
    for iteration in range(max_iter):
        if math.sqrt(dot(slope_at, slope_at)) <= tolerance:
            return iteration, CONVERGED
        accepted = False
        for _ in range(2):
            direction = -slope_at if fresh else -times(H, slope_at)
            slope = dot(slope_at, direction)
            if not fresh and not slope < 0.0:
                fresh = True
                continue
            guess = first_length(method, fresh, slope_at, length)
            found, count, new_value = search(net, theta, direction, batch, space, value, slope, guess)
            trials[iteration] += count
            if found > 0.0:
                accepted, length = True, found
                break
            if fresh:
                break
            fresh = True
        if not accepted:
            return iteration, SEARCH_FAILED
        step = length * direction
        theta += step
        new_slope = gradient(net, theta, batch, space)
        if method != STEEPEST:
            H, fresh = learned(H, fresh, step, new_slope - slope_at, method)
        value, slope_at = new_value, new_slope
        losses[iteration] = value
        if len(norms):
            note_norms(net, slope_at, norms[iteration])
    return max_iter, LIMIT


@compiled
def first_length(method, fresh, slope_at, last):
    if method == STEEPEST:
        return 1.0 if last < 0.0 else 2.0 * last
    if method == IDENTITY or not fresh:
        return 1.0
    return min(1.0, 1.0 / max(np.abs(slope_at).sum(), 1e-30))


@compiled
def learned(H, fresh, step, change, method):
    """The update of the inverse Hessian, where the step tells of curvature."""
    curvature = dot(step, change)
    if not curvature > SMALLEST_CURVATURE * math.sqrt(dot(step, step)) * math.sqrt(dot(change, change)):
        return H, fresh
    if fresh:
        scale = 1.0 if method == IDENTITY else dot(step, step) / curvature
        H = scale * np.eye(len(step))
    image = times(H, change)
    rho = 1.0 / curvature
    factor = rho * (1.0 + rho * dot(change, image))
    correction = 0.5 * factor * step - rho * image
    for i in range(len(step)):
        for k in range(len(step)):
            H[i, k] += step[i] * correction[k] + correction[i] * step[k]
    return H, False


@compiled
def times(H, vector):
    """H v by a loop of our own: BLAS may add in another order where memory lies otherwise."""
    result = np.empty_like(vector)
    for i in range(len(vector)):
        result[i] = dot(H[i], vector)
    return result


@compiled
def search(net, theta, direction, batch, space, start, slope, length):
    """Armijo's rule: an accepted length (or −1), how many trials, and the value there, whose states are in `space`."""
    before_t, before_f = -1.0, 0.0
    for trial in range(1, MAX_TRIALS + 1):
        found = loss(net, theta + length * direction, batch, space)
        if math.isfinite(found) and found < start and found <= start + DECREASE * length * slope:
            return length, trial, found
        shorter = length * SHORTEST
        if math.isfinite(found):
            guess = interpolated(start, slope, length, found, before_t, before_f)
            before_t, before_f = length, found
            shorter = min(max(guess, length * SHORTEST), length * LONGEST)
        length = shorter
    return -1.0, MAX_TRIALS, start


@compiled
def interpolated(start, slope, t, f, u, g):
    """The minimizer of the quadratic through the last trial, of the cubic through the last two."""
    quadratic = -slope * t * t / (2.0 * (f - start - slope * t))
    if u < 0.0:
        return quadratic
    first, second = (f - start - slope * t) / (t * t), (g - start - slope * u) / (u * u)
    a = (first - second) / (t - u)
    b = (u * -first + t * second) / (t - u)
    discriminant = b * b - 3.0 * a * slope
    if discriminant < 0.0:
        return quadratic
    root = math.sqrt(discriminant)
    if b > 0.0:
        return -slope / (b + root)
    return (root - b) / (3.0 * a) if a != 0.0 else quadratic


@compiled
def note_norms(net, slope_at, row):
    w, b = net.width * net.width, net.n_layers * net.width * net.width
    for j in range(net.n_layers):
        total = 0.0
        for p in range(j * w, (j + 1) * w):
            total += slope_at[p] ** 2
        for p in range(b + j * net.n_biases, b + (j + 1) * net.n_biases):
            total += slope_at[p] ** 2
        row[j] = math.sqrt(total)
