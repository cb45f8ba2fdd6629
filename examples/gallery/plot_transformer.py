r"""
Which orders does a transformer learn?
======================================

A transformer's residual stream passes on the last state only. ``FractionalStack`` replaces it by a memory of all
states, each layer with an order of its own that is learned. The layers are PyTorch's: ``WithoutSkip`` takes out their
own skip connection, since the stack is one.
"""

# %%
# Digits as sentences
# -------------------
# A digit of 8 × 8 pixels is read as a sentence of eight words, one row each; the encoder has six layers of width 32.
# The residual stream is order 1 and step 1. The other orders have the step at which a layer acts as strongly.

import os
from math import gamma

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from fracdnn.caputo import memory_matrix
from fracdnn.nn import FractionalStack, WithoutSkip, parameter_groups
from fracdnn.report.figures import BLUE, GREEN, GREY, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
depth, width, start = 3 if small else 6, 32, 0.7
seeds, epochs, n_train, batch_size = (
    (range(1), 6, 300, 25) if small else (range(3), 7, 600, 25)
)
rows, labels = (
    torch.tensor(a[: 550 if small else None])
    for a in load_digits(return_X_y=True)
)
rows = (rows.float() / 8 - 1).reshape(-1, 8, 8)


class Encoder(nn.Module):
    def __init__(self, **memory):
        super().__init__()
        self.embedding = nn.Linear(8, width)
        self.place = nn.Parameter(0.1 * torch.randn(8, width))
        layers = [
            nn.TransformerEncoderLayer(
                width, 4, 64, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        ]
        self.stack = FractionalStack(
            [WithoutSkip(layer) for layer in layers], **memory
        )
        self.closing = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x):
        return self.closing(self.stack(self.embedding(x) + self.place).mean(1))


def step_for(order):
    return gamma(2 - order) ** (-1 / order)  # c = τ^γ Γ(2−γ) = 1


arms = {
    "residual stream": (BLUE, {"order": 1.0, "step_size": 1.0}),
    "order 0.5": (VERMILION, {"order": 0.5, "step_size": step_for(0.5)}),
    "learned by layer": (
        GREEN,
        {"order": start, "step_size": step_for(start), "learn_order": "layer"},
    ),
}


def trained(memory, seed):
    """Each layer's order, the losses, and the error rate on held-out digits."""
    torch.manual_seed(seed)
    shuffled = torch.randperm(len(rows))
    seen, unseen = shuffled[:n_train], shuffled[n_train:]
    network, rates = Encoder(**memory), (3e-3, 1e-1)
    groups = parameter_groups(
        network, weight_decay=0.01
    )  # none of it for learned orders, the second group
    optimizer = torch.optim.AdamW(
        [
            {**group, "lr": rate}
            for group, rate in zip(groups, rates, strict=True)
        ]
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, list(rates), total_steps=epochs * n_train // batch_size
    )
    losses = []
    for _ in range(epochs):
        for batch in seen[torch.randperm(n_train)].split(batch_size):
            optimizer.zero_grad()
            loss = cross_entropy(network(rows[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    with torch.no_grad():
        error = (
            (network(rows[unseen]).argmax(1) != labels[unseen])
            .double()
            .mean()
            .item()
        )
    return network.stack.order.detach().numpy(), np.array(losses), error


found = {
    name: [trained(memory, seed) for seed in seeds]
    for name, (_, memory) in arms.items()
}
errors = {
    name: np.array([run[2] for run in runs]) for name, runs in found.items()
}
for name, each in errors.items():
    print(
        f"{name:16} errors {each.mean():.1%},"
        f" by seed {', '.join(f'{error:.1%}' for error in each)}"
    )

# %%
# Loss, orders, and what a layer remembers
# ----------------------------------------
# On the left the loss while training, in the middle the orders that were learned, on the right what their means come
# to: the weight of each earlier state in the next one. A residual stream would have ones on the diagonal and
# nothing else.

figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(11, 3.7), layout="constrained"
)
for name, (color, _) in arms.items():
    curve = np.array([run[1] for run in found[name]]).mean(0)
    left.semilogy(
        np.convolve(curve, np.ones(8) / 8, "valid"), color=color, label=name
    )
left.set(
    xlabel="training step", ylabel="loss, mean of the seeds and of 8 steps"
)
left.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
left.minorticks_off()
left.legend(frameon=False)
learned = np.array([run[0] for run in found["learned by layer"]])
middle.plot(range(1, depth + 1), learned.T, "o", color=GREEN, alpha=0.5)
middle.plot(
    range(1, depth + 1), learned.mean(0), color=GREEN, label="mean of the seeds"
)
middle.axhline(start, color=GREY, linestyle=":", label="start")
middle.set(
    xlabel="layer",
    ylabel="learned order",
    ylim=(0.2, 1),
    title="Learned orders, a point for each seed",
)
middle.legend(frameon=False, loc="lower right")
weights = memory_matrix(torch.tensor(learned.mean(0)), depth).numpy()
right.imshow(
    np.where(np.tri(depth) > 0, weights, np.nan), cmap="Blues", vmin=0, vmax=1.2
)
for j, k in zip(*np.tril_indices(depth), strict=True):
    color = "white" if weights[j, k] > 0.6 else "black"
    right.annotate(
        f"{weights[j, k]:.2f}",
        (k, j),
        ha="center",
        va="center",
        fontsize=8,
        color=color,
    )
right.set(
    xlabel="earlier state",
    ylabel="layer",
    title="Weights at the mean orders",
    xticks=range(depth),
    yticks=range(depth),
    xticklabels=[f"$Y_{k}$" for k in range(depth)],
    yticklabels=range(1, depth + 1),
)
for axes in (left, middle):
    axes.grid(alpha=0.25)
plt.show()
print(
    "mean orders by layer:",
    ", ".join(f"{order:.2f}" for order in learned.mean(0)),
)

# %%
# On a task this small nobody needs a memory: the losses run along each other, and the errors differ less between the
# arms than between the seeds. The orders leave their start, most of them upward, that is toward the residual
# stream, but seeds disagree about where to, so do not read meaning into a single run's orders. How such streams
# compare in a language model, where it matters, is told on the page about transformers.
#
# What this page claims, checked:

assert ((learned > 0) & (learned < 1)).all()
assert np.abs(learned - start).max() > 0.05
assert all(error.max() < (0.5 if small else 0.12) for error in errors.values())
assert all(
    run[1][-8:].mean() < 0.5 * run[1][:8].mean()
    for runs in found.values()
    for run in runs
)
means = np.array([each.mean() for each in errors.values()])
assert small or np.ptp(means) < max(np.ptp(each) for each in errors.values())
