r"""
Coarse to fine in depth
=======================

Layers are time steps of :math:`d_t^\gamma Y = \sigma(K(t) Y + b(t))`, so a deep network can be had from a shallow
one: train few long steps first, then read :math:`K(t)` and :math:`b(t)` off at twice as many times with half the
step, and go on. The early iterations, which only find the rough shape, are then cheap. How much does it save, and
does it end as well?
"""

# %%
# Prolongation
# ------------
# Between the times of the coarse layers, :math:`K` and :math:`b` are linear.

import os
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from fracdnn.datasets import make_peaks
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import LBFGS
from fracdnn.report.figures import BLUE, GREY, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
torch.set_default_dtype(torch.float64)
order, final_time, width = 0.7, 8.0, 6
depths, iterations = ((2, 4, 8), 12) if small else ((4, 8, 16, 32), 60)
seeds = range(1 if small else 4)


def drawn(n, seed):
    points, values = make_peaks(n, random_state=seed)
    return torch.tensor(points / 2), torch.tensor(values / 2).unsqueeze(1)


def network_of(n_layers, seed):
    generator = torch.Generator().manual_seed(seed)
    step_size = final_time / n_layers
    return FractionalNetwork(
        2, 1, n_layers=n_layers, width=width, order=order, step_size=step_size, generator=generator
    )


@torch.no_grad()
def prolonged(coarse, n_layers):
    """The network with more layers whose K(t) and b(t) are those of the coarse one, linear between its layers."""
    fine = network_of(n_layers, 0)
    for name, parameter in fine.named_parameters():
        given = dict(coarse.named_parameters())[name]
        if name in ("K", "b"):
            n = len(given)
            place = (torch.arange(n_layers) * n / n_layers).clamp(max=n - 1)
            low, share = place.floor().long(), place.frac()
            mixed = torch.lerp(given[low].flatten(1), given[(low + 1).clamp(max=n - 1)].flatten(1), share.unsqueeze(1))
            given = mixed.reshape(parameter.shape)
        parameter.copy_(given)
    return fine


def minimise(network, samples, iterations, losses, cost):
    """L-BFGS; after every evaluation, the layers computed so far and the least loss."""
    points, values = samples
    optimizer = LBFGS(network.parameters(), max_iter=iterations)

    def loss():
        optimizer.zero_grad()
        value = (network(points) - values).square().mean() / values.var()
        value.backward()
        cost.append((cost[-1] if cost else 0) + len(network.K))
        losses.append(value.item())
        return value

    optimizer.step(loss)


runs, seconds = {"from the start": [], "coarse to fine": []}, {"from the start": [], "coarse to fine": []}
networks = {}
for seed in seeds:
    samples = drawn(300, seed)
    for name, plan in {
        "from the start": [(depths[-1], iterations)],
        "coarse to fine": [(depth, iterations) for depth in depths[:-1]] + [(depths[-1], iterations // 3)],
    }.items():
        losses, cost, network, began = [], [], None, time.process_time()
        for depth, share in plan:
            network = network_of(depth, seed) if network is None else prolonged(network, depth)
            minimise(network, samples, share, losses, cost)
            networks[name, seed, depth] = network
        seconds[name].append(time.process_time() - began)
        runs[name].append((np.array(cost) / depths[-1], np.minimum.accumulate(losses)))

# %%
# What it saves
# -------------
# Work is counted in evaluations of the deep network, to which one of a network half as deep counts half. After each
# prolongation the loss goes on about where it was: the deep network does what the shallow one did.

figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for (name, found), colour in zip(runs.items(), (BLUE, VERMILION), strict=True):
    for i, (cost, best) in enumerate(found):
        axes.semilogy(cost, best, color=colour, alpha=0.8, label=name if i == 0 else None)
axes.set(
    xlabel=f"work, in evaluations of {depths[-1]} layers",
    ylabel="unexplained variance, best so far",
    title=f"Peaks, order {order:g}, a line for each seed",
)
axes.grid(alpha=0.25, which="both")
axes.legend(frameon=False)

savings, errors = [], {name: [] for name in runs}
for i, seed in enumerate(seeds):
    (deep_cost, deep_best), (cost, best) = runs["from the start"][i], runs["coarse to fine"][i]
    target = max(deep_best[-1], best[-1])  # what both reach
    savings.append(deep_cost[np.argmax(deep_best <= target)] / cost[np.argmax(best <= target)])
    test = drawn(1000, 1000)
    for name in runs:
        with torch.no_grad():
            left = (networks[name, seed, depths[-1]](test[0]) - test[1]).square().mean() / test[1].var()
        errors[name].append(left.item())
time_ratio = np.array(seconds["from the start"]) / np.array(seconds["coarse to fine"])
print("work from the start / work coarse to fine, to the loss that both reach:", *(f"{s:.2f}" for s in savings))
print("time of the whole training, the same ratio:", *(f"{r:.2f}" for r in time_ratio))
for name, each in errors.items():
    print(f"unexplained variance on other points, {name}: {', '.join(f'{e:.3f}' for e in each)}")

# %%
# K(t) as it is refined
# ---------------------
# Four entries of :math:`K` over time, at every depth: the fine curves keep the shape of the coarse ones.

figure, panels = plt.subplots(1, 4, figsize=(11, 3), layout="constrained", sharey=True)
for axes, (row, column) in zip(panels, ((0, 0), (1, 2), (3, 1), (4, 5)), strict=True):
    for depth, colour in zip(depths, plt.cm.viridis(np.linspace(0, 0.85, len(depths))), strict=True):
        values = networks["coarse to fine", 0, depth].K.detach()[:, row, column]
        axes.plot(
            np.arange(depth) * final_time / depth, values, "o-", color=colour, markersize=3, label=f"{depth} layers"
        )
    axes.set(xlabel="time $t$", title=f"$K_{{{row + 1}{column + 1}}}(t)$")
    axes.grid(alpha=0.25)
panels[0].legend(frameon=False, fontsize="small")
axes.axhline(0, color=GREY, linewidth=0)
plt.show()
