"""Models with a name, for the command line: a function of torch, and start values from the data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fracdnn.fitting.laplace import step_response


def relaxation(t: torch.Tensor, size: Any, tau: Any, order: Any, offset: Any) -> torch.Tensor:
    """Size · E_order(−(t/tau)^order) + offset, of tau^order D^order u = −u; a negative size grows."""
    return offset + size * _from_0(t, lambda s: 1.0 / (1.0 + torch.exp(-order * torch.log(s * tau))))


def dose(t: torch.Tensor, size: Any, absorption: Any, rate: Any, order: Any) -> torch.Tensor:
    """The amount u in one compartment after a dose: u = size (1 − exp(−absorption · t)) − rate · I^order u."""
    return size * _from_0(t, lambda s: absorption / (s + absorption) / (1.0 + rate * torch.exp(-order * torch.log(s))))


def _from_0(t: torch.Tensor, immittance: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The response to a step; at 0 its right limit."""
    return step_response(immittance, t.clamp(min=1e-30 * float(t.max())))


def _start_relaxation(t: np.ndarray, data: np.ndarray) -> dict[str, Any]:
    early, late = data[np.argmin(t)], data[np.argmax(t)]
    half = t[np.argmin(np.abs(data - 0.5 * (early + late)))]
    size = (early - late) or 1.0
    tau = float(max(half, 1e-3 * t.max()))
    return {"size": float(size), "tau": (tau, 0.0, None), "order": (0.8, 0.02, 1.0), "offset": float(late)}


def _start_dose(t: np.ndarray, data: np.ndarray) -> dict[str, Any]:
    peak = float(max(t[np.argmax(data)], 1e-3 * t.max()))
    start = {"size": 1.5 * float(data.max()), "absorption": 3.0 / peak, "rate": 2.0 / float(t.max())}
    return {name: (value, 0.0, None) for name, value in start.items()} | {"order": (0.8, 0.02, 1.0)}


# By name: the model, and its start values for t and data.
MODELS = {"relaxation": (relaxation, _start_relaxation), "dose": (dose, _start_dose)}
