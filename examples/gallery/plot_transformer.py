r"""
A transformer encoder with memory
=================================

A transformer's residual stream passes on the last state only. ``FractionalStack`` replaces it by a memory of all
states, each layer with an order of its own that is learnt. The layers are PyTorch's: ``WithoutSkip`` takes out their
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
depth, width = 6, 32
seeds, epochs, n_train = (range(1), 1, 200) if small else (range(3), 8, 800)
rows, labels = (torch.tensor(a) for a in load_digits(return_X_y=True))
rows = (rows.float() / 8 - 1).reshape(-1, 8, 8)


class Encoder(nn.Module):
    def __init__(self, **memory):
        super().__init__()
        self.embedding = nn.Linear(8, width)
        self.place = nn.Parameter(0.1 * torch.randn(8, width))
        layers = [
            nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        ]
        self.stack = FractionalStack([WithoutSkip(layer) for layer in layers], **memory)
        self.closing = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x):
        return self.closing(self.stack(self.embedding(x) + self.place).mean(1))


def step_for(order):
    return gamma(2 - order) ** (-1 / order)  # c = τ^γ Γ(2−γ) = 1


arms = {
    "residual stream": (BLUE, {"order": 1.0, "step_size": 1.0}),
    "order 0.5": (VERMILION, {"order": 0.5, "step_size": step_for(0.5)}),
    "learnt by layer": (GREEN, {"order": 0.9, "step_size": step_for(0.9), "learn_order": "layer"}),
}


def trained(memory, seed):
    """The network, its losses, and its errors on digits that it did not see."""
    torch.manual_seed(seed)
    shuffled = torch.randperm(len(rows))
    seen, unseen = shuffled[:n_train], shuffled[n_train:]
    network, rates = Encoder(**memory), (3e-3, 3e-2)
    groups = parameter_groups(network, weight_decay=0.01)  # none of it for learnt orders, the second group
    optimizer = torch.optim.AdamW([{**group, "lr": rate} for group, rate in zip(groups, rates, strict=True)])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, list(rates), total_steps=epochs * (n_train // 50))
    losses, orders = [], []
    for _ in range(epochs):
        for batch in seen[torch.randperm(n_train)].split(50):
            optimizer.zero_grad()
            loss = cross_entropy(network(rows[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            orders.append(network.stack.order.detach().expand(depth).numpy().copy())
    with torch.no_grad():
        error = (network(rows[unseen]).argmax(1) != labels[unseen]).double().mean().item()
    return network, np.array(losses), np.array(orders), error


found = {name: [trained(memory, seed) for seed in seeds] for name, (_, memory) in arms.items()}
errors = {name: np.array([run[3] for run in runs]) for name, runs in found.items()}
for name, each in errors.items():
    print(f"{name:16} errors {each.mean():.1%}, by seed {', '.join(f'{error:.1%}' for error in each)}")

# %%
# Loss, orders, and what a layer remembers
# ----------------------------------------
# On the left the loss while training, in the middle the six orders on their way, on the right what the learnt orders
# come to: the weight of each earlier state in the next one. A residual stream would have ones beside the diagonal and
# nothing else.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
for name, (colour, _) in arms.items():
    curves = np.array([run[1] for run in found[name]]).mean(0)
    smooth = np.convolve(curves, np.ones(4) / 4, "valid")
    left.semilogy(smooth, color=colour, label=name)
left.set(xlabel="training step", ylabel="loss, mean of the seeds")
left.legend(frameon=False)
paths = found["learnt by layer"][0][2]
for j in range(depth):
    middle.plot(paths[:, j], color=plt.cm.viridis(j / depth), label=f"layer {j + 1}")
middle.axhline(0.9, color=GREY, linestyle=":")
middle.set(xlabel="training step", ylabel="order", title="learnt orders, first seed")
middle.legend(frameon=False, fontsize="small", ncols=2)
network = found["learnt by layer"][0][0]
weights = memory_matrix(network.stack.order.detach(), depth).numpy()
image = right.imshow(np.where(np.tri(depth) > 0, weights, np.nan), cmap="cividis", vmin=0, vmax=1)
right.set(
    xlabel="earlier state",
    ylabel="layer",
    title="its weights",
    xticks=range(depth),
    yticks=range(depth),
    xticklabels=[f"$Y_{k}$" for k in range(depth)],
    yticklabels=range(1, depth + 1),
)
figure.colorbar(image, ax=right, shrink=0.8)
for axes in (left, middle):
    axes.grid(alpha=0.25)
plt.show()

# %%
# On a task this small nobody needs a memory: look at the printed errors, seed by seed, before believing in a
# difference. The orders leave their start by different amounts, and the first layers, which have little to remember,
# say least. How such streams compare in a language model, where it matters, is told on the page about transformers.
#
# What this page claims, checked:

learnt = np.array([run[2][-1] for run in found["learnt by layer"]])
assert ((learnt > 0) & (learnt < 1)).all()
assert np.abs(learnt - 0.9).max() > 1e-3
assert all(run[1][-4:].mean() < run[1][:4].mean() for runs in found.values() for run in runs)
