"""tanh and exp of the kernel against torch's in double precision."""

import math

import pytest
import torch

pytest.importorskip("numba", reason="the kernel needs Numba")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_and_exp_are_good_to_three_units_in_the_last_place(dtype):
    from numba import njit

    from fracdnn.kernels.small_network import exponential
    from fracdnn.kernels.small_network import tanh as kernel_tanh

    @njit
    def apply(x, tanh, exp):
        one, two, most = x.dtype.type(1), x.dtype.type(2), x.dtype.type(20)
        for i in range(len(x)):
            tanh[i] = kernel_tanh(x[i], one, two, most)
            power, p = exponential(x[i])
            exp[i] = power * p + power

    def both(x):
        found = torch.empty_like(x), torch.empty_like(x)
        apply(x.numpy(), *(each.numpy() for each in found))
        return found

    tiny = 1e-300 if dtype == torch.float64 else 1e-30
    sizes = torch.logspace(math.log10(tiny), 1, 500, dtype=torch.float64).to(dtype)
    x = torch.cat([torch.linspace(-25, 25, 4001, dtype=dtype), sizes, -sizes])
    unit = torch.finfo(dtype).eps / 2
    for found, exact in zip(both(x), (x.double().tanh(), x.double().exp()), strict=True):
        assert ((found.double() - exact).abs() <= 4 * unit * exact.abs()).all()
    special = both(torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0], dtype=dtype))[0].tolist()
    assert special[:2] == [1.0, -1.0]
    assert math.isnan(special[2])
    assert [math.copysign(1.0, value) for value in special[3:]] == [1.0, -1.0]
