"""Linear problems, solved by transforms: decays of any stiffness, batches, transients, pulses, diffusion, spirals."""

import numpy as np

from tests.campaign.hard.case import Problem, array, kind, like
from tests.campaign.hard.references import decay, forced, inverted
from tests.references import mittag_leffler

SHARES = array(0.01, 0.3, 1.0)


@kind("decay")
def decays(case):
    """Scalars that know nothing of one another, stiff or not, of any sizes: d^order u_i = −rate_i · u_i."""
    rates, scale = array(*case.given["rates"]), array(*case.given["scales"])
    orders = case.orders(len(rates))
    shares = array(*case.given.get("shares", SHARES))
    parts = [decay(rate, order, shares) for rate, order in zip(rates, orders, strict=True)]
    exact = scale * np.concatenate(parts, axis=1)
    # Above order 1 solutions swing through 0.
    peak = np.where(orders > 1, scale, np.abs(exact))
    return Problem(
        lambda m, x, u, a: -like(m, rates, u) * u,
        scale,
        shares,
        exact,
        derivative=exact,
        start_scales=True,
        scale=scale,
        peak=peak,
    )


@kind("transient")
def transient(case):
    """A forcing that dies early in a long span: d^order u = c · exp(−k · x) − rate · u, u(0) = 0; orders up to 1."""
    fall, rate, size, scale = (case.given[name] for name in ("fall", "rate", "size", "scale"))
    exact = scale * size * forced(lambda s: 1 / (s + fall), rate, case.order, SHARES)[:, None]

    def func(m, x, u, a):
        return a * (scale * size) * m.exp(-fall * x) - rate * u

    return Problem(func, array(0.0), SHARES, exact, derivative=exact, scale=scale)


def _steps_response(rate, order, shares):
    return np.array([0.0 if x <= 0 else inverted(lambda s: 1 / (s * (s**order + rate)), [x])[0] for x in shares])


@kind("pulse")
def pulse(case):
    """A pulse of unit area that may be short and late, or a step, told of as breakpoints or not; orders up to 1."""
    begin, width, rate, scale = (case.given[name] for name in ("begin", "width", "rate", "scale"))
    told, end = case.given["told"], begin + width
    shares = array(*sorted({0.5 * begin, begin + 0.5 * (1 - begin), 1.0}))
    height = scale / (width if width else 1.0)
    response = _steps_response(rate, case.order, shares - begin)
    if width:
        response = response - _steps_response(rate, case.order, shares - end)
    exact = (height * response)[:, None]

    def func(m, x, u, a):
        on = (x >= begin) & (x < end) if width else x >= begin
        return a * height * on - rate * u

    jumps = (begin, end) if width else (begin,)
    return Problem(
        func,
        array(0.0),
        shares,
        exact,
        derivative=exact,
        scale=scale,
        breakpoints=jumps if told else (),
    )


@kind("diffusion")
def diffusion(case):
    """Heat in cells between cold walls, whose rates go up to 4 κ (n + 1)²: some slow modes and the fastest."""
    n, kappa, scale = case.given["cells"], case.given["kappa"], case.given["scale"]
    numbers = array(1, 3, n)
    places = np.arange(1, n + 1) / (n + 1)
    modes = np.sin(np.pi * numbers[:, None] * places)
    rates = 4 * kappa * (n + 1) ** 2 * np.sin(numbers * np.pi / (2 * (n + 1))) ** 2
    sizes = array(1.0, 0.5, 0.25) * scale
    exact = (sizes * decay(rates, case.order, SHARES)) @ modes
    strength = kappa * (n + 1) ** 2

    def func(m, x, u, a):
        zero = 0 * u[:1]
        padded = m.concatenate([zero, u, zero])
        return strength * (padded[2:] - 2 * u + padded[:-2])

    # A cell next to a node of a mode is small by cancellation: its neighbors' size counts.
    peak = np.broadcast_to(np.abs(exact).max(1, keepdims=True), exact.shape)
    return Problem(func, sizes @ modes, SHARES, exact, derivative=exact, start_scales=True, scale=scale, peak=peak)


@kind("spiral")
def spiral(case):
    """Two components, of different sizes, that turn into one another: rates −damping ± i · turn; orders below 2."""
    damping, turn = case.given["damping"], case.given["turn"]
    scale = array(*case.given["scales"])
    order = case.order
    values = np.array([complex(mittag_leffler((-damping + 1j * turn) * x**order, order, 1)) for x in SHARES])
    exact = np.stack([values.real, values.imag], 1) * scale
    ratio = scale[0] / scale[1]

    def func(m, x, u, a):
        return m.stack([-damping * u[0] - (turn * ratio) * u[1], (turn / ratio) * u[0] - damping * u[1]])

    peak = np.abs(values)[:, None] * scale
    peak = np.maximum(peak, 1.0 * scale) if order > 1 else peak
    start = array(scale[0], 0.0)
    return Problem(
        func,
        start,
        SHARES,
        exact,
        derivative=exact,
        start_scales=True,
        scale=scale,
        peak=peak,
    )
