"""Each bad argument gets one error that names it, its rule, its value and a remedy."""

import numpy as np
import pytest
import torch

from fracdnn.caputo import (
    caputo_derivative,
    compress_differences,
    fractional_integral,
    l1_differences,
    l1_step_factor,
    l1_weights,
    l1_weights_on_grid,
    memory_matrix,
    memory_weights,
    memory_weights_on_grid,
    mittag_leffler,
    mittag_leffler_matrix,
)
from fracdnn.exceptions import FracdnnError, InvalidArgumentError, InvalidTypeError
from fracdnn.solver import Given, fdeint, graded_mesh

Y0 = torch.ones(2, dtype=torch.float64)
T = torch.linspace(0, 1, 5, dtype=torch.float64)
SAMPLES = np.linspace(0, 1, 5)


def zero(t, y):
    return torch.zeros_like(y)


TAKES_ORDER = {
    "l1_weights": lambda order: l1_weights(order, 3),
    "l1_differences": lambda order: l1_differences(order, 3),
    "l1_step_factor": lambda order: l1_step_factor(order, 0.2),
    "l1_weights_on_grid": lambda order: l1_weights_on_grid(order, T),
    "memory_weights": lambda order: memory_weights(order, 3),
    "memory_weights_on_grid": lambda order: memory_weights_on_grid(order, T),
    "memory_matrix": lambda order: memory_matrix(order, 3),
    "compress_differences": lambda order: compress_differences(order, max_lag=100),
    "caputo_derivative": lambda order: caputo_derivative(SAMPLES, order=order, step_size=0.1),
    "fractional_integral": lambda order: fractional_integral(SAMPLES, order=order, step_size=0.1),
}
BAD_ORDERS = [
    (0, r"order must lie in \(0, 1\], got 0.0; order=1 is a plain residual network"),
    (-0.5, r"order must lie in \(0, 1\], got -0.5"),
    (1.5, r"order must lie in \(0, 1\], got 1.5"),
    (float("nan"), r"order must lie in \(0, 1\], got nan"),
    (torch.tensor([0.5, 2.0]), r"order must lie in \(0, 1\], got 2.0"),
    (torch.tensor(0), r"order must be a floating-point tensor in \(0, 1\], got dtype torch.int64; convert"),
    ("half", r"order must be a number or a tensor in \(0, 1\], got 'half' of type str"),
    (None, r"order must be a number or a tensor in \(0, 1\], got None of type NoneType"),
    (True, r"order must be a number or a tensor in \(0, 1\], got True of type bool"),
]


@pytest.mark.parametrize("name", TAKES_ORDER)
@pytest.mark.parametrize(("order", "message"), BAD_ORDERS)
def test_a_wrong_order(name, order, message):
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match=message):
        TAKES_ORDER[name](order)


