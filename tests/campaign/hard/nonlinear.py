"""Nonlinear problems: with solutions that were chosen first, with closed ones at order 1, and with integrated ones."""

import math

import numpy as np
from scipy.integrate import solve_ivp

from tests.campaign.hard.case import Problem, array, kind, like, sure
from tests.campaign.hard.linear import SHARES
from tests.campaign.hard.references import integrated, output_shares

COARSEST = 96  # steps of the reference, whose finest mesh has four times as many


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
    # What the component before may be off by comes over through the coupling.
    peak = np.abs(exact) + abs(coupling) * scale * np.roll(np.abs(exact) / scale, 1, axis=1).max(0)
    return Problem(func, scale * first, SHARES, exact, derivative=exact, start_scales=True, scale=scale, peak=peak)


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


@kind("logarithm")
def logarithm(case):
    """Gompertz's growth, u' = −rate · u · log u from any size to 1; func is NaN for states below 0; order 1."""
    rate, first = case.given["rate"], array(*case.given["first"])
    left = np.exp(-rate * SHARES)[:, None]
    exact = first**left

    def func(m, x, u, a):
        return -rate * u * m.log(u)

    return Problem(func, first, SHARES, exact, derivative=left * exact, start_scales=True, scale=1.0)


@kind("steep start")
def steep_start(case):
    """A steep slope, d^order u = size/√(max(u, 0) + small), u(0) = small, not defined left of 0."""
    small, size = case.given["small"], case.given["size"]
    if case.order != 1:
        return _steep_start_integrated(case, small, size)
    exact = ((2 * small) ** 1.5 + 1.5 * size * SHARES) ** (2 / 3) - small

    def func(m, x, u, a):
        return a * size / (u.clip(0) + small) ** 0.5

    by_size = size * SHARES / (exact + small) ** 0.5
    return Problem(func, array(small), SHARES, exact[:, None], derivative=by_size[:, None], scale=float(exact[-1]))


def _steep_start_integrated(case, small, size):
    found, error = integrated(lambda x, u: size / np.sqrt(np.maximum(u, 0) + small), [small], (case.order,), COARSEST)
    scale = float(found[-1, 0])

    def func(m, x, u, a):
        return size / (u.clip(0) + small) ** 0.5

    exact = sure(found, error, case, scale)
    return Problem(func, array(small), output_shares((case.order,)), exact, scale=scale)


@kind("brusselator")
def brusselator(case):
    """Two components of any sizes, z' = [1 − (b + 1) z_0 + z_0² z_1, b z_0 − z_0² z_1] in units of their sizes."""
    b, length, scale = case.given["b"], case.given["length"], array(*case.given["scales"])
    orders = tuple(case.orders(2))
    pace = length ** np.array(orders)

    def func(m, x, u, a):
        z = u / like(m, scale, u)
        turn = z[0] ** 2 * z[1]
        return like(m, scale * pace, u) * m.stack([1 - (b + 1) * z[0] + turn, b * z[0] - turn])

    start = array(1.2, 2.5)
    exact, error = integrated(in_units(func, scale), start, orders, COARSEST)
    exact, error = scale * exact, scale * error
    peak = np.maximum(np.abs(exact), scale)
    sure(exact, error, case, scale, peak)
    return Problem(func, scale * start, output_shares(orders), exact, scale=scale, peak=peak)


@kind("stiff at order 1")
def stiff_at_order_1(case):
    """Robertson's reaction and van der Pol's oscillator, integrated by SciPy's Radau in two precisions."""
    length, scale = case.given["length"], array(*case.given["scales"])
    stiff, start = case.given["stiff"], array(*([1.0, 0.0, 0.0] if len(scale) == 3 else [2.0, 0.0]))

    def slopes(m, z):
        if len(scale) == 3:
            made, lost = 0.04 * z[0] - stiff * z[1] * z[2], 3e3 * stiff * z[1] ** 2
            return m.stack([-made, made - lost, lost])
        return m.stack([z[1], stiff * ((1 - z[0] ** 2) * z[1] - z[0])])

    def func(m, x, u, a):
        return like(m, length * scale, u) * slopes(m, u / like(m, scale, u))

    def by_scipy(rtol):
        options = {"method": "Radau", "t_eval": SHARES * length, "rtol": rtol, "atol": 1e-4 * rtol}
        return solve_ivp(lambda _, z: slopes(np, z), (0, length), start, **options).y.T

    exact, rough = by_scipy(1e-10), by_scipy(1e-9)
    # Errors of one component come over to the others, in units of what these can be.
    largest = np.maximum(np.abs(exact), 1e-4 if len(scale) == 3 else 1.0)
    sure(exact, np.abs(exact - rough), case, 0.0, largest)
    return Problem(func, scale * start, SHARES, scale * exact, scale=scale, peak=scale * largest)


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
    return Problem(
        func,
        y0,
        output_shares(orders),
        sure(exact, error, case, scale, peak),
        derivative=derivative,
        scale=scale,
        peak=peak,
    )
