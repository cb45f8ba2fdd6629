"""A harder set than the paper's two: handwritten digits of scikit-learn, in eight principal directions."""

from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from fracdnn.training import accuracy
from reproduction.arms import STEP_SIZES, grid, networks
from reproduction.fast_training import fit_all
from reproduction.paper_training import Split


@dataclass(frozen=True)
class Digits:
    """BFGS on a random half; a quarter is for tuning, a quarter for the test. `depths`: what do few parameters do?"""

    orders: tuple[float, ...] = (0.9, 0.1)
    depths: tuple[int, ...] = (1, 2, 4, 8)
    step_sizes: tuple[float, ...] = STEP_SIZES
    step_size: float = 0.2
    n_directions: int = 8
    max_iter: int = 150
    decay: float = 1e-4
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: Digits) -> list[dict[str, Any]]:
    found = []
    for depth in settings.depths:
        arms = networks(settings.orders, settings.step_size, depth)
        if depth == max(settings.depths):
            arms += grid(settings.orders, settings.step_size, settings.step_sizes)
        found += [{"n_layers": depth, **arm, "seed": seed} for arm in arms for seed in settings.seeds]
    return found


def work(settings: Digits, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    X, X_rest, y, y_rest = digits_split(settings.n_directions, job["seed"])
    network = FractionalNetwork(
        settings.n_directions,
        10,
        n_layers=job["n_layers"],
        order=job["order"],
        step_size=job["step_size"],
        generator=torch.Generator().manual_seed(job["seed"]),
    ).double()
    fit = fit_all(network, X, y, max_iter=settings.max_iter, decay=settings.decay, decay_class_map=settings.decay)
    return {
        "loss": float(fit.losses[-1]),
        "train": accuracy(network, X, y),
        "validation": accuracy(network, X_rest[::2], y_rest[::2]),
        "test": accuracy(network, X_rest[1::2], y_rest[1::2]),
    }


def digits_split(n_directions: int, seed: int) -> Split:
    """Halves in random order, along the first principal directions of the training half, each with deviation 1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    data, target = torch.from_numpy(found.data), torch.from_numpy(found.target)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    half = len(data) // 2
    train, rest = order[:half], order[half:]
    mean = data[train].mean(0)
    _, values, directions = torch.linalg.svd(data[train] - mean, full_matrices=False)
    scale = directions[:n_directions].T / (values[:n_directions] / half**0.5)
    return (data[train] - mean) @ scale, (data[rest] - mean) @ scale, target[train].long(), target[rest].long()
