r"""
Does memory help convolutions on digits?
========================================

Any modules that keep the shape of a state can be layers of a ``FractionalStack``: here eight convolutions on small
images of handwritten digits. The stack is the skip connection, with a memory of all states before. Does the memory
help, and which order does a network choose, layer by layer, when it may?
"""

# %%
# The network
# -----------
# A convolution opens 12 channels, the stack transforms them, and a linear map of their means and maxima names the
# digit. Only the order differs: 1 is a residual network, 0.5 has memory, and "learned" starts at 0.7 in each layer,
# with the step that makes a layer act as strongly as in the others.

import os
from math import gamma

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy

from fracdnn.nn import FractionalStack, parameter_groups
from fracdnn.report.figures import BLUE, GREEN, GREY, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
depth, channels, factor = 4 if small else 8, 12, 0.5
seeds, epochs, n_train, batch_size = (
    (range(2), 5, 300, 25) if small else (range(3), 6, 600, 25)
)
images, labels = (
    torch.tensor(a[: 550 if small else None])
    for a in load_digits(return_X_y=True)
)
images = (images.float() / 8 - 1).reshape(-1, 1, 8, 8)


def step_for(order):
    return (factor / gamma(2 - order)) ** (1 / order)


class Convolutions(nn.Module):
    def __init__(self, **memory):
        super().__init__()
        self.opening = nn.Conv2d(1, channels, 3, padding=1)
        layers = [
            nn.Sequential(
                nn.GroupNorm(3, channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
            )
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
    "learned by layer": (
        GREEN,
        {"order": 0.7, "step_size": step_for(0.7), "learn_order": "layer"},
    ),
}


def trained(memory, seed):
    """The network, and its number of errors on held-out digits."""
    torch.manual_seed(
        seed
    )  # the same split, batches and first weights for every arm
    shuffled = torch.randperm(len(images))
    seen, unseen = shuffled[:n_train], shuffled[n_train:]
    network, rates = Convolutions(**memory), (2e-2, 5e-2)
    groups = parameter_groups(
        network, weight_decay=0.0
    )  # learned orders are the second
    optimizer = torch.optim.Adam(
        [
            {**group, "lr": rate}
            for group, rate in zip(groups, rates, strict=True)
        ]
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, list(rates), total_steps=epochs * n_train // batch_size
    )
    for _ in range(epochs):
        for batch in seen[torch.randperm(n_train)].split(batch_size):
            optimizer.zero_grad()
            cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return network, (
            network(images[unseen]).argmax(1) != labels[unseen]
        ).double().mean().item()


found = {
    name: [trained(memory, seed) for seed in seeds]
    for name, (_, memory) in arms.items()
}
errors = {
    name: np.array([error for _, error in runs]) for name, runs in found.items()
}
for name in arms:
    print(
        f"{name:16} errors {errors[name].mean():.1%},"
        f" by seed {', '.join(f'{error:.1%}' for error in errors[name])}"
    )
for name in ("order 0.5", "learned by layer"):
    change = errors[name] - errors["order 1"]
    half = (
        student.ppf(0.975, len(change) - 1)
        * change.std(ddof=1)
        / np.sqrt(len(change))
    )
    print(
        f"{name} against order 1: {change.mean():+.1%} ± {half:.1%}"
        " (95 %, paired by seed)"
    )

# %%
# A digit on its way through the layers
# -------------------------------------
# On the left the image, then one channel of the state, from the opening :math:`Y_0` to the last layer; blue is
# negative, red positive, each on a scale of its own.

digit = images[12:13]
figure, panels = plt.subplots(
    3, depth + 2, figsize=(10, 3.4), layout="constrained"
)
for i, (row, name) in enumerate(zip(panels, arms, strict=True)):
    network = found[name][0][0]
    with torch.no_grad():
        states = network.stack(network.opening(digit), trajectory=True)[:, 0]
    channel = states[-1].std((1, 2)).argmax()
    row[0].imshow(digit[0, 0], cmap="gray")
    for axes, state in zip(row[1:], states[:, channel], strict=True):
        limit = state.abs().max()
        axes.imshow(state, cmap="RdBu_r", vmin=-limit, vmax=limit)
    row[0].set_ylabel(name.replace(" by", "\nby"))
    for j, axes in enumerate(row):
        axes.set(
            xticks=[],
            yticks=[],
            title="" if i else f"$Y_{j - 1}$" if j else "image",
        )

# %%
# What is left of the first state, and the orders that were learned
# -----------------------------------------------------------------
# On the left the cosine between a state and the first one, over all channels and pixels, mean of 200 digits: it says
# how much of the start a state still is. On the right the learned orders.


@torch.no_grad()
def likeness(network):
    states = network.stack(
        network.opening(images[-200:]), trajectory=True
    ).flatten(2)
    return cosine_similarity(states, states[:1], dim=-1).mean(1).numpy()


alike = {
    name: np.array([likeness(network) for network, _ in runs])
    for name, runs in found.items()
}
learned = np.array(
    [
        network.stack.order.detach().numpy()
        for network, _ in found["learned by layer"]
    ]
)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.6), layout="constrained"
)
for name, (color, _) in arms.items():
    left.plot(range(depth + 1), alike[name].mean(0), color=color, label=name)
    left.plot(
        range(depth + 1),
        alike[name].T,
        "o",
        color=color,
        markersize=3,
        alpha=0.5,
    )
left.set(
    xlabel="state $Y_j$ after layer $j$",
    ylabel="cosine with $Y_0$",
    title="Points are seeds, lines their mean",
)
left.legend(frameon=False)
right.plot(
    range(1, depth + 1), learned.T, "o", color=GREEN, markersize=4, alpha=0.5
)
right.plot(
    range(1, depth + 1),
    learned.mean(0),
    color=GREEN,
    label="learned, mean of the seeds",
)
right.axhline(0.7, color=GREY, linestyle=":", label="start")
right.set(xlabel="layer", ylabel="order", ylim=(0.4, 1), title="Learned orders")
right.legend(frameon=False, loc="lower right")
for axes in (left, right):
    axes.grid(alpha=0.25)
plt.show()
print(
    "mean orders by layer:",
    ", ".join(f"{order:.2f}" for order in learned.mean(0)),
)
print(
    "cosine of the last state with the first:",
    ", ".join(f"{name} {c.mean(0)[-1]:.2f}" for name, c in alike.items()),
)

# %%
# Memory changes how these networks work, not how well. With order 0.5 the last state is more like the first one than
# in the residual network, since every layer also looks back at it. The learned orders rise along the depth: with them
# the first layers keep their memory, and the last ones nearly give it up. But the errors of the three are the same
# within what three seeds can tell: eight layers on small digits do not need help from a memory.
#
# What this page claims, checked:

assert all(error.max() < (0.4 if small else 0.1) for error in errors.values())
if not small:
    change = errors["order 0.5"] - errors["order 1"]
    assert abs(change.mean()) < student.ppf(
        0.975, len(change) - 1
    ) * change.std(ddof=1) / np.sqrt(len(change))
assert alike["order 0.5"].mean(0)[-1] > alike["order 1"].mean(0)[-1]
assert learned.mean(0)[-1] > learned.mean(0)[0] + 0.05
