"""Solutions of fractional equations in NumPy and mpmath, for hard solves; nothing of the library.

Linear problems with constant coefficients are inverted from their Laplace transforms, for orders above 1 by the
Mittag-Leffler function of `tests.references`. Nonlinear ones are integrated by the product trapezoidal rule on graded
meshes of N, 2N and 4N steps, extrapolated, with the change by the last extrapolation as the estimate of the error.
"""

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tests.campaign.hard.case import UnsureReferenceError
from tests.references import mittag_leffler

# Trefethen, Weideman, Schmelzer, "Talbot quadratures and rational approximations", 2006: an error of 3.89^(−N).
_TALBOT = 26
_ANGLES = math.pi * (np.arange(_TALBOT) + 0.5) / _TALBOT
_COTANGENT = 1 / np.tan(0.6407 * _ANGLES)
_NODES = _TALBOT * (0.5017 * _ANGLES * _COTANGENT - 0.6122 + 0.2645j * _ANGLES)
_SPEEDS = 0.5017 * (_COTANGENT - 0.6407 * _ANGLES * (1 + _COTANGENT**2)) + 0.2645j
_GAUSS, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)


def inverted(transform, times):
    """The function with this Laplace transform, whose singularities lie on the negative axis; [len(times), …]."""
    values = []
    for time in np.asarray(times, dtype=float):
        z = _NODES / time
        integrand = np.exp(_NODES) * _SPEEDS * np.moveaxis(transform(z), 0, -1)
        values.append(np.imag(integrand).sum(-1) / time)
    return np.stack(values)


def decay(rates, order, times):
    """E_order(−rate · t^order) for rates ≥ 0, [len(times), len(rates)], at times after 0."""
    rates, times = np.atleast_1d(np.asarray(rates, dtype=float)), np.asarray(times, dtype=float)
    if order == 1:
        return np.exp(-rates * times[:, None])
    if order > 1:
        values = [[mittag_leffler(-rate * time**order, order, 1) for rate in rates] for time in times]
        return np.array(values, dtype=complex).real
    # In units of time in which powers neither overflow nor vanish.
    unit = times[-1]
    scaled = rates * unit**order
    return inverted(lambda s: s[:, None] ** (order - 1) / (s[:, None] ** order + scaled), times / unit)


def forced(source, rate, order, times):
    """From 0: the solution of d^order u = f − rate · u, where `source(s)` is the transform of f in units of times[-1].

    With t = times[-1] · x the equation is d_x^order u = unit^order · (f − rate · u).
    """
    unit = float(times[-1])
    scale = unit**order
    return inverted(lambda s: scale * source(s) / (s**order + rate * scale), np.asarray(times) / unit)


def graded(n, grading):
    return (np.arange(n + 1) / n) ** grading


def hats(order, row, begins, ends):
    """∫ (row − s)^(order−1)/Γ(order) times the falling and the rising line on each interval [begin, end], end ≤ row."""
    length, far = ends - begins, row - begins
    near = np.maximum(row - ends, 0.0)
    falling, rising = np.empty_like(length), np.empty_like(length)
    smooth = length < 0.4 * far  # there Gauss' rule is exact to rounding; differences of powers would cancel
    x = 0.5 * (1 + _GAUSS)
    kernel = (far[smooth, None] - length[smooth, None] * x) ** (order - 1) * _GAUSS_WEIGHTS * 0.5
    rising[smooth] = length[smooth] * (kernel @ x)
    falling[smooth] = length[smooth] * (kernel @ (1 - x))
    h, a, b = length[~smooth], far[~smooth], near[~smooth]
    whole = (a**order - b**order) / order
    first = (a ** (order + 1) - b ** (order + 1)) / (order + 1)  # ∫ (row − s)^order ds
    rising[~smooth] = (a * whole - first) / h
    falling[~smooth] = (first - b * whole) / h
    return falling / math.gamma(order), rising / math.gamma(order)


@lru_cache(maxsize=24)
def trapezoidal_rows(order, mesh):
    """Row n: the weights of nodes 0 … n for the integral up to node n."""
    nodes = np.array(mesh)
    rows = [np.zeros(1)]
    for n in range(1, len(nodes)):
        falling, rising = hats(order, nodes[n], nodes[:n], nodes[1 : n + 1])
        row = np.zeros(n + 1)
        row[:-1] += falling
        row[1:] += rising
        rows.append(row)
    return rows


