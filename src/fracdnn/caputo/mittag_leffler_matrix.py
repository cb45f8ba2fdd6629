"""The Mittag-Leffler function of a small matrix, and its derivative in every direction.

With eigenvectors V of condition below 10⁵, f(A) = V f(Λ) V⁻¹ and its derivative along E is

    L(A, E) = V (D ∘ (V⁻¹ E V)) V⁻¹,   D_ij = (f(λ_i) − f(λ_j)) / (λ_i − λ_j)   (Daleckii and Krein)

where D_ij is a mean of f' between eigenvalues that are close. Other matrices, defective ones among them, are means of
such with other eigenvalues: with a Schur form A = Q T Qᴴ and any diagonal matrix R, f(Q (T + ωR) Qᴴ) is an entire
function of ω, so that its mean over roots of unity is f(A), to rounding where f varies little over R. Both f(A) and
L(A, E) are linear in f, so the derivatives by α and β are the same formulas for ∂f/∂α and ∂f/∂β. The adjoint of
L(A, ·) is L(Aᴴ, ·).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.mittag_leffler import evaluate
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.validation import check_numbers, check_one_order, check_positive_tensor

Scalar = Callable[[torch.Tensor], torch.Tensor]
_WORST_CONDITION = 1e5
# Roots of −1, which meet no real number; and every fourth of them, by which f is judged.
_ROOTS = 32


def mittag_leffler_matrix(
    A: Any, order: float | torch.Tensor, beta: float | torch.Tensor = 1.0, *, scale: Any = 1.0
) -> torch.Tensor:
    """E_{order,beta}(scale·A) for square matrices A [..., n, n], real or complex, and 0 < order ≤ 2, beta > 0.

    `scale` holds real numbers of any shape S; the result is [..., *S, n, n]. One A with many scales is decomposed
    once: e_{α,β}(t; A) = t^(β−1) E_{α,β}(t^α A) at all times t is `mittag_leffler_matrix(A, order, beta,
    scale=t**order)` times t^(β−1). dtype and device as A's; computed in float64.

    Error against mpmath, relative to the largest entry: 1e-14 for small matrices, normal, not normal or defective;
    1e-12 for eigenvalues from −10⁴ to −10⁻². Badly conditioned eigenvectors cost up to five digits.

    Differentiable once in A, scale, order and beta: `backward`, forward mode, `torch.func`. Cost for each scale: n
    scalar values (90 µs each), twice that again for the derivative; 32 times as much without good eigenvectors.
    """
    matrices = check_numbers(A, "A")
    if matrices.dim() < 2 or matrices.shape[-1] != matrices.shape[-2] or not matrices.shape[-1]:
        raise InvalidArgumentError(
            f"A must be square in its last two dimensions, and not empty, got shape {tuple(matrices.shape)}; "
            f"pass [..., n, n]"
        )
    factors = check_numbers(scale, "scale")
    if factors.is_complex():
        raise InvalidArgumentError("scale must hold real numbers, got complex ones; multiply A by them instead")
    alpha = check_one_order(order, largest=2, remedy="; choose a number above 0 and not above 2")
    beta = check_positive_tensor(beta, "beta")
    if beta.dim():
        raise InvalidArgumentError(f"beta must be one number here, got shape {tuple(beta.shape)}; call once for each")
    n, device = matrices.shape[-1], matrices.device
    scales, alpha, beta = (each.to(device) for each in (factors.reshape(-1), alpha, beta))
    matrices_in_row = matrices.reshape(-1, n, n).to(torch.complex128)
    scaled = scales[:, None, None] * matrices_in_row.unsqueeze(1)
    result = _MatrixFunction.apply(scaled, matrices_in_row, scales, alpha, beta, None)
    result = result.reshape(*matrices.shape[:-2], *factors.shape, n, n)
    result = result if matrices.is_complex() else result.real
    kept = isinstance(A, torch.Tensor) and (A.is_floating_point() or A.is_complex())
    return result.to(A.dtype) if kept else result


class _OneByOne(torch.autograd.Function):
    """A function that decomposes one batch at a time, also under `torch.func.vmap`."""

    @classmethod
    def vmap(cls, info, dims, *inputs):
        rows = (
            [x if dim is None else x.select(dim, row) for x, dim in zip(inputs, dims, strict=True)]
            for row in range(info.batch_size)
        )
        return torch.stack([cls.apply(*row) for row in rows]), 0


class _MatrixFunction(_OneByOne):
    """Matrices [b, n, n] and scales [t] to [b, t, n, n]: E, or its derivative by α (1) or β (2).

    Derivatives by matrices and scales are those by their product, which is given as well.
    """

    @staticmethod
    def forward(scaled, matrices, scales, alpha, beta, by):
        function = _slope(alpha, beta, by) if by else lambda z: evaluate(z, alpha, beta)
        return _by_eigenvectors(
            matrices, scales, function, lambda z, v, inverse, _: (v * function(z).unsqueeze(-2)) @ inverse
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[5]
        ctx.save_for_backward(*inputs[:5])
        ctx.save_for_forward(*inputs[:5])

    @staticmethod
    def backward(ctx, gradient):
        _first_only(ctx.by)
        scaled, matrices, scales, alpha, beta = ctx.saved_tensors
        found: list[torch.Tensor | None] = [None] * 6
        if ctx.needs_input_grad[0]:
            found[0] = _Derivative.apply(matrices.mH, scales, gradient, alpha, beta)
        for by in (1, 2):
            if ctx.needs_input_grad[by + 2]:
                slope = _MatrixFunction.apply(scaled, matrices, scales, alpha, beta, by)
                found[by + 2] = (gradient.conj() * slope).real.sum()
        return tuple(found)

    @staticmethod
    def jvp(ctx, scaled_dot, matrices_dot, scales_dot, alpha_dot, beta_dot, _):
        _first_only(ctx.by)
        scaled, matrices, scales, alpha, beta = ctx.saved_tensors
        parts = [] if scaled_dot is None else [_Derivative.apply(matrices, scales, scaled_dot, alpha, beta)]
        for by, tangent in ((1, alpha_dot), (2, beta_dot)):
            if tangent is not None:
                parts.append(tangent * _MatrixFunction.apply(scaled, matrices, scales, alpha, beta, by))
        return sum(parts)


class _Derivative(_OneByOne):
    """L(scale·A, E) for directions E [b, t, n, n]; has no derivatives of its own."""

    @staticmethod
    def forward(matrices, scales, directions, alpha, beta):
        def along(z, v, inverse, direction):
            return v @ (_quotients(z, alpha, beta) * (inverse @ direction @ v)) @ inverse

        return _by_eigenvectors(matrices, scales, lambda z: evaluate(z, alpha, beta), along, directions)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        _first_only(True)


def _first_only(is_derivative: object) -> None:
    if is_derivative:
        raise NotImplementedError(
            "mittag_leffler_matrix has first derivatives only; for a second one difference the first"
        )


def _slope(alpha: torch.Tensor, beta: torch.Tensor, number: int) -> Scalar:
    """The derivative of z ↦ E_{α,β}(z) by z (0), α (1) or β (2)."""

    def slope(z: torch.Tensor) -> torch.Tensor:
        point = [z, alpha.expand(z.shape), beta.expand(z.shape)]

        # In reverse mode, which may run inside of forward mode.
        def gradient(part: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            return torch.func.grad(lambda *at: part(evaluate(*at)).sum(), argnums=number)(*point)

        if number == 0:  # analytic: one part tells both
            return gradient(torch.real).conj().resolve_conj()
        return torch.complex(gradient(torch.real), gradient(torch.imag))

    return slope


def _by_eigenvectors(
    matrices: torch.Tensor,
    scales: torch.Tensor,
    function: Scalar,
    compute: Callable[..., torch.Tensor],
    directions: torch.Tensor | None = None,
) -> torch.Tensor:
    """`compute(values, V, V⁻¹, directions)` of scale·A for each scale, [b, t, n, n]; see the top of this file."""
    if bool((matrices == matrices.mH).all()):
        values, vectors = torch.linalg.eigh(matrices)
        values, inverses = values.to(matrices.dtype), vectors.mH
        good = torch.ones(len(matrices), dtype=torch.bool)
    else:
        values, vectors = torch.linalg.eig(matrices)
        good = torch.linalg.cond(vectors) < _WORST_CONDITION
        vectors = torch.where(good[:, None, None], vectors, torch.eye(matrices.shape[-1], dtype=matrices.dtype))
        inverses = torch.linalg.inv(vectors)
    scaled = scales[:, None] * values.unsqueeze(1)
    result = compute(scaled, vectors.unsqueeze(1), inverses.unsqueeze(1), directions)
    for at in torch.nonzero(~good).flatten().tolist():
        near = _near(matrices[at], scales, function)
        own = None if directions is None else directions[at].unsqueeze(1)
        values, vectors = torch.linalg.eig(near)
        result[at] = compute(values, vectors, torch.linalg.inv(vectors), own).mean(1)
    return result


def _near(matrix: torch.Tensor, scales: torch.Tensor, function: Scalar) -> torch.Tensor:
    """Matrices [t, ω, n, n] around scale·A that have eigenvectors, and over whose mean f is that of scale·A."""
    from scipy.linalg import schur  # would add a fifth to the time that importing fracdnn takes

    form, vectors = (
        torch.from_numpy(each) for each in schur(matrix.detach().resolve_conj().cpu().numpy(), output="complex")
    )
    roots = torch.exp(2j * math.pi / _ROOTS * (torch.arange(_ROOTS, dtype=torch.float64) + 0.5))
    triangle = scales.detach().cpu()[:, None, None] * form
    values = triangle.diagonal(dim1=-2, dim2=-1)
    middle, radius = function(values).abs(), 0.3 * (values.abs() + 1.0)
    for _ in range(16):  # as far as f grows little
        around = function(values[..., None] + radius[..., None] * roots[::4])
        wild = around.abs().amax(-1) > 8.0 * middle
        if not bool(wild.any()):
            break
        radius = torch.where(wild, 0.5 * radius, radius)
    shares = torch.arange(1, len(form) + 1, dtype=torch.float64) / len(form)  # different ones for equal eigenvalues
    moved = triangle.unsqueeze(1) + torch.diag_embed(roots[:, None] * (radius * shares).unsqueeze(1))
    return (vectors @ moved @ vectors.mH).to(matrix.device)


def _quotients(z: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """(f(z_i) − f(z_j)) / (z_i − z_j), [..., n, n]; for close ones f' averaged between them, by Gauss's rule."""
    f = evaluate(z, alpha, beta)
    left, right = torch.broadcast_tensors(z.unsqueeze(-1), z.unsqueeze(-2))
    gap, size = (left - right).abs(), torch.maximum(left.abs(), right.abs())
    # Close: neither 1 / z nor exp(z^(1/α)) changes by much.
    close = gap <= 0.1 * torch.where(size < 1, 1.0, size) * (alpha * size.clamp(min=1) ** (-1 / alpha)).clamp(max=1.0)
    quotients = (f.unsqueeze(-1) - f.unsqueeze(-2)) / torch.where(close, 1.0, left - right)
    middle, slope = 0.5 * (left + right), _slope(alpha, beta, 0)
    same = gap == 0
    quotients[same] = slope(middle[same])
    close = close & ~same
    nodes, weights = (torch.from_numpy(x).to(z.device) for x in np.polynomial.legendre.leggauss(6))
    half = 0.5 * (left - right)[close]
    between = middle[close].unsqueeze(-1) + half.unsqueeze(-1) * nodes
    quotients[close] = 0.5 * (slope(between) * weights).sum(-1)
    return quotients
