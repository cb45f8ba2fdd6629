"""The Mittag-Leffler function, the exponential of fractional calculus, by a contour integral.

    E_{α,β}(z) = Σ_k z^k / Γ(αk + β) = 1/(2πi) ∫ e^s s^(α−β) / (s^α − z) ds

over a contour around the negative real axis. With s = w² the parabola s(v) = (a + iv)² is the vertical line
Re w = a, on which e^s decays like e^(−v²): the trapezoidal rule converges geometrically at a rate set by the distance
(in w) to the nearest singularity. These are the branch point 0 and, if |arg z| < απ, the pole s* = z^(1/α) at
Re w = q = Re √s*. So the contour passes either to the right of both, or between them with the residue

    1/α · z^((1−β)/α) · exp(z^(1/α))

added. For large |z| the leading terms of the algebraic expansion are taken out first, exactly, through
E_{α,β}(z) = −z^(−1)/Γ(β−α) + z^(−1) E_{α,β−α}(z), since they may cancel in the integral (β near α or 1).
The idea of choosing the parabola by the position of the pole is R. Garrappa's (SIAM J. Numer. Anal. 53, 2015).
"""

from typing import Any

import numpy as np
import torch

from fracdnn.validation import check_numbers, check_one_order, check_positive

_STEP = 0.1
_HALF_NODES = 75
_CHUNK = 4096
# Above this |z| two terms of the algebraic expansion are split off.
_SPLIT_RADIUS = 4.0
_SPLIT_TERMS = 2


def mittag_leffler(z: Any, alpha: float, beta: float = 1.0) -> Any:
    """E_{alpha,beta}(z) for 0 < alpha ≤ 1 and beta > 0, elementwise; NumPy (or a number) in and out, or torch.

    Relative error ≤ 1e-10 against mpmath for real z in [−10⁴, 10] and complex |z| ≤ 20, away from zeros of the
    function and where its phase z^(1/alpha) is resolved in float64; values beyond the range of float64 come out as
    inf. Cost: 76 complex powers for a real value, 151 for a complex one. Computed in float64, without gradients.
    """
    alpha = float(check_one_order(alpha, name="alpha").detach())
    beta = check_positive(beta, "beta")
    values = check_numbers(z, "z")
    flat = values.reshape(-1).astype(np.complex128)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        chunks = [_evaluate(flat[i : i + _CHUNK], alpha, beta) for i in range(0, flat.size, _CHUNK)]
    result = np.concatenate(chunks or [flat]).reshape(values.shape)
    if not np.iscomplexobj(values):
        result = result.real
    if isinstance(z, torch.Tensor):
        return torch.from_numpy(np.ascontiguousarray(result)).to(z.device)
    return result if result.ndim else result[()]


def _evaluate(z: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    if alpha == 1.0 and beta == 1.0:
        return np.exp(z)
    # Imported late: SciPy would add a fifth to the time that importing fracdnn takes.
    from scipy.special import rgamma

    result = np.full(z.shape, rgamma(beta), dtype=np.complex128)
    near = (z != 0) & (np.abs(z) < _SPLIT_RADIUS)
    log_pole, outside, line = _place_contour(z[near], alpha, beta)
    result[near] = _integral(z[near], alpha, beta, line) + _residue(log_pole, outside, alpha, beta)
    far = np.abs(z) >= _SPLIT_RADIUS
    log_pole, outside, line = _place_contour(z[far], alpha, beta)
    inverse = 1.0 / z[far]
    remainder = _integral(z[far], alpha, beta - _SPLIT_TERMS * alpha, line)
    for k in range(_SPLIT_TERMS, 0, -1):
        remainder = inverse * (remainder - rgamma(beta - k * alpha))
    result[far] = remainder + _residue(log_pole, outside, alpha, beta)
    return result


def _place_contour(z: np.ndarray, alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log s*, whether there is a pole outside the contour, and the line Re w of the contour, for each z."""
    log_z = np.log(z)
    # Beyond e^700 the pole is at infinity for any purpose; the bound keeps infinities out of the arithmetic.
    log_pole = np.minimum(log_z.real / alpha, 700.0) + 1j * log_z.imag / alpha
    has_pole = np.abs(log_z.imag) < alpha * np.pi
    pole_line = np.where(has_pole, np.exp(0.5 * log_pole).real, 0.0)
    # e^s s^(−β) is least on the line Re w = √β: further right it would be large and cancel.
    preferred = max(1.2, np.sqrt(beta))
    enclosed = pole_line < preferred
    line = np.where(
        enclosed,
        np.maximum(preferred, pole_line + 1.0),
        np.minimum(preferred, np.maximum(pole_line - 1.0, 0.5 * pole_line)),
    )
    return log_pole, ~enclosed, line


def _integral(z: np.ndarray, alpha: float, beta: float, line: np.ndarray) -> np.ndarray:
    # For real z the lower half of the contour mirrors the upper one.
    mirrored = not z.imag.any()
    v = _STEP * np.arange(0 if mirrored else -_HALF_NODES, _HALF_NODES + 1)
    w = line[:, None] + 1j * v
    log_s = 2.0 * np.log(w)
    integrand = np.exp(w * w + (alpha - beta + 0.5) * log_s) / (np.exp(alpha * log_s) - z[:, None])
    if mirrored:
        return (2.0 * integrand.real.sum(axis=1) - integrand[:, 0].real) * (_STEP / np.pi)
    return integrand.sum(axis=1) * (_STEP / np.pi)


def _residue(log_pole: np.ndarray, outside: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    exponent = np.exp(log_pole) + (1.0 - beta) * log_pole - np.log(alpha)
    # A real exponent is kept apart: complex exp turns its overflow into inf + nan·i.
    values = np.where(exponent.imag == 0, np.exp(exponent.real), np.exp(exponent))
    return np.where(outside, values, 0.0)
