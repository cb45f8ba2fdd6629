"""A function of a matrix without good eigenvectors: the block recurrence of Parlett on a Schur form.

T = Qᴴ A Q is triangular, ordered so that close eigenvalues make one diagonal block. F = f(T) commutes with T, which
gives its blocks off the diagonal (Davies and Higham, SIAM J. Matrix Anal. Appl. 25, 2003):

    T_ii F_ij − F_ij T_jj = F_ii T_ij − T_ij F_jj + Σ_{i<k<j} (F_ik T_kj − T_ik F_kj)

and F_ii is a Taylor series around the block's mean eigenvalue, whose coefficients are the Fourier coefficients of f on
a circle: f is entire. The equation stays as it is if T is scaled, so all scales share one form.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

# Eigenvalues closer than this, relative to their size, or than that, relative to the matrix, share a block.
_CLOSE, _CLOSE_IN_MATRIX = 0.1, 1e-5
_CIRCLE = 64
_TERMS = 40
Scalar = Callable[[torch.Tensor], torch.Tensor]


def schur_parlett(matrix: torch.Tensor, scales: torch.Tensor, function: Scalar) -> torch.Tensor:
    """f(scale·A) for each scale, [t, n, n], of one complex matrix; f is entire."""
    form, vectors, ends = _ordered_schur(matrix.detach().cpu().numpy())
    blocks = [slice(*each) for each in pairwise(ends)]
    triangle = torch.from_numpy(form)
    times = scales.detach().cpu()
    result = torch.zeros(len(times), *triangle.shape, dtype=triangle.dtype)
    for i in blocks:
        result[:, i, i] = _atomic(triangle[i, i], times, function)
    for distance in range(1, len(blocks)):
        for i, j in zip(blocks, blocks[distance:], strict=False):
            between = slice(i.stop, j.start)
            right = result[:, i, i] @ triangle[i, j] - triangle[i, j] @ result[:, j, j]
            right = right + result[:, i, between] @ triangle[between, j] - triangle[i, between] @ result[:, between, j]
            result[:, i, j] = _sylvester(triangle[i, i], triangle[j, j], right)
    q = torch.from_numpy(vectors)
    return (q @ result @ q.mH).to(matrix.device)


def _ordered_schur(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """T, Q and where the diagonal blocks begin and end."""
    # Imported late: SciPy would add a fifth to the time that importing fracdnn takes.
    from scipy.linalg import lapack, schur
    from scipy.sparse.csgraph import connected_components

    form, vectors = schur(matrix, output="complex")
    eigenvalues = np.diag(form)
    sizes, gaps = np.abs(eigenvalues), np.abs(np.subtract.outer(eigenvalues, eigenvalues))
    near = np.maximum(_CLOSE * np.maximum.outer(sizes, sizes), _CLOSE_IN_MATRIX * np.abs(form).max())
    labels = connected_components(gaps <= near)[1].tolist()
    for target in range(len(labels)):
        at = labels.index(min(labels[target:]), target)
        form, vectors, _ = lapack.ztrexc(form, vectors, at + 1, target + 1)
        labels.insert(target, labels.pop(at))
    return np.triu(form), vectors, [0, *np.bincount(labels).cumsum().tolist()]


def _atomic(block: torch.Tensor, scales: torch.Tensor, function: Scalar) -> torch.Tensor:
    n = len(block)
    center = block.diagonal().mean()
    if n == 1:
        return function(scales * center).reshape(-1, 1, 1)
    eye = torch.eye(n, dtype=block.dtype)
    rest = block - center * eye
    coefficients, radius = _coefficients(scales * center, scales.abs() * rest.diagonal().abs().max(), function)
    result = torch.zeros(len(scales), n, n, dtype=block.dtype)
    scaled = (scales / radius)[:, None, None] * rest
    for k in range(_TERMS - 1, -1, -1):
        result = result @ scaled + coefficients[:, k, None, None] * eye
    return result


def _coefficients(centers: torch.Tensor, spreads: torch.Tensor, function: Scalar) -> tuple[torch.Tensor, torch.Tensor]:
    """Taylor coefficients of r ↦ f(center + radius·r), and the radius: the largest on which f grows little."""
    angles = torch.exp(2j * np.pi * torch.arange(_CIRCLE, dtype=torch.float64) / _CIRCLE)
    radius = torch.maximum(0.5 * (centers.abs() + 1), 4 * spreads)
    values = function(centers[:, None] + radius[:, None] * angles)
    middle = function(centers).abs()
    for _ in range(16):
        wild = (values.abs().amax(1) > 8 * middle) & (radius > 4 * spreads) & (radius > 1e-3)
        if not bool(wild.any()):
            break
        radius = torch.where(wild, torch.maximum(0.5 * radius, 4 * spreads), radius)
        values[wild] = function(centers[wild, None] + radius[wild, None] * angles)
    return torch.fft.fft(values, dim=1) / _CIRCLE, radius


def _sylvester(left: torch.Tensor, right: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
    """X with left·X − X·right = side, for every side [t, p, q]."""
    p, q = sides.shape[-2:]
    system = torch.kron(left.contiguous(), torch.eye(q)) - torch.kron(torch.eye(p), right.mT.contiguous())
    return torch.linalg.solve(system, sides.reshape(-1, p * q).mT).mT.reshape(sides.shape)
