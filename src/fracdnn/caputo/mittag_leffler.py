"""The Mittag-Leffler function, the exponential of fractional calculus: arguments, kinds and precision.

`mittag_leffler_contour.py` has the mathematics.
"""

from numbers import Number
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.mittag_leffler_contour import evaluate
from fracdnn.validation import check_numbers, check_order, check_positive_tensor


def mittag_leffler(z: Any, order: float | torch.Tensor, beta: float | torch.Tensor = 1.0) -> Any:
    """E_{order,beta}(z) = Σ_k z^k / Γ(order·k + beta) for 0 < order ≤ 2, beta > 0 and any real or complex z.

    Elementwise; tensors z, order and beta are broadcast together. A tensor z gives a tensor of its dtype and device
    (whole numbers give float64), a Python number a 0-d tensor, NumPy or a list NumPy, unless order or beta is a
    tensor. Computed in float64, and differentiable in z, order and beta any number of times: `backward`,
    forward mode, `torch.func`.

    Relative error against mpmath for |z|^(1/order) ≤ 60, order ≥ 0.03 and beta ≤ 4, also around order = 1 and 2: at
    most 2.4e-13 at 2,500 random points, half below 3e-16; first derivatives and the second by z at most 6e-13. Where
    exp(z^(1/order)) is a part of E, the error grows like 1e-15·|z|^(1/order) beyond, as does what the last digit of z
    decides; where order and beta are both small, like 1e-16/max(order, beta). Near a zero of E the error is relative
    to E's parts. Values beyond the range of float64 come out as inf.

    Cost: 113 complex powers for a real value, 225 for a complex one; about 50 and 90 µs.
    """
    alpha = check_order(order, largest=2, remedy="; choose a number above 0 and not above 2")
    shift = check_positive_tensor(beta, "beta")
    values = check_numbers(z, "z")
    result = evaluate(values, alpha.to(values.device), shift.to(values.device))
    if isinstance(z, torch.Tensor):
        return result.to(z.dtype) if z.is_floating_point() or z.is_complex() else result
    is_tensor = isinstance(order, torch.Tensor) or isinstance(beta, torch.Tensor)
    if is_tensor or (isinstance(z, Number) and not isinstance(z, np.generic)):
        return result
    array = result.numpy()
    if getattr(z, "dtype", None) in (np.float32, np.complex64):
        array = array.astype(z.dtype)
    return array if array.ndim else array[()]
