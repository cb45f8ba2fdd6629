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
from fracdnn.report.figures import BLUE, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
torch.set_default_dtype(torch.float64)
order, final_time, width = 0.7, 8.0, 8
depths, seeds, n_samples = ((4, 8, 16), range(2), 300) if small else ((4, 8, 16, 32), range(6), 1000)
plans = {
    "from the start": [(depths[-1], 40 if small else 120)],
    "coarse to fine": [(depth, 15 if small else 40) for depth in depths],
}


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


def minimise(network, samples, iterations, losses, work, clock):
    """L-BFGS, which notes at every evaluation the loss, the layers computed so far, and the processor's time."""
    points, values = samples
    optimizer = LBFGS(network.parameters(), max_iter=iterations)

    def loss():
        optimizer.zero_grad()
        value = (network(points) - values).square().mean() / values.var()
        value.backward()
        losses.append(value.item())
        work.append((work[-1] if work else 0) + len(network.K))
        clock.append(time.process_time())
        return value

    optimizer.step(loss)
    return network


minimise(network_of(depths[0], 0), drawn(n_samples, 0), 2, [], [], [])  # what is compiled is compiled now
runs, networks, jumps = {name: [] for name in plans}, {}, []
for seed in seeds:
    samples = drawn(n_samples, seed)
    for name, plan in plans.items():
        losses, work, clock, network = [], [], [time.process_time()], None
        for depth, iterations in plan:
            before = min(losses, default=None)
            network = network_of(depth, seed) if network is None else prolonged(network, depth)
            minimise(network, samples, iterations, losses, work, clock)
            if before is not None:
                at = len(losses) - sum(1 for w in work if w > reached)
                jumps.append(losses[at] / before)
            reached = work[-1]
            networks[name, seed, depth] = network
        runs[name].append((np.minimum.accumulate(losses), np.array(work) / depths[-1], np.diff(clock).cumsum()))

# %%
# What it saves
# -------------
# Work is counted in evaluations of the deep network, to which one of a network half as deep counts half. Time is that of
# the processor, and given as a ratio only; shallow networks save less of it than of work, since calling them costs too.

figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for (name, found), colour in zip(runs.items(), (BLUE, VERMILION), strict=True):
    for i, (best, work, _) in enumerate(found):
        axes.semilogy(work, best, color=colour, alpha=0.8, label=name if i == 0 else None)
axes.set(
    xlabel=f"work, in evaluations of {depths[-1]} layers",
    ylabel="unexplained variance, best so far",
    title=f"Peaks, order {order:g}, a line for each seed",
)
axes.grid(alpha=0.25, which="both")
axes.legend(frameon=False)

test = drawn(1000, 1000)
savings, errors = [], {name: [] for name in runs}
for deep, refined in zip(*runs.values(), strict=True):
    target = max(deep[0][-1], refined[0][-1])  # what both reach
    first, second = (np.argmax(best <= target) for best, *_ in (deep, refined))
    savings.append([deep[1][first] / refined[1][second], deep[2][first] / refined[2][second]])
for name in runs:
    for seed in seeds:
        with torch.no_grad():
            left = (networks[name, seed, depths[-1]](test[0]) - test[1]).square().mean() / test[1].var()
        errors[name].append(left.item())
savings = np.array(savings)
print("from the start / coarse to fine, until the loss that both reach, by seed:")
for name, ratios in zip(("work", "time"), savings.T, strict=True):
    print(f"  {name}: {', '.join(f'{r:.1f}' for r in ratios)}; median {np.median(ratios):.1f}")
print(f"loss after a prolongation / loss before: median {np.median(jumps):.2f}, at most {max(jumps):.2f}")
print("unexplained variance on other points, by seed:")
for name, each in errors.items():
    print(f"  {name}: {', '.join(f'{e:.3f}' for e in each)}; median {np.median(each):.3f}")

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
plt.show()