BAD_CALLS = [
    (lambda: memory_matrix(torch.tensor([0.5, 0.6]), 3), r"order must be one number or one for each of the 3 steps"),
    (lambda: l1_weights_on_grid(torch.rand(2, 2) / 2 + 0.1, T), r"order must be one number or one for each of the 4"),
    (
        lambda: compress_differences(0.5, max_lag=50)(torch.tensor([60])),
        r"lags must lie in \[32, 50\], got 60 … 60; compress for a larger max_lag",
    ),
    (lambda: l1_step_factor(0.5, torch.tensor(2)), "step_size must be floating-point, got dtype torch.int64"),
    (lambda: fdeint(3, Y0, T, order=0.5), "func must be callable as func\\(t, y\\), got int; pass a function"),
    (lambda: fdeint(zero, Y0, T, order=0.5, options={"compress": "all"}), "compress must be True, False or 'auto'"),
    (
        lambda: fdeint(lambda t, y: y.float(), Y0, T, order=0.5),
        "func must return the state's dtype torch.float64, got torch.float32 at t = .*; convert its constants, or y0",
    ),
    (
        lambda: fdeint(lambda t, y: y / (t - 0.5), Y0, T, order=0.5, method="l1", grid=Given()),
        r"func must return finite numbers, got NaN or infinity at t = 0.5 in y\[0\]; check func there, or solve for",
    ),
    (
        lambda: fdeint(lambda t, y: y.mul_(-1), Y0, T, order=0.5),
        "func must not change the state it is given, but it wrote into it at t = .*; later times remember",
    ),
    (lambda: l1_weights(0.5, -1), "n must be at least 0, got -1; pass a larger whole number"),
    (lambda: l1_weights(0.5, 2.0), "n must be a whole number, got 2.0 of type float"),
    (lambda: l1_weights(0.5, True), "n must be a whole number, got True of type bool"),
    (lambda: memory_weights(0.5, 0), "n must be at least 1, got 0"),
    (lambda: l1_step_factor(0.5, 0), "step_size must be positive and finite, got 0; the step is the time"),
    (lambda: l1_step_factor(0.5, "a"), "step_size must be a positive number, got 'a' of type str"),
    (
        lambda: l1_step_factor(0.5, torch.tensor([0.1, -1.0])),
        "step_size must be positive and finite, got -1.0",
    ),
    (
        lambda: l1_weights_on_grid(0.5, []),
        "t must hold at least 2 times, got 0; the first is the initial time",
    ),
    (
        lambda: l1_weights_on_grid(0.5, ["a"]),
        r"t must be numbers, got \['a'\] of type list",
    ),
    (
        lambda: l1_weights_on_grid(0.5, [[0.0, 1.0]]),
        r"t must be one-dimensional, got shape \(1, 2\); pass one",
    ),
    (lambda: l1_weights_on_grid(0.5, [0j, 1j]), "t must hold real numbers, got dtype torch.complex128"),
    (
        lambda: l1_weights_on_grid(0.5, [0.0, float("nan")]),
        r"t must be finite, got nan at index \[1\]; remove",
    ),
    (
        lambda: fdeint(zero, Y0, [0.0, 1.0, 1.0], order=0.5),
        r"t must increase strictly, got t\[1\] = 1.0 and t\[2\]",
    ),
    (
        lambda: fdeint(zero, Y0, [1.0, 0.0], order=0.5),
        r"t must increase, got times that decrease .*memory begins at t\[0\]",
    ),
    (lambda: fdeint(zero, Y0, [0.0], order=0.5), "t must hold at least 2 times, got 1"),
    (
        lambda: fdeint(zero, ["one"], T, order=0.5),
        r"y0 must be numbers, got \['one'\] of type list; pass a list, NumPy array or tensor of numbers",
    ),
    (
        lambda: fdeint(zero, Y0.long(), T, order=0.5),
        "y0 must be real floating-point numbers, got dtype int64",
    ),
    (lambda: fdeint(zero, Y0 / 0, T, order=0.5), r"y0 must be finite, got inf at index \[0\]"),
    (
        lambda: fdeint(zero, Y0, T, order=torch.tensor([0.5, 0.6, 0.7])),
        r"order must broadcast against the state's shape \(2,\), got shape \(3,\); pass one number",
    ),
    (
        lambda: fdeint(zero, Y0, T, order=0.5, method="rk4"),
        "method must be one of 'auto', 'collocation', 'adams', .*got 'rk4'",
    ),
    (
        lambda: fdeint(lambda t, y: y[:1], Y0, T, order=0.5),
        r"func must return a tensor of the state's shape \(2,\), got \(1,\) at t = .*; check what func",
    ),
    (
        lambda: fdeint(lambda t, y: 0.0, Y0, T, order=0.5),
        "func must return a tensor of the state's shape.*got float",
    ),
    (lambda: graded_mesh(0.0, 4), "T must be positive and finite, got 0.0; T is the final time"),
    (lambda: graded_mesh(1.0, 0), "n must be at least 1, got 0"),
    (lambda: graded_mesh(1.0, 4, 0.5), "grading must be at least 1, got 0.5; 1 is uniform"),
    (lambda: graded_mesh(1.0, 4, 1e4), "grading must leave the steps above the smallest float, got 10000.0"),
    (
        lambda: compress_differences(torch.tensor([0.5, 0.6]), max_lag=50),
        r"order must be one number here, got shape \(2,\); call once for each",
    ),
    (lambda: compress_differences(0.5, max_lag=50, min_lag=1), "min_lag must be at least 2, got 1"),
    (lambda: compress_differences(0.5, max_lag=5), "max_lag must be at least 32, got 5"),
    (
        lambda: compress_differences(0.5, max_lag=50, compress_tol=1e-16),
        r"compress_tol must lie in \[1e-11, 1\), got 1e-16",
    ),
    (
        lambda: mittag_leffler(1.0, 2.5),
        r"order must lie in \(0, 2\], got 2.5; choose a number above 0 and not above 2",
    ),
    (lambda: mittag_leffler(1.0, "half"), r"order must be a number or a tensor in \(0, 2\], got 'half' of type str"),
    (lambda: mittag_leffler(1.0, torch.tensor(1)), r"order must be a floating-point tensor in \(0, 2\], got dtype"),
    (
        lambda: mittag_leffler(1.0, 0.5, torch.tensor([1.0, -1.0])),
        r"beta must be positive and finite, got -1.0 at index \[1\]; pass a positive number",
    ),
    (
        lambda: mittag_leffler(1.0, 0.5, 0.0),
        "beta must be positive and finite, got 0.0; pass a positive number",
    ),
    (lambda: mittag_leffler(float("nan"), 0.5), "z must be finite, got nan; remove NaN and inf"),
    (
        lambda: mittag_leffler_matrix(torch.ones(2, 3), 0.5),
        r"A must be square in its last two dimensions, and not empty, got shape \(2, 3\); pass",
    ),
    (
        lambda: mittag_leffler_matrix([[float("inf")]], 0.5),
        r"A must be finite, got inf at index \[0, 0\]; remove NaN",
    ),
    (lambda: mittag_leffler_matrix(torch.eye(2), 0.0), r"order must lie in \(0, 2\], got 0.0"),
    (
        lambda: mittag_leffler_matrix(torch.eye(2), 0.5, torch.ones(2)),
        r"beta must be one number here, got shape \(2,\); call once for each",
    ),
    (
        lambda: mittag_leffler_matrix(torch.eye(2), 0.5, scale=1j),
        "scale must hold real numbers, got complex ones; multiply A by them instead",
    ),
    (lambda: mittag_leffler("1", 0.5), "z must be numbers, got '1' of type str"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS)
def test_bad_arguments(call, message):
    with pytest.raises(FracdnnError, match=message):
        call()


BAD_SAMPLES = [
    (
        (np.arange(5),),
        {"step_size": 0.1},
        "values must be real floating-point numbers, got dtype int64; convert",
    ),
    (
        (np.arange(5) + 0j,),
        {"step_size": 0.1},
        "values must be real floating-point numbers, got dtype complex128",
    ),
    (
        ([1.0, 2.0],),
        {"step_size": 0.1},
        "values must be a NumPy array or a torch tensor of floats, got list",
    ),
    ((np.array(["a", "b"]),), {"step_size": 0.1}, "values must be.*got ndarray of dtype <U1; convert"),
    (
        (np.array([0.0, np.nan]),),
        {"step_size": 0.1},
        r"values must be finite, got nan at index \[1\]; fill in",
    ),
    (
        (np.array([1.0]),),
        {"step_size": 0.1},
        r"values must hold at least 2 values along the first axis, got",
    ),
    ((SAMPLES,), {}, "exactly one of step_size and t must be given, got neither; pass step_size= for equal"),
    ((SAMPLES,), {"step_size": 0.1, "t": SAMPLES}, "exactly one of step_size and t must be given, got both"),
    ((SAMPLES,), {"t": SAMPLES[:3]}, "t must have one time per sample, got 3 times for 5 samples"),
    ((SAMPLES,), {"t": SAMPLES[::-1].copy()}, "t must increase strictly"),
    ((SAMPLES,), {"step_size": 0.0}, "step_size must be positive and finite, got 0.0"),
    ((SAMPLES,), {"step_size": torch.full((5,), 0.1)}, r"step_size must be one number here, got shape \(5,\); pass t="),
    ((SAMPLES,), {"step_size": 0.1, "side": "up"}, "side must be one of 'left', 'right', got 'up'"),
    ((SAMPLES,), {"step_size": 0.1, "order": torch.tensor([0.5, 0.6])}, r"order must be one number here"),
]


@pytest.mark.parametrize("function", [caputo_derivative, fractional_integral])
@pytest.mark.parametrize(("arguments", "options", "message"), BAD_SAMPLES)
def test_bad_samples(function, arguments, options, message):
    with pytest.raises(FracdnnError, match=message):
        function(*arguments, **{"order": 0.5, **options})


def test_errors_inherit_the_usual_ones():
    with pytest.raises(ValueError, match="order"):
        l1_weights(2.0, 3)
    with pytest.raises(TypeError, match="order"):
        l1_weights("0.5", 3)
