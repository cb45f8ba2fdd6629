r"""
Is it memory, or is it the step?
================================

A network of order 0.5 and a residual network (order 1) with the same step size :math:`\tau` often score differently,
and it is tempting to call the difference memory. But the order also changes how far a layer moves the state: a layer
adds :math:`c f` with :math:`c = \tau^\gamma \Gamma(2-\gamma)`, and :math:`N` layers reach the horizon
:math:`(N\tau)^\gamma / \Gamma(1+\gamma)`. To settle it, both networks learn one function at many step sizes, from the
same samples and starting weights, and are compared at equal :math:`\tau`, equal :math:`c`, equal horizon, and each at
the step that suits it best.
"""

# %%
# Many steps
# ----------
# The function "peaks" has three hills and three hollows. Each seed draws 300 points of it and the first weights of a
# network of width 8, for both orders alike; 1,000 other points test what was learned, and 1,000 more choose the best
# step.
#
# The same errors are drawn twice: over the factor :math:`c` of a layer, and over the horizon of all layers. If only
# the factor counted, the curves on the left would lie on each other; if only the horizon did, those on the right. The
# circles are what one would compare without a thought: both orders at one :math:`\tau`.

import os
from functools import cache
from math import gamma

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import t as student

from fracdnn import FractionalRegressor
from fracdnn.datasets import make_peaks
from fracdnn.report.figures import BLUE, GREEN, GREY, PURPLE, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
n_layers, seeds = 10, range(2 if small else 6)
iterations = {"Adam": 50} if small else {"Adam": 80, "L-BFGS": 40}
orders = {1.0: BLUE, 0.5: VERMILION}
test, held_out = (
    make_peaks(1000, random_state=1000),
    make_peaks(1000, random_state=2000),
)


@cache
def trained(solver, order, step_size, seed):
    return FractionalRegressor(
        optimizer=solver.replace("-", "").lower(),
        order=order,
        step_size=step_size,
        n_layers=n_layers,
        width=8,
        activation="tanh",
        alpha=1e-5,
        max_iter=iterations[solver],
        learning_rate_init=0.02,
        batch_size=100,
        n_members=1,
        early_stopping=False,
        dtype="float64",
        random_state=seed,
    ).fit(*make_peaks(300, random_state=seed))


def log_errors(solver, order, step_size, points=test):
    """The logarithm of 1 − R², the unexplained variance, for each seed."""
    return np.log(
        [
            1 - trained(solver, order, step_size, seed).score(*points)
            for seed in seeds
        ]
    )


def factor(order, step_size):
    return step_size**order * gamma(2 - order)


def horizon(order, step_size):
    return (n_layers * step_size) ** order / gamma(1 + order)


def step_of_factor(order, c):
    return (c / gamma(2 - order)) ** (1 / order)


def step_of_horizon(order, reach):
    return (reach * gamma(1 + order)) ** (1 / order) / n_layers


tau = 0.2
steps = {
    1.0: [
        step_of_horizon(1.0, horizon(0.5, tau)),
        tau,
        factor(0.5, tau),
        0.63,
        0.9,
    ],
    0.5: [
        step_of_factor(0.5, tau),
        tau,
        step_of_horizon(0.5, horizon(1.0, tau)),
        step_of_factor(0.5, 0.9),
        step_of_factor(0.5, 1.3),
    ],
}
figure, panels = plt.subplots(
    len(iterations),
    2,
    figsize=(10, 6.4),
    layout="constrained",
    sharey=True,
    sharex="col",
    squeeze=False,
)
for row, solver in zip(panels, iterations, strict=True):
    for order, color in orders.items():
        logs = np.array(
            [log_errors(solver, order, step) for step in steps[order]]
        )
        middle, low, high = np.exp([logs.mean(1), logs.min(1), logs.max(1)])
        for axes, scale in zip(row, (factor, horizon), strict=True):
            places = [scale(order, step) for step in steps[order]]
            axes.fill_between(
                places, low, high, color=color, alpha=0.15, linewidth=0
            )
            axes.loglog(
                places, middle, "o-", color=color, label=f"order {order:g}"
            )
            axes.plot(
                places[1],
                np.interp(tau, steps[order], middle),
                "o",
                color=color,
                ms=13,
                fillstyle="none",
            )
    row[0].set_ylabel(f"{solver}\nunexplained variance 1 − R²")
panels[0, 1].legend(frameon=False)
panels[-1, 0].set_xlabel(
    r"factor of a layer, $c = \tau^\gamma\,\Gamma(2-\gamma)$"
)
panels[-1, 1].set_xlabel(r"horizon, $(N\tau)^\gamma\,/\,\Gamma(1+\gamma)$")
panels[-1, 0].set_xticks(
    [0.2, 0.4, 0.8, 1.2], ["0.2", "0.4", "0.8", "1.2"], minor=False
)
panels[-1, 1].set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"], minor=False)
for axes in panels.flat:
    axes.set_yticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
    axes.minorticks_off()
    axes.grid(alpha=0.25)
_ = figure.suptitle(
    f"Mean of {len(seeds)} seeds; bands from the best to the worst;"
    f" circles at τ = {tau:g}"
)

