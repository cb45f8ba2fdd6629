r"""
Convolutions with memory, on digits
===================================

Any modules that keep the shape of a state can be layers of a ``FractionalStack``: here eight convolutions on small
images of handwritten digits. The stack is the skip connection, with a memory of all states before. Does the memory
help, and which order does a network choose, layer by layer, when it may?
"""

# %%
# The network
# -----------
# A convolution opens 12 channels, the stack transforms them, and a linear map of their means and maxima names the
# digit. Only the order differs: 1 is a residual network, 0.5 has memory, and "learnt" starts at 0.7 in each layer,
# with the step that makes a layer act as strongly as in the others.

import os
from math import gamma

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from fracdnn.nn import FractionalStack, parameter_groups
from fracdnn.report.figures import BLUE, GREEN, GREY, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
depth, channels, factor = 8, 12, 0.5
seeds, epochs, n_train = (range(2), 1, 200) if small else (range(3), 7, 600)
images, labels = (torch.tensor(a) for a in load_digits(return_X_y=True))
images = (images.float() / 8 - 1).reshape(-1, 1, 8, 8)


def step_for(order):
    return (factor / gamma(2 - order)) ** (1 / order)


class Convolutions(nn.Module):
    def __init__(self, **memory):
        super().__init__()
        self.opening = nn.Conv2d(1, channels, 3, padding=1)
        layers = [
            nn.Sequential(nn.GroupNorm(3, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))
            for _ in range(depth)
        ]
        self.stack = FractionalStack(layers, **memory)
        self.closing = nn.Linear(2 * channels, 10)

    def forward(self, x):
        y = self.stack(self.opening(x))
        return self.closing(torch.cat([y.mean((2, 3)), y.amax((2, 3))], dim=1))


arms = {
    "order 1": (BLUE, {"order": 1.0, "step_size": step_for(1.0)}),
    "order 0.5": (VERMILION, {"order": 0.5, "step_size": step_for(0.5)}),
    "learnt by layer": (GREEN, {"order": 0.7, "step_size": step_for(0.7), "learn_order": "layer"}),
}


def trained(memory, seed):
    """The network, and the number of errors among the digits that it was not trained on."""
    torch.manual_seed(seed)  # the same split, batches and first weights for every arm
    shuffled = torch.randperm(len(images))
    seen, unseen = shuffled[:n_train], shuffled[n_train:]
    network, rates = Convolutions(**memory), (1e-2, 5e-2)
    groups = parameter_groups(network, weight_decay=0.0)  # learnt orders are the second
    optimizer = torch.optim.Adam([{**group, "lr": rate} for group, rate in zip(groups, rates, strict=True)])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, list(rates), total_steps=epochs * (n_train // 50))
    for _ in range(epochs):
        for batch in seen[torch.randperm(n_train)].split(50):
            optimizer.zero_grad()
            cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return network, (network(images[unseen]).argmax(1) != labels[unseen]).double().mean().item()


found = {name: [trained(memory, seed) for seed in seeds] for name, (_, memory) in arms.items()}
errors = {name: np.array([error for _, error in runs]) for name, runs in found.items()}
for name in arms:
    print(f"{name:16} errors {errors[name].mean():.1%}, by seed {', '.join(f'{error:.1%}' for error in errors[name])}")
for name in ("order 0.5", "learnt by layer"):
    change = errors[name] - errors["order 1"]
    half = student.ppf(0.975, len(change) - 1) * change.std(ddof=1) / np.sqrt(len(change))
    print(f"{name} against order 1: {change.mean():+.1%} ± {half:.1%} (95 %, paired by seed)")

# %%
# A digit on its way through the layers
# -------------------------------------
# One channel of the state, from the opening (left) to the last layer: with order 0.5 the digit stays visible for
# longer, since every layer also looks back at the first state.

digit = images[12:13]
figure, panels = plt.subplots(3, depth + 1, figsize=(10, 3.7), layout="constrained")
for row, name in zip(panels, arms, strict=True):
    network = found[name][0][0]
    with torch.no_grad():
        states = network.stack(network.opening(digit), trajectory=True)[:, 0]
    channel = states[-1].std((1, 2)).argmax()
    for j, (axes, state) in enumerate(zip(row, states[:, channel], strict=True)):
        axes.imshow(state, cmap="cividis")
        axes.set(xticks=[], yticks=[], title=f"$Y_{j}$" if row is panels[0] else "")
    row[0].set_ylabel(name.replace(" by", "\nby"))

# %%
# The orders that were learnt
# ---------------------------
# They moved little from where they started, and not alike for all seeds: the loss hardly depends on them.

figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
learnt = np.array([network.stack.order.detach().numpy() for network, _ in found["learnt by layer"]])
for orders in learnt:
    axes.plot(range(1, depth + 1), orders, "o", color=GREEN, alpha=0.5)
axes.plot(range(1, depth + 1), learnt.mean(0), color=GREEN, label="mean of the seeds")
axes.axhline(0.7, color=GREY, linestyle=":", label="start")
axes.set(xlabel="layer", ylabel="learnt order", ylim=(0, 1), title="A point for each seed")
axes.legend(frameon=False)
axes.grid(alpha=0.25)
plt.show()
print("mean orders by layer:", ", ".join(f"{order:.2f}" for order in learnt.mean(0)))

# %%
# What this page claims, checked:

assert all(error.max() < (0.9 if small else 0.15) for error in errors.values())
assert np.abs(learnt - 0.7).max() > 1e-3
assert ((learnt > 0) & (learnt < 1)).all()
