"""Nonlinear problems: with solutions that were chosen first, with closed ones at order 1, and with integrated ones."""

import math

import numpy as np

from tests.campaign.hard.case import Problem, array, kind, like, sure
from tests.campaign.hard.linear import SHARES
from tests.campaign.hard.references import integrated, output_shares

COARSEST = 64  # steps of the reference, whose finest mesh has four times as many


def _powers(m, x, exponents, u):
    """[d, K]: x to powers ≥ 0."""
    return like(m, x, u) ** like(m, exponents, u)


@kind("chosen")
def chosen(case):
    """z_i = c_0 + Σ c_k x^(order + e_k), which a stiff or nonlinear or coupling term g(z − solution) leaves alone.

    With w = z − solution the right-hand side is D^order z_exact − k w − l w³ + q w of the component before.
    """
    given = case.given
    coefficients, extra = np.array(given["coefficients"]), np.array(given["exponents"])  # [d, K] each
    scale, first = array(*given["scales"]), array(*given["first"])
    stiff, cubic, coupling = array(*given["stiff"]), array(*given["cubic"]), given["coupling"]
    orders = case.orders(len(scale))
    exponents = orders[:, None] + extra
    gammas = [[math.gamma(e + p + 1) / math.gamma(e + 1) for e in row] for row, p in zip(extra, orders, strict=True)]
    raised = coefficients * np.array(gammas)

    def value(m, x, u):
        return like(m, first, u) + (like(m, coefficients, u) * _powers(m, x, exponents, u)).sum(-1)

    def func(m, x, u, a):
        w = u / like(m, scale, u) - a * value(m, x, u)
        slope = a * (like(m, raised, u) * _powers(m, x, extra, u)).sum(-1)
        pull = -like(m, stiff, u) * w - like(m, cubic, u) * w**3
        if coupling:
            pull = pull + coupling * m.roll(w, 1)
        return like(m, scale, u) * (slope + pull)

    exact = scale * np.stack([value(np, x, scale) for x in SHARES])
    return Problem(func, scale * first, SHARES, exact, derivative=exact, start_scales=True, scale=scale)


@kind("cubic at order 1")
def cubic_at_order_1(case):
    """Next to a large linear component: u_1' = −rate · u_1³/scale², which no tolerance of the large one may hide."""
    rate, linear, scale = case.given["rate"], case.given["linear"], array(*case.given["scales"])
    root = np.sqrt(1 + 2 * rate * SHARES)
    exact = np.stack([scale[0] * np.exp(-linear * SHARES), scale[1] / root], 1)

    def func(m, x, u, a):
        return m.stack([-linear * u[0], -rate * u[1] * (u[1] / scale[1]) ** 2])

    by_start = np.stack([exact[:, 0], scale[1] / root**3], 1)
    return Problem(func, scale, SHARES, exact, derivative=by_start, start_scales=True, scale=scale)


@kind("steep start")
def steep_start(case):
    """A steep slope, u' = size/√(max(u, 0) + small), u(0) = small, not defined left of 0; order 1."""
    small, size = case.given["small"], case.given["size"]
    exact = ((2 * small) ** 1.5 + 1.5 * size * SHARES) ** (2 / 3) - small

    def func(m, x, u, a):
        return a * size / (u.clip(0) + small) ** 0.5

    by_size = size * SHARES / (exact + small) ** 0.5
    return Problem(func, array(small), SHARES, exact[:, None], derivative=by_size[:, None], scale=float(exact[-1]))


def system_func(case):
    """z_i' = −r z − l z³ + c cos(ω x) + q z of the component before, stable where |q| is below r."""
    given = case.given
    scale = array(*given["scales"])
    names = ("linear", "cubic", "forcing", "frequency")
    r, cubic, c, w = (array(*given[name]) for name in names)
    q = given["coupling"]

    def func(m, x, u, a):
        z = u / like(m, scale, u)
        slope = -like(m, r, u) * z - like(m, cubic, u) * z**3
        slope = slope + a * like(m, c, u) * m.cos(like(m, w, u) * like(m, x, u))
        if q:
            slope = slope + q * m.roll(z, 1)
        return like(m, scale, u) * slope

    return func, scale, scale * array(*given["first"])


def in_units(func, scale, parameter=1.0):
    """The same for z, so that the reference sees numbers of the order of 1."""
    return lambda x, z: func(np, x, scale * z, parameter) / scale


@kind("system")
def system(case):
    """Integrated by the reference; components of any sizes."""
    func, scale, y0 = system_func(case)
    orders = tuple(case.orders(len(scale)))
    exact, error = integrated(in_units(func, scale), y0 / scale, orders, COARSEST)
    exact, error = scale * exact, scale * error
    peak = (
        np.maximum(np.abs(exact), np.abs(y0)) + 0 * exact if max(orders) > 1 else np.maximum.accumulate(np.abs(exact))
    )
    derivative = None
    if case.mode == "gradient":
        more, less = (integrated(in_units(func, scale, 1 + d), y0 / scale, orders, COARSEST)[0] for d in (1e-3, -1e-3))
        derivative = scale * (more - less) / 2e-3
    bound = None
    if not case.tolerant:
        bound = case.given["bound"] * peak
    return Problem(
        func,
        y0,
        output_shares(orders),
        sure(exact, error, case, scale) if case.tolerant else exact,
        derivative=derivative,
        scale=scale,
        peak=peak,
        bound=bound,
    )
