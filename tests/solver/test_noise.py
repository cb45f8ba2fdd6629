"""Functions whose values scatter: a solve ends, as well as it can, and says so."""

import warnings

import pytest
import torch

from fracdnn.exceptions import NoisyFunctionWarning, NotConvergedError
from fracdnn.solver import fdeint
from tests.references import mittag_leffler
from tests.slow import each_once

ORDER, EXACT = 0.7, float(mittag_leffler(-(2**0.7), 0.7, 1))


class _Rounded(torch.autograd.Function):
    """To some bits of the mantissa, with the derivative of the identity."""

    @staticmethod
    def forward(ctx, x, bits):
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent, None


@pytest.mark.parametrize(("bits", "context"), each_once([8, 10, 14], [torch.no_grad, torch.enable_grad]))
def test_a_rounded_function_is_solved_as_well_as_it_can_be(bits, context):
    with context(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fdeint(lambda t, u: _Rounded.apply(-u, bits), 1.0, [0.0, 2.0], order=ORDER, info=True)
    error = abs(found.states[-1].item() - EXACT)
    assert found.n_evaluations < 60_000
    assert error < 4 * 2.0**-bits
    if error > 20 * (1e-8 + 1e-5 * EXACT):
        assert [type(each.message) for each in caught] == [NoisyFunctionWarning]


def test_the_warning_names_the_noise_and_the_remedy():
    message = (
        r"its values scatter by about \S+ of their size at t = \S+; the solution is about as good as that, not as rtol "
        r"= 1e-05 asks; compute func with more digits .*float32_matmul_precision\('highest'\)"
    )
    with torch.no_grad(), pytest.warns(NoisyFunctionWarning, match=message) as caught:
        fdeint(lambda t, u: _Rounded.apply(-u, 10), 1.0, [0.0, 2.0], order=ORDER)
    assert caught[0].filename == __file__


def test_a_network_in_few_digits_ends():
    """As on a GPU whose matrix products are rounded to ten bits."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
    start, t = torch.randn(160, 16), torch.tensor([0.0, 1.0])
    with torch.no_grad():
        whole = fdeint(lambda t, u: net(u), start, t, order=0.7, rtol=1e-4)[-1]
        with pytest.warns(NoisyFunctionWarning):
            found = fdeint(lambda t, u: net(u.bfloat16().float()), start, t, order=0.7, rtol=1e-4, info=True)
    assert found.n_evaluations < 20_000
    assert float((found.states[-1] - whole).abs().max()) < 0.02


@pytest.mark.parametrize("method", ["trapezoidal", "collocation"])
def test_single_precision_inside_of_double_precision_is_no_failure(method):
    """Equations of fixed steps are solved to what func gives; that is too little to warn of."""
    u = fdeint(lambda t, u: -u.float().double(), 1.0, [0.0, 2.0], order=ORDER, method=method, n_steps=40)
    exact = fdeint(lambda t, u: -u, 1.0, [0.0, 2.0], order=ORDER, method=method, n_steps=40)
    torch.testing.assert_close(u, exact, rtol=1e-6, atol=0)


def test_coarse_functions_of_fixed_steps_are_told_of():
    with pytest.warns(NoisyFunctionWarning, match="the equations of implicit steps are solved to about that only"):
        fdeint(
            lambda t, u: torch.round(-1e3 * u) / 1e3 - 0.5 * torch.sign(torch.sin(1e6 * u)) * 1e-3,
            torch.ones(1, dtype=torch.float64),
            [0.0, 2.0],
            order=ORDER,
            method="trapezoidal",
            n_steps=40,
        )


def test_a_function_that_jumps_with_the_state_ends():
    message = "max_evaluations = 10000 .* func may jump with the state"
    with pytest.raises(NotConvergedError, match=message):
        fdeint(lambda t, u: -u.sign(), 1.0, [0.0, 5.0], order=1.0, options={"max_evaluations": 10_000})


@pytest.mark.parametrize(
    ("start", "dtype"), [(1e15, torch.float64), pytest.param(1e6, torch.float32, marks=pytest.mark.slow)]
)
def test_late_times_that_func_sees_rounded(start, dtype):
    times = torch.tensor([start, start + 1], dtype=dtype)
    y0 = torch.ones((), dtype=dtype)
    with pytest.warns(NoisyFunctionWarning, match=r"times are late: at t = .*; count time from t\[0\]"):
        fdeint(lambda t, u: torch.sin(t.double() - start).to(u) - u, y0, times, order=0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fdeint(lambda t, u: -u, y0, times, order=0.7)
        fdeint(lambda t, u: torch.sin(t) - u, 1.0, [1e9, 1e9 + 1], order=0.7)
