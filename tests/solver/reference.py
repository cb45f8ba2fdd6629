"""The methods of `fdeint` as their definitions: loops over all pairs of nodes, to be read, and for autograd.

States are [d], with one order for all components or one for each; times are nodes t_0 < … < t_N. Nothing here is
shared with the library. What is implicit is solved by iterating u ← known + weight · func(u) until it stands still,
so it serves short steps of mild fields only.
"""

import math

import numpy as np
import torch

ITERATIONS = 80


def solve(method, func, value, order, times, slope=None, corrections=1):
    """The states at all nodes, [N + 1, d]."""
    order, times = torch.as_tensor(order, dtype=torch.float64), [float(t) for t in times]
    begin = without_memory(value, slope, order, times[0], times)
    stepper = {"l1": l1, "l1-implicit": l1, "trapezoidal": trapezoidal}.get(method, explicit)
    return torch.stack(stepper(method, func, begin, order, times, corrections))


def without_memory(value, slope, order, first, times):
    """u_0 + (t − t_0) u_0', the slope only of components with an order above 1."""
    slope = torch.zeros_like(value) if slope is None else torch.where(order > 1, slope, 0.0)
    return [value + (t - first) * slope for t in times]


def gamma(x):
    return torch.exp(torch.lgamma(torch.as_tensor(x, dtype=torch.float64)))


def rectangle(order, times, n, k):
    """∫ over [t_k, t_{k+1}] of (t_n − s)^(γ−1)/Γ(γ) ds."""
    far, near = times[n] - times[k], times[n] - times[k + 1]
    return (far**order - (near**order if near > 0 else 0.0)) / gamma(order + 1)


def trapezoid(order, times, n, k):
    """The same of the hat function of node k, which is 1 there and 0 at its neighbours."""
    total = 0.0
    if k < n:  # falling over [t_k, t_{k+1}]
        total = rectangle(order, times, n, k) - rising(order, times, n, k)
    return total + (rising(order, times, n, k - 1) if k > 0 else 0.0)


def rising(order, times, n, k):
    """The same of (s − t_k)/τ = ((t_n − t_k) − (t_n − s))/τ over [t_k, t_{k+1}]."""
    far, near, step = times[n] - times[k], times[n] - times[k + 1], times[k + 1] - times[k]
    moment = (far ** (order + 1) - (near ** (order + 1) if near > 0 else 0.0)) / ((order + 1) * gamma(order))
    return (far * rectangle(order, times, n, k) - moment) / step


def explicit(method, func, begin, order, times, corrections):
    """The methods "euler", "pece" and "adams"."""
    at = [torch.tensor(t, dtype=torch.float64) for t in times]
    states, slopes = [begin[0]], [func(at[0], begin[0])]
    for n in range(1, len(times)):
        by_rectangles, memory = begin[n], begin[n]
        for k in range(n):
            by_rectangles = by_rectangles + rectangle(order, times, n, k) * slopes[k]
            memory = memory + trapezoid(order, times, n, k) * slopes[k]
        own = trapezoid(order, times, n, n)
        if method == "euler":
            state = by_rectangles
        elif method == "pece":
            state = by_rectangles
            for _ in range(corrections):
                state = memory + own * func(at[n], state)
        else:
            if n == 1:
                line = func(at[1], memory + own * slopes[0])
            else:
                ratio = (times[n] - times[n - 1]) / (times[n - 1] - times[n - 2])
                line = slopes[-1] + ratio * (slopes[-1] - slopes[-2])
            state = memory + own * line
            for _ in range(corrections):
                state = memory + own * func(at[n], state)
        states.append(state)
        slopes.append(func(at[n], state))
    return states


