"""What a GPU computes is what a CPU computes: values and gradients of every way to solve."""

import pytest
import torch

from fracdnn import fdeint
from fracdnn.solver import fdeint_delay, fdeint_event, fdeint_mass, fdeint_tempered
from tests.solver.test_large import diffusion

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
F64 = torch.float64


def small(rate):
    start = torch.tensor([1.0, 1e-3], dtype=F64, device=rate.device)
    return fdeint(lambda t, u: -rate * u + u.flip(0) * 1e-3, start, [0.0, 0.5, 1.0], order=0.7)


def batched(rate):
    rates = rate * torch.linspace(0.5, 20.0, 40, dtype=F64, device=rate.device)
    orders = torch.linspace(0.4, 1.6, 40, dtype=F64, device=rate.device)
    start = torch.ones(40, 2, dtype=F64, device=rate.device)
    return fdeint(
        lambda t, u: -rates[:, None] * u + t[:, None].sin(),
        start,
        [0.0, 1.0, 2.0],
        order=orders,
        batched=True,
        options={"slope": torch.zeros_like(start)},
    )


def jumping(rate):
    """With a tuple as state, and breakpoints."""
    rates = rate * torch.linspace(0.5, 20.0, 40, dtype=F64, device=rate.device)
    start = torch.ones(40, dtype=F64, device=rate.device)
    options = {"breakpoints": [0.3, 0.7]}
    return fdeint(
        lambda t, u: (-rates * u[0] + 1.0 * ((t > 0.3) & (t < 0.7)), u[0] - u[1]),
        (start, 0.0 * start),
        [0.0, 1.0],
        order=0.8,
        batched=True,
        options=options,
    )[1]


def events(rate):
    """Of each sample, one of which has none."""
    rates = rate * torch.linspace(0.5, 20.0, 40, dtype=F64, device=rate.device)
    levels = torch.linspace(0.2, 0.6, 40, dtype=F64, device=rate.device)
    levels[0] = -0.01
    time, state = fdeint_event(
        lambda t, u: -rates[:, None] * u,
        torch.ones(40, 2, dtype=F64, device=rate.device),
        0.0,
        event_fn=lambda t, u: u[:, 0] - levels,
        t1=100.0,
        order=0.8,
        batched=True,
        options={"failures": "nan"},
    )
    return state[1:] + time[1:, None].to(rate.device)


def delayed(rate):
    start = torch.ones(2, dtype=F64, device=rate.device)
    return fdeint_delay(lambda t, u, past: -rate * past, start, [0.0, 2.0], order=0.8, delays=(0.7,))


def tempered(rate):
    start = torch.ones(2, dtype=F64, device=rate.device)
    return fdeint_tempered(lambda t, u: -rate * u, start, [0.0, 2.0], order=0.8, tempering=0.3)


def with_mass(rate):
    mass = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=F64, device=rate.device)
    start = torch.ones(2, dtype=F64, device=rate.device)
    return fdeint_mass(lambda t, u: torch.stack([-rate * u[1], u[1] - u[0]]), start, [0.0, 1.0], mass=mass, order=0.8)


def sparse(rate):
    func, start, _ = diffusion(600, rate)
    return fdeint(func, start.to(rate.device), [0.0, 0.1], order=0.6, rtol=1e-6)


def full(rate):
    """More components than a matrix is made for, all of which depend on one another."""
    random = torch.Generator().manual_seed(0)
    left = torch.randn(1600, 40, generator=random, dtype=F64).to(rate.device) / 40
    return fdeint(lambda t, u: -rate * (left @ (left.T @ u) * 30 + u), left.sum(1), [0.0, 1.0], order=0.6)


@pytest.mark.parametrize("solved", [small, batched, jumping, events, delayed, tempered, with_mass, sparse, full])
def test_as_on_a_cpu(solved):
    found = []
    for device in ("cpu", "cuda"):
        rate = torch.tensor(1.3, dtype=F64, device=device, requires_grad=True)
        states = solved(rate)
        assert states.device.type == device
        (slope,) = torch.autograd.grad((states * states).sum(), rate)
        found.append((states.detach().cpu(), slope.cpu()))
    (states, slope), (on_gpu, slope_on_gpu) = found
    torch.testing.assert_close(on_gpu, states, rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(slope_on_gpu, slope, rtol=1e-6, atol=1e-9)