# %%
# The comparison, paired by seed
# ------------------------------
# How many times the error of order 1 does order 0.5 leave? Below 1 memory helps. Intervals are of 95 % (Student's t,
# over the seeds' logarithms); a network's own best step is the one with the smallest error on the held-out points.


def best(solver, order):
    return min(
        steps[order],
        key=lambda step: log_errors(solver, order, step, held_out).mean(),
    )


def ratio(solver, residual_step, memory_step):
    """The geometric mean over seeds, and its interval."""
    logs = log_errors(solver, 0.5, memory_step) - log_errors(
        solver, 1.0, residual_step
    )
    half = (
        student.ppf(0.975, len(logs) - 1)
        * logs.std(ddof=1)
        / np.sqrt(len(logs))
    )
    return np.exp(logs.mean() + np.array([0, -half, half]))


pairs = {
    f"equal step\nτ = {tau:g}": lambda solver: (tau, tau),
    f"equal factor\nc = {tau:g}": lambda solver: (tau, steps[0.5][0]),
    f"equal factor\nc = {factor(0.5, tau):.2g}": lambda solver: (
        steps[1.0][2],
        tau,
    ),
    f"equal horizon\n{horizon(0.5, tau):.3g}": lambda solver: (
        steps[1.0][0],
        tau,
    ),
    f"equal horizon\n{horizon(1.0, tau):.3g}": lambda solver: (
        tau,
        steps[0.5][2],
    ),
    "own best": lambda solver: (best(solver, 1.0), best(solver, 0.5)),
}
found = {}
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for solver, offset, marker, color in zip(
    iterations, (-0.1, 0.1), "os", (GREEN, PURPLE), strict=False
):
    found[solver] = np.array(
        [ratio(solver, *pair(solver)) for pair in pairs.values()]
    )
    middle, low, high = found[solver].T
    places = np.arange(len(pairs)) + offset
    axes.errorbar(
        places,
        middle,
        (middle - low, high - middle),
        fmt=marker,
        color=color,
        capsize=4,
        label=solver,
    )
    for name, numbers in zip(pairs, found[solver], strict=True):
        print(
            "{:7} {:21} {:5.2f}   [{:.2f}, {:.2f}]".format(
                solver, name.replace("\n", " "), *numbers
            )
        )
axes.axhline(1, color=GREY, linewidth=1)
axes.set(
    yscale="log",
    ylabel="error of order 0.5 / error of order 1",
    title="Above the line order 1 is better, below it 0.5",
)
axes.set_xticks(range(len(pairs)), pairs)
axes.set_yticks([0.2, 0.5, 1, 2, 4], ["0.2", "0.5", "1", "2", "4"])
axes.minorticks_off()
axes.set_ylim(0.14, 4.5)
_ = axes.legend(frameon=False)

# %%
# The answer is the step. With Adam, order 0.5 looks like the clear winner at one :math:`\tau`, and at equal horizons
# too, where its layers act more strongly; at equal factors it is no longer, and at the smaller factor the residual
# network wins, since it reaches further. Verdicts so opposite are about steps, not about memory: once each network has
# the step that suits it, their errors show no significant difference. L-BFGS, which finds the scale of its steps by
# itself, sees less of all this. What pays is to try a few steps, at any order:

figure, panels = plt.subplots(
    1, 4, figsize=(11, 3.2), layout="constrained", sharey=True
)
grid = np.stack(
    np.meshgrid(np.linspace(-3, 3, 80), np.linspace(-3, 3, 80)), axis=-1
).reshape(-1, 2)
x, y = grid.T
surface = (
    3 * (1 - x) ** 2 * np.exp(-(x**2) - (y + 1) ** 2)
    - 10 * (x / 5 - x**3 - y**5) * np.exp(-(x**2) - y**2)
    - np.exp(-((x + 1) ** 2) - y**2) / 3
)
shown = {"the function": surface}
for order, step in ((1.0, tau), (0.5, tau), (1.0, best("Adam", 1.0))):
    network = trained("Adam", order, step, 0)
    shown[
        f"order {order:g}, τ = {step:.2g}\nR² = {network.score(*test):.3f}"
    ] = network.predict(grid)
for axes, (title, heights) in zip(panels, shown.items(), strict=True):
    levels = np.arange(-7.5, 9, 0.5)
    image = axes.contourf(
        heights.reshape(80, 80),
        levels,
        extent=(-3, 3, -3, 3),
        cmap="cividis",
        extend="both",
    )
    axes.set(title=title, aspect="equal", xlabel="$x$")
panels[0].set_ylabel("$y$")
figure.colorbar(image, ax=panels, label="value", shrink=0.9)
plt.show()

# %%
# What this page claims, checked:

equal_step, smaller_factor, equal_horizon = (
    found["Adam"][0],
    found["Adam"][1],
    found["Adam"][3:5],
)
assert max(equal_step[0], *equal_horizon[:, 0]) < 0.9 < smaller_factor[0]
if not small:  # two seeds tell nothing about intervals
    assert smaller_factor[1] > 1
    assert max(equal_step[2], *equal_horizon[:, 2]) < 1
    assert all(ratios[5, 1] < 1 < ratios[5, 2] for ratios in found.values())
    assert np.ptp(np.log(found["L-BFGS"][:5, 0])) < np.ptp(
        np.log(found["Adam"][:5, 0])
    )
