r"""
What does memory do to a pattern of spots?
==========================================

Two substances diffuse and react, and a single drop divides into spots. What happens when they diffuse and react with
memory? **The first spots come later, and each division takes longer**: with order :math:`\gamma < 1` the past holds the
pattern back.

The equations are Gray and Scott's [#]_, with a Caputo derivative of order :math:`\gamma` in place of the first one:

.. math::

   d_t^\gamma u &= 0.16\,\Delta u - u v^2 + 0.035\,(1 - u) \\
   d_t^\gamma v &= 0.08\,\Delta v + u v^2 - 0.1\,v

.. [#] P. Gray, S. K. Scott, "Autocatalytic reactions in the isothermal, continuous stirred tank reactor", 1984.
"""

# %%
# A stiff system of 8,192 unknowns
# --------------------------------
# A field of 64 x 64 cells with two substances is one tensor, and ``fdeint`` is called as for a single number. It finds
# where the Jacobian is zero by itself, and solves with sparse factors.

import os

import matplotlib.pyplot as plt
import torch

from fracdnn import fdeint

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
cells, end = (24, 200.0) if small else (64, 1600.0)
orders = (1.0, 0.8) if small else (1.0, 0.9, 0.8)
times = torch.linspace(0.0, end, 5, dtype=torch.float64)
diffusion = torch.tensor([0.16, 0.08], dtype=torch.float64).view(2, 1, 1)


def laplacian(field):
    """On a torus, with cells of length 1."""
    around = torch.nn.functional.pad(
        field[None], (1, 1, 1, 1), mode="circular"
    )[0]
    sides = (
        around[:, 2:, 1:-1]
        + around[:, :-2, 1:-1]
        + around[:, 1:-1, 2:]
        + around[:, 1:-1, :-2]
    )
    return sides - 4.0 * field


def gray_scott(t, field):
    u, v = field
    reaction = u * v**2
    return diffusion * laplacian(field) + torch.stack(
        [0.035 * (1.0 - u) - reaction, reaction - 0.1 * v]
    )


x = torch.arange(cells, dtype=torch.float64) - cells / 2
drop = torch.exp(-((x[:, None] - 1.0) ** 2 + 1.5 * (x + 2.0) ** 2) / 20.0)
start = torch.stack([1.0 - 0.5 * drop, 0.35 * drop])

with torch.no_grad():
    solutions = {
        order: fdeint(
            gray_scott, start, times, order=order, rtol=1e-3, info=True
        )
        for order in orders
    }
for order, solution in solutions.items():
    print(
        f"order {order}: {solution.n_accepted} panels,"
        f" {solution.n_evaluations} evaluations"
    )

# %%
# The pattern
# -----------
# Columns are times, rows are orders, colors the second substance. At order 1 the drop has divided twice by t = 1600, at
# orders 0.9 and 0.8 once, the later the smaller the order.

fig, axes = plt.subplots(
    len(orders),
    4,
    figsize=(9.0, 2.4 * len(orders)),
    squeeze=False,
    layout="constrained",
)
for row, (order, solution) in zip(axes, solutions.items(), strict=True):
    for ax, time, field in zip(
        row, times[1:], solution.states[1:], strict=True
    ):
        ax.imshow(
            field[1],
            vmin=0.0,
            vmax=0.4,
            cmap="viridis",
            interpolation="nearest",
        )
        ax.set(xticks=[], yticks=[])
        if order == orders[0]:
            ax.set_title(f"t = {time:.0f}")
    row[0].set_ylabel(f"order {order}")

# %%
# How much of the field is covered
# --------------------------------
# The share of cells in which v is above 0.1.

fig, ax = plt.subplots(figsize=(6.0, 3.2), layout="constrained")
for order, solution in solutions.items():
    ax.plot(
        times,
        (solution.states[:, 1] > 0.1).double().mean((1, 2)),
        "o-",
        label=f"order {order}",
    )
ax.set(xlabel="time", ylabel="share of the field", ylim=(0.0, None))
ax.legend(frameon=False)
plt.show()