def solved(func, known, weight, guess):
    """Solve u = known + weight · func(u) by Newton's method, each component to rounding in units of its own size."""
    u = np.array(guess, dtype=float)
    best, best_size = u, math.inf
    for _ in range(100):
        value = func(u)
        residual = u - known - weight * value
        size = np.max(np.abs(residual) / (np.abs(known) + np.abs(weight * value) + np.abs(u) + 1e-300))
        if size < best_size:
            best, best_size = u, size
        elif size < 1e-13:
            break
        if size == 0.0:
            break
        moves = 1e-7 * (np.abs(u) + np.abs(weight * value) + 1e-12 * np.max(np.abs(u)) + 1e-300)
        slopes = np.stack([(func(u + move * row) - func(u - move * row)) / (2 * move) for move, row in _rows(moves)], 1)
        matrix = np.eye(len(u)) - weight[:, None] * slopes
        scale = np.abs(u) + np.abs(residual) + 1e-300  # equations and unknowns in their own units
        step = scale * np.linalg.solve(matrix * (scale / scale[:, None]), residual / scale)
        u = u - step
    if not best_size < 1e-11:
        raise UnsureReferenceError(f"the reference's own equation is not solved: {best_size:.1e}")
    return best


def solved_together(func, times, known, weights, guess):
    """States [P, d] at several times: z = known + weights · func(times, z), by Newton's method, to rounding."""
    z, before = np.array(guess, dtype=float), math.inf
    for _ in range(60):
        value, jacobian = _values(func, times, z.reshape(known.shape))
        step = np.linalg.solve(np.eye(len(z)) - weights @ jacobian, z - known.ravel() - weights @ value)
        z, size = z - step, float(np.abs(step).max())
        if size < 1e-11 and size >= 0.5 * before:
            return z.reshape(known.shape)
        before = size
    raise UnsureReferenceError(f"the reference's own equations are not solved: {before:.1e}")


def _values(func, times, states):
    """Func at all times, one after the other, [P d], and its derivatives, [P d, P d]."""
    count, d = states.shape
    jacobian = np.zeros((count, d, count, d))
    for p, (time, z) in enumerate(zip(times, states, strict=True)):
        for i, row in enumerate(np.eye(d)):
            move = 1e-6 * (1e-3 + abs(z[i]))
            jacobian[p, :, p, i] = (func(time, z + move * row) - func(time, z - move * row)) / (2 * move)
    values = np.stack([func(time, z) for time, z in zip(times, states, strict=True)])
    return values.ravel(), jacobian.reshape(count * d, -1)


def _rows(moves):
    return zip(moves, np.eye(len(moves)), strict=True)


def trapezoidal(func, y0, orders, mesh, slope=None):
    """The implicit product trapezoidal rule at all nodes, [N + 1, d]; `func(t, u)` and one order for each component."""
    nodes, y0 = np.asarray(mesh), np.asarray(y0, dtype=float)
    tables = [trapezoidal_rows(float(order), tuple(mesh)) for order in orders]
    states, entries = [y0], np.zeros((len(nodes), len(y0)))
    entries[0] = func(nodes[0], y0)
    for n in range(1, len(nodes)):
        known = y0 + (0.0 if slope is None else slope * nodes[n])
        known = known + np.array([tables[i][n][:-1] @ entries[:n, i] for i in range(len(y0))])
        weight = np.array([tables[i][n][-1] for i in range(len(y0))])
        time = nodes[n]
        states.append(solved(lambda u: func(time, u), known, weight, states[-1]))  # noqa: B023
        entries[n] = func(time, states[-1])
    return np.stack(states)


OUTPUTS = (2, 5, 8)


def output_shares(orders):
    """Times, in parts of the span, at which a reference on the meshes below has nodes."""
    return graded(8, _grading(orders))[list(OUTPUTS)]


def _grading(orders):
    return max(1.0, min(2.0 / min(orders), 6.0))


def integrated(func, y0, orders, coarsest=120):
    """At the output shares of the span [0, 1]: the solution [3, d] and an estimate of its error, [3, d]."""
    found = []
    for n in (coarsest, 2 * coarsest, 4 * coarsest):
        states = trapezoidal(func, y0, orders, graded(n, _grading(orders)))
        found.append(states[[n * m // 8 for m in OUTPUTS]])
    once = [fine + (fine - coarse) / 3 for coarse, fine in pairwise(found)]
    # The change estimates the error before the last extrapolation, of at least third order: after it a seventh is left.
    return once[1], np.abs(once[1] - once[0]) / 3
