"""Collocation at Radau's points in NumPy: the slope is a polynomial on each panel, the solution its integral."""

import itertools
import math

import numpy as np
from scipy.special import roots_jacobi

from tests.campaign.hard.case import Problem, kind
from tests.campaign.hard.nonlinear import in_units, system_func
from tests.campaign.hard.references import solved_together
from tests.campaign.hard.schemes import AGREEMENT, mesh_of, reach_of

POINTS = 8  # as docs/solver.md has it for grids that are not adaptive
PLACES = (1 + np.append(roots_jacobi(POINTS - 1, 1.0, 0.0)[0], 1.0)) / 2
_PARTS, _PART_POINTS = 14, 14


def _basis(x):
    """[len(x), POINTS]: Lagrange's polynomials of the points."""
    factors = (x[:, None] - PLACES)[:, None, :] / (PLACES[:, None] - PLACES + np.eye(POINTS))
    factors[:, np.eye(POINTS, dtype=bool)] = 1.0
    return factors.prod(-1)


def _own(order):
    """[POINTS, POINTS]: the integral up to each point over its own panel, of length 1."""
    places, weights = roots_jacobi(POINTS, order - 1, 0.0)
    places, weights = (1 + places) / 2, weights / 2**order
    rows = [x**order * (weights @ _basis(x * places)) for x in PLACES]
    return np.array(rows) / math.gamma(order)


def _fine():
    """Points and weights on [0, 1], ever closer toward 1, where the kernel of the next panel is steep."""
    base, weights = np.polynomial.legendre.leggauss(_PART_POINTS)
    ends = np.concatenate([[0.0], 1 - 0.4 ** np.arange(1, _PARTS), [1.0]])
    half = np.diff(ends)[:, None] / 2
    return (ends[:-1, None] + half * (1 + base)).ravel(), (half * weights).ravel()


def collocated(func, y0, orders, nodes):
    """States at all nodes, [N + 1, d], and by how much the slopes jump at each inner node and 0 at the last, [N, d].

    `func(x, z)`, and one order for each component.
    """
    fine, fine_weights = _fine()
    to_fine = fine_weights[:, None] * _basis(fine)
    own, d = [_own(order) for order in orders], len(y0)
    states, slopes, guess = [y0], [], np.tile(y0, POINTS)
    for n, (begin, length) in enumerate(zip(nodes[:-1], np.diff(nodes), strict=True)):
        times = begin + length * PLACES
        known = np.tile(y0, (POINTS, 1))
        for k in range(n):
            before = nodes[k] + (nodes[k + 1] - nodes[k]) * fine
            for i, order in enumerate(orders):
                kernel = (times[:, None] - before) ** (order - 1) / math.gamma(order)
                known[:, i] += (nodes[k + 1] - nodes[k]) * (kernel @ (to_fine @ slopes[k][:, i]))
        wide = np.zeros((POINTS, d, POINTS, d))
        for i, order in enumerate(orders):
            wide[:, i, :, i] = length**order * own[i]
        found = solved_together(func, times, known, wide.reshape(POINTS * d, -1), guess)
        slopes.append(np.stack([func(time, z) for time, z in zip(times, found, strict=True)]))
        states.append(found[-1])
        guess = np.tile(found[-1], POINTS)
    at_begin = _basis(np.zeros(1))
    jumps = [(at_begin @ later)[0] - before[-1] for before, later in itertools.pairwise(slopes)]
    return np.stack(states), np.abs([*jumps, 0 * y0])


@kind("panels")
def panels(case):
    """Collocation on panels that are given: for each component what its formula gives.

    An iteration for eight points together may diverge where the panel is long for a strong nonlinearity, and says so.
    """
    func, scale, y0 = system_func(case)
    orders = case.orders(len(scale))
    nodes = mesh_of(case, orders)
    plain, jumps = (scale * found for found in collocated(in_units(func, scale), y0 / scale, orders, nodes))
    largest = np.abs(plain).max(0)
    if np.any(largest > scale * reach_of(case.given)):
        raise AssertionError("the reference for panels is not stable")
    derivative = None
    if case.mode == "gradient":
        more, less = (collocated(in_units(func, scale, a), y0 / scale, orders, nodes)[0] for a in (1.001, 0.999))
        derivative = (scale * (more - less) / 2e-3)[1:]
    bound = AGREEMENT[case.dtype] * largest + 0 * plain[1:]
    after = case.given.get("after", 0.0)
    moved = after * np.append(np.diff(nodes)[1:], 0.0)
    shares = nodes[1:] + moved  # outputs just behind the nodes: the same, up to what a jump of the slopes adds
    added = moved[:, None] ** np.array(orders) / np.array([math.gamma(1 + order) for order in orders])
    bound = bound + 100 * after * largest + added * jumps
    answer = "may refuse" if max(case.given["cubic"]) > 1 else "solve"
    return Problem(func, y0, shares, plain[1:], derivative=derivative, scale=scale, bound=bound, answer=answer)
