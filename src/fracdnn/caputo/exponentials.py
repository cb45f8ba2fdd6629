"""Far memory as a short sum of exponentials, which a recurrence can carry.

The second differences of `l1_differences` are a Laplace transform of a positive density,

    h_m = (1−γ)/Γ(γ) · ∫_0^∞ s^(γ−2) (1 − e^(−s))² e^(−s(m−1)) ds,

so the trapezoidal rule in x = log s gives h_m ≈ Σ_i b_i² e^(−s_i (m−m_0)), one to two hundred positive terms. In matrix
form that is bᵀ e^(−S n) b with n = m − m_0. A Galerkin projection on the dominant directions of the snapshots
e^(−S n/2) b / √h_m (each of unit length, so that every lag counts with its own *relative* error) reduces S to a small
symmetric matrix. Its eigenvalues are the new rates and the squares of the projected b the new weights: positive again,
and a third to a half as many, because the projection of a quadratic form squares its error.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from fracdnn.caputo.weights import Number, far_differences
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.tracing import carries_derivative, outside_of_modes
from fracdnn.validation import check_count, check_one_order, check_positive

_SMALLEST_TOLERANCE = 1e-11
_SNAPSHOTS = 256
_CHECKED_LAGS = 1024


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    """h_m ≈ Σ_i w_i exp(−r_i (m − min_lag)) for min_lag ≤ m ≤ max_lag, with w = `weights` and r = `rates`.

    `error` is the largest relative error at about a thousand lags spread evenly in log m.
    """

    rates: torch.Tensor
    weights: torch.Tensor
    min_lag: int
    max_lag: int
    compress_tol: float
    error: float

    @property
    def n_terms(self) -> int:
        return self.rates.numel()

    def __call__(self, lags: torch.Tensor) -> torch.Tensor:
        """Return the sum at the given lags, between min_lag and max_lag."""
        lags = torch.as_tensor(lags)
        if lags.numel() and not (self.min_lag <= int(lags.min()) and int(lags.max()) <= self.max_lag):
            raise InvalidArgumentError(
                f"lags must lie in [{self.min_lag}, {self.max_lag}], got {int(lags.min())} … {int(lags.max())}; "
                f"compress for a larger max_lag or use l1_differences"
            )
        distance = (lags.to(self.rates) - self.min_lag).unsqueeze(-1)
        return (self.weights * torch.exp(-self.rates * distance)).sum(-1)


def compress_differences(
    order: Number, *, max_lag: int, min_lag: int = 32, compress_tol: float = 1e-10
) -> ExponentialSum:
    """Return the weights h_m of lags min_lag … max_lag as a sum of exponentials of relative error ≤ `compress_tol`.

    Number of terms for lags 32 … 10⁶, up to one more or less by rounding (in brackets: by the trapezoidal rule alone):

        order      0.05     0.1      0.5      0.9      0.99
        1e-6       23 (48)  23 (47)  25 (43)  26 (41)  27 (41)
        1e-10      34 (98)  35 (99)  38 (84)  44 (78)  45 (77)

    To lags of 10⁸, 1e-10 takes 48 to 64. If `order` is a tensor that requires a gradient, the weights carry it, the
    rates are constants, and the derivative of the sum has about the same relative error; this takes more terms. At
    order 1 there are no far weights: no terms, or with a gradient, terms of weight 0 that carry it. Construction takes
    20 to 100 ms, and is cached for fixed orders.
    """
    order = check_one_order(order)
    min_lag = check_count(min_lag, "min_lag", minimum=2)
    max_lag = check_count(max_lag, "max_lag", minimum=min_lag)
    compress_tol = check_positive(compress_tol, "compress_tol")
    if not _SMALLEST_TOLERANCE <= compress_tol < 1:
        raise InvalidArgumentError(
            f"compress_tol must lie in [{_SMALLEST_TOLERANCE}, 1), got {compress_tol}; "
            f"use the exact weights where more digits are needed"
        )
    if carries_derivative(order):
        return _compress(order, min_lag, max_lag, compress_tol)
    cached = _compress_cached(float(order), min_lag, max_lag, compress_tol)
    rates, weights = (each.to(order.device, copy=True) for each in (cached.rates, cached.weights))
    return replace(cached, rates=rates, weights=weights)


@lru_cache(maxsize=64)
def _compress_cached(order: float, min_lag: int, max_lag: int, compress_tol: float) -> ExponentialSum:
    return outside_of_modes(lambda: _compress(torch.tensor(order, dtype=torch.float64), min_lag, max_lag, compress_tol))


def _compress(order: torch.Tensor, min_lag: int, max_lag: int, compress_tol: float) -> ExponentialSum:
    fixed, learned = order.detach().cpu(), carries_derivative(order)
    if float(fixed) == 1.0 and not learned:
        no_terms = torch.zeros(0, dtype=torch.float64, device=order.device)
        return ExponentialSum(no_terms, no_terms, min_lag, max_lag, compress_tol, 0.0)
    # At order 1 the weights are 0, but not their derivative: the terms of an order just below serve.
    fixed = fixed.clamp(max=1.0 - torch.finfo(torch.float64).eps)
    nodes, spacing = _quadrature_rates(float(fixed), min_lag, max_lag, compress_tol)
    amplitudes = _amplitudes(fixed, nodes, spacing, min_lag)
    directions = _dominant_directions(nodes, amplitudes, max_lag - min_lag, with_derivative=learned)
    lags = torch.logspace(math.log10(min_lag), math.log10(max_lag), _CHECKED_LAGS, dtype=torch.float64)
    lags = lags.round().clamp(min_lag, max_lag).unique()
    exact = far_differences(fixed, lags) / (1.0 - fixed)
    # The smallest sum is found one term at a time: the error need not fall with each of them.
    for n_terms in range(1, len(nodes) + 1):
        rates, projection = nodes, torch.eye(len(nodes), dtype=torch.float64)
        if n_terms < len(nodes):  # else the whole quadrature, which needs no projection
            basis = directions[:, :n_terms]
            # Singular values of √S · basis: small eigenvalues of basisᵀ S basis would be lost in rounding.
            _, roots, rotation = torch.linalg.svd(nodes.sqrt().unsqueeze(-1) * basis, full_matrices=False)
            rates, projection = roots**2, rotation @ basis.T
        approximation = torch.exp(-(lags - min_lag).unsqueeze(-1) * rates) @ (projection @ amplitudes) ** 2
        error = float((approximation / exact - 1.0).abs().max())
        if error <= compress_tol:
            break
    if learned:
        amplitudes = _amplitudes(order.cpu(), nodes, spacing, min_lag)
    weights = (1.0 - order.cpu()) * (projection @ amplitudes) ** 2
    return ExponentialSum(rates.to(order.device), weights.to(order.device), min_lag, max_lag, compress_tol, error)


def _quadrature_rates(order: float, min_lag: int, max_lag: int, compress_tol: float) -> tuple[torch.Tensor, float]:
    """Return rates of a trapezoidal rule in log s, a hundred times as accurate as requested, and their spacing."""
    digits = math.log(1.0 / compress_tol) + 5.0
    lowest = -math.log(max_lag) - digits / (1.0 + order)
    highest = math.log((digits + 4.0) / (min_lag - 1))
    spacing = math.pi**2 / (digits + 12.0)
    count = math.ceil((highest - lowest) / spacing) + 1
    return torch.exp(lowest + spacing * torch.arange(count, dtype=torch.float64)), spacing


def _amplitudes(order: torch.Tensor, rates: torch.Tensor, spacing: float, min_lag: int) -> torch.Tensor:
    """Return b_i / √(1−order), from the terms b_i² of the trapezoidal rule at lag min_lag; smooth up to order 1."""
    log_terms = math.log(spacing) - torch.lgamma(order) + (order - 1.0) * torch.log(rates) - rates * (min_lag - 1)
    return torch.exp(0.5 * log_terms + torch.log(-torch.expm1(-rates)))


def _dominant_directions(
    rates: torch.Tensor, amplitudes: torch.Tensor, longest: int, *, with_derivative: bool
) -> torch.Tensor:
    """Return orthonormal directions of the unit snapshots e^(−S n/2) b / √h, most important first."""
    distances = torch.logspace(-1.0, math.log10(max(longest, 1)), _SNAPSHOTS - 1, dtype=torch.float64)
    distances = torch.nn.functional.pad(distances, (1, 0)).unsqueeze(-1)
    snapshots = torch.nn.functional.normalize(amplitudes * torch.exp(-0.5 * distances * rates))
    if with_derivative:
        # ∂b/∂order is b · (log s)/2 up to a multiple of b; centered, so that it adds a new direction only.
        center = (snapshots**2 * torch.log(rates)).sum(1, keepdim=True)
        changes = torch.nn.functional.normalize(snapshots * (torch.log(rates) - center))
        snapshots = torch.cat([snapshots, changes])
    return torch.linalg.svd(snapshots.T, full_matrices=False).U
