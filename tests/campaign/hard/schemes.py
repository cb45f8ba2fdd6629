"""Methods of fixed steps written out in NumPy from their formulas, and problems that hold the library's to them."""

import itertools

import numpy as np

from tests.campaign.hard.case import Problem, array, kind, like
from tests.campaign.hard.nonlinear import in_units, system_func
from tests.campaign.hard.references import hats, solved, trapezoidal

EXPLICIT = ("adams", "pece", "euler", "l1")


def mesh_of(case, orders):
    """Nodes in [0, 1]: equal steps, the documented grading, or uneven ones that t gives."""
    even = np.arange(case.n_steps + 1) / case.n_steps
    if case.grid == "graded":
        return even ** (min(2 / min(orders), 8.0) if min(orders) < 1 else 1.0)
    if "nodes" in case.given:
        return array(*case.given["nodes"])
    if case.grid == "given":
        return even ** case.given.get("uneven", 1.3)
    return even


def rectangles(order, nodes, n):
    """The weights of the intervals before node n: ∫ (t_n − s)^(order−1)/Γ(order)."""
    falling, rising = hats(order, nodes[n], nodes[:n], nodes[1 : n + 1])
    return falling + rising


def stepped(method, func, y0, orders, nodes):
    """States at all nodes by a method's formula; `func(x, z)`."""
    if method == "trapezoidal":
        return trapezoidal(func, y0, orders, tuple(nodes))
    if method in ("l1", "l1-implicit"):
        return _l1(func, y0, orders, nodes, implicit=method == "l1-implicit")
    states, slopes, d = [y0], [func(0.0, y0)], range(len(y0))
    for n in range(1, len(nodes)):
        x, known = nodes[n], np.array(slopes)
        constant = y0 + array(*(rectangles(orders[i], nodes, n) @ known[:, i] for i in d))
        if method == "euler":
            states.append(constant)
            slopes.append(func(x, constant))
            continue
        pairs = [hats(orders[i], x, nodes[:n], nodes[1 : n + 1]) for i in d]
        memory = y0 + array(*(pairs[i][0] @ known[:, i] + pairs[i][1][:-1] @ known[1:, i] for i in d))
        newest = array(*(pairs[i][1][-1] for i in d))
        if method == "pece":
            guess = constant
        elif n == 1:
            guess = memory + newest * func(x, memory + newest * slopes[0])
        else:
            ahead = (nodes[n] - nodes[n - 1]) / (nodes[n - 1] - nodes[n - 2])
            guess = memory + newest * (slopes[-1] + ahead * (slopes[-1] - slopes[-2]))
        states.append(memory + newest * func(x, guess))
        slopes.append(func(x, states[-1]))
    return np.stack(states)


def _l1(func, y0, orders, nodes, *, implicit):
    """Σ_k w_nk (u_k − u_{k−1})/τ_k = f, with the weights of the integral of order 1 − order."""
    steps, states, d = np.diff(nodes), [y0], range(len(y0))
    for n in range(1, len(nodes)):
        x = nodes[n]
        rates = np.diff(np.array(states), axis=0) / steps[: n - 1, None]
        weights = [rectangles(1 - orders[i], nodes, n) if orders[i] < 1 else np.eye(n)[-1] for i in d]
        older = array(*(weights[i][:-1] @ rates[:, i] for i in d))
        factor = steps[n - 1] / array(*(weights[i][-1] for i in d))
        known = states[-1] - factor * older
        if implicit:
            states.append(solved(lambda z: func(x, z), known, factor, states[-1]))  # noqa: B023
        else:
            states.append(known + factor * func(nodes[n - 1], states[-1]))
    return np.stack(states)


AGREEMENT = {"float64": 1e-9, "float32": 2e-4}


@kind("steps")
def steps(case):
    """A method of fixed steps gives, for each component, what its formula does."""
    func, scale, y0 = system_func(case)
    orders = case.orders(len(scale))
    nodes = mesh_of(case, orders)
    plain = scale * stepped(case.method, in_units(func, scale), y0 / scale, orders, nodes)
    largest = np.abs(plain).max(0)
    share = AGREEMENT[case.dtype] if case.method != "l1" else max(1e-7, AGREEMENT[case.dtype])
    growth = np.nan_to_num(largest / (scale * reach_of(case.given)), nan=np.inf).max()
    derivative = None
    if case.mode == "gradient":
        more, less = (stepped(case.method, in_units(func, scale, a), y0 / scale, orders, nodes) for a in (1.001, 0.999))
        derivative = (scale * (more - less) / 2e-3)[1:]
    return Problem(
        func,
        y0,
        nodes[1:],
        plain[1:],
        derivative=derivative,
        scale=scale,
        bound=share * largest + 0 * plain[1:],
        answer=answer_to(growth),
    )


def reach_of(given):
    """What no |z| of the system exceeds: each component is pulled back from there, on each side."""
    pushes = 1 + np.abs(array(*given["forcing"])).max() + abs(given["coupling"])
    return 1.5 * pushes


def answer_to(growth):
    """A scheme that leaves the reach of the solution has exploded: it may say so, and must if it overflows."""
    return "solve" if growth < 1.05 else "may refuse" if np.isfinite(growth) else "must refuse"


def answer_to_decay(growth, at_the_end):
    """Return "must warn" where a decaying solution has grown more than a thousandfold at the end, with a margin."""
    return "solve" if growth < 1.05 else "must warn" if at_the_end > 1e4 else "may refuse"


@kind("explosion")
def explosion(case):
    """A decay by an explicit method whose steps may be too long: growth out of nothing is reported.

    Next to that limit rounding grows as well: by as much as a noise of func of 1e-14 does.
    """
    rates, scale = array(*case.given["rates"]), array(*case.given["scales"])
    orders = case.orders(len(rates))
    nodes = mesh_of(case, orders)
    with np.errstate(over="ignore", invalid="ignore"):
        plain = scale * stepped(case.method, lambda x, z: -rates * z, np.ones(len(rates)), orders, nodes)
        signs = itertools.cycle([1e-12, -1e-12])
        moved = stepped(case.method, lambda x, z: -rates * z * (1 + next(signs)), np.ones(len(rates)), orders, nodes)
        rounding = 1e-2 * np.abs(scale * moved - plain)[1:]
    sizes = np.nan_to_num(np.abs(plain) / scale, nan=np.inf)
    growth = sizes.max()
    answer = answer_to_decay(growth, sizes[-1].max())
    # What begins to grow makes more of rounding as well.
    share = 1e-8 if answer == "solve" else 1e-3
    bound = share * scale * max(1.0, growth) + rounding
    func = lambda m, x, u, a: -like(m, rates, u) * u  # noqa: E731
    return Problem(func, scale, nodes[1:], plain[1:], scale=scale, bound=bound, answer=answer)