def trapezoidal(method, func, begin, order, times, corrections):
    at = [torch.tensor(t, dtype=torch.float64) for t in times]
    states, slopes = [begin[0]], [func(at[0], begin[0])]
    for n in range(1, len(times)):
        memory, own = begin[n], trapezoid(order, times, n, n)
        for k in range(n):
            memory = memory + trapezoid(order, times, n, k) * slopes[k]
        state = states[-1]
        for _ in range(ITERATIONS):
            state = memory + own * func(at[n], state)
        states.append(state)
        slopes.append(func(at[n], state))
    return states


def l1(method, func, begin, order, times, corrections):
    """Σ_k w_nk (u_k − u_{k−1})/τ_k = func at node n − 1, or n where it is implicit."""
    at = [torch.tensor(t, dtype=torch.float64) for t in times]
    states = [begin[0]]
    for n in range(1, len(times)):
        memory = 0.0
        for k in range(1, n):
            memory = memory + rectangle(1 - order, times, n, k - 1) * (states[k] - states[k - 1]) / (
                times[k] - times[k - 1]
            )
        factor = (times[n] - times[n - 1]) / rectangle(1 - order, times, n, n - 1)
        if method == "l1":
            states.append(states[-1] + factor * (func(at[n - 1], states[-1]) - memory))
            continue
        state = states[-1]
        for _ in range(ITERATIONS):
            state = states[-1] + factor * (func(at[n], state) - memory)
        states.append(state)
    return states


def iterated(func, begin, times, weights):
    """u_n = begin_n + Σ_k W_nk func(t_k, u_k), all nodes together; W is [N + 1, N + 1] or has a last dimension [d]."""
    at = [torch.tensor(t, dtype=torch.float64) for t in times]
    start = states = torch.stack(begin)
    for _ in range(ITERATIONS):
        slopes = torch.stack([func(t, state) for t, state in zip(at, states, strict=True)])
        states = start + (weights * slopes).sum(1)
    return states


def collocation(func, value, order, nodes, count, slope=None):
    """The states at the ends of panels with `count` Radau points each, [N + 1, d], by monomials: for few points."""
    order, nodes = torch.as_tensor(order, dtype=torch.float64), [float(t) for t in nodes]
    legendre = np.polynomial.legendre
    places = (np.sort(legendre.legroots([0.0] * (count - 1) + [-1.0, 1.0]).real) + 1) / 2 if count > 1 else np.ones(1)
    # Coefficients of the Lagrange polynomials of a panel [0, 1] by powers.
    lagrange = torch.from_numpy(np.linalg.inv(np.vander(places, increasing=True)))
    points = [(panel, float(c)) for panel in range(len(nodes) - 1) for c in places]
    times = [nodes[panel] + c * (nodes[panel + 1] - nodes[panel]) for panel, c in points]
    rows = []
    for (mine, _), time in zip(points, times, strict=True):
        row = []
        for panel in range(len(nodes) - 1):
            length = nodes[panel + 1] - nodes[panel]
            x = (time - nodes[panel]) / length
            for k in range(count):
                if panel > mine:
                    row.append(0.0 * order)
                    continue
                whole = sum(lagrange[j, k] * monomial(order, j, x) for j in range(count))
                beyond = 0.0
                if panel < mine:  # less what a polynomial that goes on beyond the panel's end would give
                    around_one = [sum(lagrange[j, k] * math.comb(j, i) for j in range(i, count)) for i in range(count)]
                    beyond = sum(c * monomial(order, i, x - 1) for i, c in enumerate(around_one))
                row.append(length**order * (whole - beyond))
        rows.append(torch.stack(row))
    weights = torch.stack(rows)
    weights = weights if weights.dim() == 3 else weights.unsqueeze(-1)
    begin = without_memory(value, slope, order, nodes[0], times)
    states = iterated(func, begin, times, weights)
    return torch.cat([value.unsqueeze(0), states[count - 1 :: count]])


def monomial(order, degree, x):
    """∫_0^x (x − s)^(γ−1)/Γ(γ) s^degree ds."""
    return math.factorial(degree) / gamma(order + degree + 1) * x ** (order + degree)
