"""`python docs/pictures.py [FOLDER]`: the pictures of docs/explanation, computed by the library they explain."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fracdnn import fdeint
from fracdnn.caputo import compress_differences, l1_differences, memory_matrix, memory_weights
from fracdnn.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure, save_figure
from reproduction.printed_adjoint import network_with

ORDERS = {0.1: VERMILION, 0.5: ORANGE, 0.9: GREEN, 1.0: BLUE}


def weights() -> Any:
    """What layer 12 takes of the layers before it."""
    figure = new_figure(9, 2.7)
    panels = figure.subplots(1, 4, sharey=True)
    for axes, (order, color) in zip(panels, ORDERS.items(), strict=True):
        axes.bar(range(12), memory_weights(order, 12).numpy(), color=color)
        axes.set(title=f"order {order:g}", xlabel="state $Y_k$", xticks=(0, 5, 11))
    panels[0].set_ylabel("weight in $Y_{12}$")
    return figure


def matrices() -> Any:
    """The weights of all layers, on a logarithmic scale."""
    from matplotlib.colors import LogNorm

    figure = new_figure(9, 3)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, order in zip(panels, (0.1, 0.5, 0.9), strict=True):
        shown = memory_matrix(order, 30).numpy()
        image = axes.imshow(np.where(shown > 0, shown, np.nan), norm=LogNorm(1e-4, 1), cmap="viridis")
        axes.set(title=f"order {order:g}", xlabel="state $Y_k$")
    panels[0].set_ylabel("layer $j$")
    figure.colorbar(image, ax=panels, label="weight $H_{jk}$")
    return figure


def push() -> Any:
    """A push during the first twenty layers, then none: what a state with memory does."""
    stops, t = 1.0, torch.linspace(0, 5, 251, dtype=torch.float64)
    figure = new_figure(9, 3.2)
    axes = figure.subplots()
    axes.axvspan(0, stops, color=SKY, alpha=0.25, linewidth=0)
    axes.text(stops / 2, 0.06, "f = 1", ha="center")
    axes.text(3, 0.06, "f = 0", ha="center")
    for order, color in ORDERS.items():
        state = fdeint(lambda t, u: (t < stops) + 0 * u, 0.0, t, order=order, options={"breakpoints": [stops]})
        axes.plot(t.numpy(), state.numpy(), color=color, linewidth=2, label=f"order {order:g}")
    axes.set(xlabel="time $t$ (depth)", ylabel="state", xlim=(0, 5), ylim=(0, 1.35))
    axes.legend(frameon=False, loc="upper center", ncols=4)
    return figure


def relaxation() -> Any:
    """d_t^γ u = −u, on linear and on logarithmic axes."""
    figure = new_figure(9, 3.2)
    left, right = figure.subplots(1, 2)
    near, far = torch.linspace(0, 5, 200, dtype=torch.float64), torch.logspace(-3, 2, 200, dtype=torch.float64)
    for order, color in ORDERS.items():
        for axes, times in ((left, near), (right, torch.cat([torch.zeros(1), far]))):
            state = fdeint(lambda t, u: -u, 1.0, times, order=order)
            shown = slice(None) if axes is left else slice(1, None)
            axes.plot(times[shown].numpy(), state[shown].numpy(), color=color, linewidth=2, label=f"order {order:g}")
    left.set(xlabel="time $t$", ylabel="$u(t)$", ylim=(0, 1), title="fast at first, slow later")
    left.legend(frameon=False)
    right.set(xscale="log", yscale="log", ylim=(1e-3, 1.3), xlabel="time $t$", title="a power law, not an exponential")
    return figure


def scheme() -> Any:
    """The L1 scheme: a polygon through the states, and the kernel that weighs its slopes."""
    figure = new_figure(9, 3.2)
    left, right = figure.subplots(1, 2)
    t, nodes = np.linspace(0, 2, 300), np.linspace(0, 2, 7)

    def curve(t: np.ndarray) -> np.ndarray:
        return np.sin(2.2 * t) + 0.4 * t

    left.plot(t, curve(t), color=GREY, label="$Y(t)$")
    left.plot(nodes, curve(nodes), "o-", color=BLUE, label="polygon through $Y_0 … Y_6$")
    left.set(xlabel="time $s$", title="slopes are constant between layers")
    left.legend(frameon=False)
    edges, gamma = nodes, 0.5
    for k in range(6):
        inside = np.linspace(edges[k], min(edges[k + 1], 1.995), 50)
        right.fill_between(inside, (2 - inside) ** -gamma, color=ORANGE, alpha=0.2 + 0.13 * k, linewidth=0)
    right.plot(t[:-2], (2 - t[:-2]) ** -gamma, color=VERMILION, label=r"kernel $(t_6 - s)^{-\gamma}$, $\gamma = 0.5$")
    right.set(xlabel="time $s$", ylim=(0, 6), title="each slope counts by the area above its step")
    right.legend(frameon=False, loc="upper left")
    return figure


def adjoint() -> Any:
    """The gradient's norm by layer: exact, and as the paper prints it."""
    figure = new_figure(9, 3.2)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, order in zip(panels, (0.9, 0.5, 0.1), strict=True):
        for kind, style, word in (("exact", "o-", "exact"), ("continuous", "x--", "as printed")):
            generator = torch.Generator().manual_seed(1)
            network = network_with(kind, 2, 2, n_layers=20, order=order, generator=generator).double()
            x = torch.randn(100, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
            torch.nn.functional.cross_entropy(network(x), (x[:, 0] > x[:, 1]).long()).backward()
            norms = network.K.grad.flatten(1).norm(dim=1)
            color = BLUE if kind == "exact" else VERMILION
            axes.semilogy(range(20), norms.numpy(), style, color=color, markersize=4, label=word)
        axes.set(title=f"order {order:g}", xlabel="layer", xticks=(0, 5, 10, 15, 19))
    panels[0].set_ylabel(r"norm of $\partial E / \partial K_j$")
    panels[2].legend(frameon=False, loc="lower right")
    return figure


def exponentials() -> Any:
    """Far weights, and the exponentials whose sum they are."""
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    far = compress_differences(0.5, max_lag=10**6, min_lag=32, compress_tol=1e-6)
    lags = np.unique(np.logspace(np.log10(32), 6, 400).astype(int))
    exact = l1_differences(0.5, 10**6).numpy()[lags - 1]
    terms = far.weights.numpy() * np.exp(-far.rates.numpy() * (lags[:, None] - far.min_lag))
    left.loglog(lags, np.where(terms > 1e-14, terms, np.nan), color=PURPLE, alpha=0.4, linewidth=1)
    left.loglog(lags, exact, color=BLUE, linewidth=2.5)
    left.set(xlabel="lag $m$", ylabel="weight", ylim=(1e-11, 1e-2), title=f"$h_m$ and its {far.n_terms} exponentials")
    right.loglog(lags, np.abs(terms.sum(axis=1) / exact - 1) + 1e-16, color=BLUE, linewidth=1)
    right.axhline(1e-6, color=GREY, linestyle=":")
    right.set(xlabel="lag $m$", ylabel="relative error of the sum", ylim=(1e-10, 1e-5), title="asked for: 1e-6")
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    "memory-weights": weights,
    "memory-matrices": matrices,
    "memory-push": push,
    "memory-relaxation": relaxation,
    "l1-scheme": scheme,
    "adjoint-by-layer": adjoint,
    "exponentials": exponentials,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        save_figure(folder / f"{name}.png", draw())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent / "images")
