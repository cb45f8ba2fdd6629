r"""
How much does the order matter?
===============================

Which points of the plane lie where the function "peaks" is above 1? Networks of orders from 0.05 to 1 draw the border
of that level set. At order 1 a layer starts from where the last one ended; as the order falls, it starts more and
more from where the point came from, until at order 0 every layer moves the *input*: :math:`Y_j = Y_0 + c f(Y_{j-1})`.
What does a network lose on that way?
"""

# %%
# The slider, with training
# -------------------------
# All networks have 10 layers of width 6, the same first weights and the same factor :math:`c` by which a layer acts, so
# that only the memory differs; L-BFGS trains them on 300 points. Percentages are accuracies on 2,000 other points.

import os
from math import gamma

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap

from fracdnn.datasets import make_peaks
from fracdnn.nn import FractionalNetwork
from fracdnn.report.figures import BLUE, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
torch.set_default_dtype(torch.float64)
orders = (
    (0.05, 0.5, 1.0) if small else (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
)
seeds, iterations, factor = range(3 if small else 5), 50 if small else 120, 0.6


def drawn(n, seed):
    points, values = make_peaks(n, random_state=seed)
    return torch.tensor(points / 2), torch.tensor(values > 1).long()


test = drawn(2000, 1000)
grid = torch.cartesian_prod(
    torch.linspace(-1.5, 1.5, 90), torch.linspace(-1.5, 1.5, 90)
)


def network_of(order, seed=0):
    step_size = (factor / gamma(2 - order)) ** (1 / order)  # c = τ^γ Γ(2−γ)
    generator = torch.Generator().manual_seed(seed)
    return FractionalNetwork(
        2,
        2,
        n_layers=10,
        width=6,
        order=order,
        step_size=step_size,
        generator=generator,
    )


def trained(order, seed):
    network, (points, labels) = network_of(order, seed), drawn(300, seed)
    optimizer = torch.optim.LBFGS(
        network.parameters(),
        max_iter=iterations,
        line_search_fn="strong_wolfe",
    )

    def loss():
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(network(points), labels)
        decay = sum(p.square().sum() for p in network.parameters())
        value = value + 1e-4 * decay
        value.backward()
        return value

    optimizer.step(loss)
    return network


@torch.no_grad()
def accuracy(network):
    return (network(test[0]).argmax(1) == test[1]).double().mean().item()


@torch.no_grad()
def show(axes, network, title):
    chance = network(grid).softmax(1)[:, 1].reshape(90, 90).T
    axes.contourf(
        chance,
        20,
        extent=(-1.5, 1.5, -1.5, 1.5),
        cmap="cividis",
        vmin=0,
        vmax=1,
    )
    axes.contour(
        chance,
        [0.5],
        extent=(-1.5, 1.5, -1.5, 1.5),
        colors="white",
        linewidths=1.5,
    )
    axes.set(title=title, xticks=[], yticks=[], aspect="equal")


networks = {order: [trained(order, seed) for seed in seeds] for order in orders}
figure, panels = plt.subplots(
    2,
    len(orders) // 2 + len(orders) % 2,
    figsize=(10, 5.4),
    layout="constrained",
)
points, labels = drawn(300, 0)
for axes, order in zip(panels.flat, orders, strict=False):
    show(
        axes,
        networks[order][0],
        f"order {order:g}: {accuracy(networks[order][0]):.1%}",
    )
    axes.scatter(
        *points.T,
        c=labels,
        s=7,
        cmap=ListedColormap([BLUE, VERMILION]),
        edgecolors="white",
        linewidths=0.3,
    )

# %%
# The slider, without training
# ----------------------------
# The networks that learned at order 0.5 keep their weights while the slider moves. The border deforms smoothly, which
# is why an order can be learned along with the weights, but not gently: weights belong to the order that they were
# trained at, and a layer that starts from elsewhere does something else.


def at_order(order, network):
    moved = network_of(order)
    for to, of in zip(moved.parameters(), network.parameters(), strict=True):
        to.data.copy_(of)
    return moved


figure, panels = plt.subplots(
    1, len(orders[::-2]), figsize=(10, 2.9), layout="constrained"
)
for axes, order in zip(panels, orders[::-2][::-1], strict=True):
    moved = at_order(order, networks[0.5][0])
    show(axes, moved, f"moved to {order:g}: {accuracy(moved):.1%}")

# %%
# Accuracy over the order
# -----------------------
# Bands reach from the worst to the best of the seeds. Over most of the slider the order hardly matters, once the
# network is trained at it: memory is neither needed here nor in the way. Only toward order 0 the networks fall
# behind, where layers no longer build on each other and depth is lost; in the first picture, the border becomes that
# of a shallow network.

figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
again = np.array(
    [[accuracy(network) for network in networks[order]] for order in orders]
)
slid = np.array(
    [
        [accuracy(at_order(order, network)) for network in networks[0.5]]
        for order in orders
    ]
)
for found, color, label in (
    (again, BLUE, "trained at each order"),
    (slid, VERMILION, "trained at 0.5, then moved"),
):
    axes.fill_between(
        orders, found.min(1), found.max(1), color=color, alpha=0.15, linewidth=0
    )
    axes.plot(orders, found.mean(1), "o-", color=color, label=label)
axes.set(xlabel="order $\\gamma$", ylabel="accuracy on 2,000 other points")
axes.yaxis.set_major_formatter("{x:.0%}")
axes.legend(frameon=False)
axes.grid(alpha=0.25)
plt.show()
for order, trained_there, moved_there in zip(orders, again, slid, strict=True):
    print(
        f"order {order:4g}: trained {trained_there.mean():.1%},"
        f" moved {moved_there.mean():.1%}"
    )

# %%
# What this page claims, checked:

assert again[orders.index(0.5)].mean() > again[0].mean()
assert again[-1].mean() > again[0].mean()
assert slid[-1].mean() < again[-1].mean() - 0.05
