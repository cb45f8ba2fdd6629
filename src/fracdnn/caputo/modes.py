"""The kernel t^(order−1) / Γ(order) as a sum of modes: exponentials, a constant and t, for t between two bounds.

For an order below 1, with a fixed cut s_0 = 1/T,

    t^(γ−1) / Γ(γ) = sin(πγ)/π · ∫_0^∞ s^(−γ) e^(−st) ds = ∫_0^{s_0} + ∫_{s_0}^∞.

Up to s_0 the exponential is all but a polynomial in s: the integral is a sum over Chebyshev nodes, s = 0 among them,
with weights that integrate s^(−γ) times a polynomial exactly; so order 1 is the constant mode alone, and nothing goes
wrong next to it. Beyond, Gauss's rule on panels that grow by a factor of four. Between 1 and 2 the kernel is the
integral of that of γ − 1: each e^(−st) becomes (1 − e^(−st))/s, and that of s = 0 the mode t.

Rates do not depend on the order, weights are smooth functions of it: derivatives are those of the kernel, to the same
accuracy. Relative error for t in [shortest, longest], measured for orders 0.02 … 2: see `ACCURACY`.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from fracdnn.tracing import outside_of_modes

_LOW = 12  # Chebyshev intervals on [0, s_0]
_RATIO = 4.0  # of a panel's ends
# Nodes on a panel, and the relative error of the kernel that they leave.
ACCURACY = {6: 5e-6, 8: 7e-8, 10: 1e-9, 12: 2e-11, 14: 2e-13}


@dataclass(frozen=True, eq=False)
class Modes:
    """Rates s_i ≥ 0 [K], of which the first is 0, and how the kernel's weights follow from an order.

    A sum over modes has K + 1 terms: e^(−s_i t) for each rate, and t.
    """

    rates: torch.Tensor
    quadrature: torch.Tensor  # Gauss weights of the rates beyond s_0
    moments_to_weights: torch.Tensor  # [L, L]
    cut: float  # s_0
    top: float  # where the last panel ends

    def weights(self, order: torch.Tensor) -> torch.Tensor:
        """Return ω [G, K + 1] for orders [G] in [0, 2], such that Σ_i ω_i e^(−s_i t) + ω_K t is the kernel."""
        below = torch.where(order > 1.0, order - 1.0, order)
        exponent = below.unsqueeze(-1)
        degrees = torch.arange(1, len(self.moments_to_weights), dtype=torch.float64, device=order.device)
        # ∫_0^1 u^(−γ) P_k(2u − 1) du for Legendre's polynomials, times sin(πγ)/π.
        ratios = -(exponent + degrees - 1.0) / (degrees + 1.0 - exponent)
        first = torch.sinc(1.0 - exponent)
        moments = first * torch.cat([torch.ones_like(first), ratios.cumprod(1)], dim=1) * self.cut ** (1.0 - exponent)
        sine, beyond = torch.sin(math.pi * exponent) / math.pi, self.rates[len(self.moments_to_weights) :]
        plain = torch.cat([moments @ self.moments_to_weights.T, sine * self.quadrature * beyond**-exponent], dim=1)
        nothing = torch.zeros_like(plain[:, :1])
        # (1 − e^(−st))/s: a constant less an exponential, and t where s is 0; beyond the last rate the constant alone.
        scaled = plain[:, 1:] / self.rates[1:]
        tail = torch.sinc(below) * self.top**-below
        integrated = torch.cat([scaled.sum(1, keepdim=True) + tail.unsqueeze(-1), -scaled, plain[:, :1]], dim=1)
        return torch.where((order > 1.0).unsqueeze(-1), integrated, torch.cat([plain, nothing], dim=1))

    def to(self, device: torch.device) -> "Modes":
        """Return the same modes on a device."""
        names = ("rates", "quadrature", "moments_to_weights")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def kernel_modes(shortest: float, longest: float, tolerance: float) -> Modes:
    """Return modes of the kernel for times from `shortest` to `longest`, to the relative `tolerance` (1e-4 … 1e-12).

    Times are rounded outward to powers of two, so that like solves share their modes.
    """
    nodes = next((nodes for nodes, error in ACCURACY.items() if error <= tolerance), max(ACCURACY))
    return _modes(2.0 ** math.floor(math.log2(shortest)), 2.0 ** math.ceil(math.log2(longest)), nodes)


@lru_cache(maxsize=64)
def _modes(shortest: float, longest: float, nodes: int) -> Modes:
    cut = 1.0 / longest
    lobatto = (1.0 - np.cos(np.arange(_LOW + 1) * math.pi / _LOW)) / 2.0
    points, weights = np.polynomial.legendre.leggauss(nodes)
    top = (math.log(1.0 / ACCURACY[nodes]) + 4.0) / shortest
    begins = cut * _RATIO ** np.arange(max(math.ceil(math.log(top / cut, _RATIO)), 1))
    half = begins[:, None] * (_RATIO - 1.0) / 2.0
    beyond = (begins[:, None] + half * (1.0 + points)).ravel()
    inverse = np.linalg.inv(np.polynomial.legendre.legvander(2.0 * lobatto - 1.0, _LOW).T)
    arrays = (np.concatenate([cut * lobatto, beyond]), (half * weights).ravel(), inverse)
    rates, quadrature, moments = outside_of_modes(lambda: [torch.from_numpy(each) for each in arrays])
    return Modes(rates, quadrature, moments, cut, begins[-1] * _RATIO)
