r"""
A battery's constant-phase element
==================================

The electrodes of batteries and supercapacitors are rough, and charge them as one may, their capacitors are not quite
capacitors: current and voltage are related by :math:`Q\,d_t^\gamma v = i`, a *constant-phase element*, whose phase is
:math:`\gamma \cdot 90^\circ` at every frequency. The usual model is a series resistance, then such an element with a
resistance beside it:

.. math:: v(t) = R_0\,i(t) + u(t), \qquad Q\,d_t^\gamma u = i(t) - u / R_1 .

Here the current of a drive is given, the voltage is simulated with noise, and the four numbers are found again from the
two traces, by the solver and its gradient. The data are synthetic: the truth is known, so the errors can be judged.
"""

# %%
# Current in, voltage out
# -----------------------
# The current jumps every few seconds. ``breakpoints`` tells the solver when, so that a step ends at every jump and no
# digits are lost there.

import os

import matplotlib.pyplot as plt
import numpy as np
import torch

from fracdnn import fdeint
from fracdnn.report.figures import BLUE, GREEN, GREY, ORANGE, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(0)
names = ("order γ", "R₀, mΩ", "R₁, mΩ", "Q, s^γ/mΩ")
truth = torch.tensor([0.75, 12.0, 30.0, 0.4])
duration, samples, noise = (24.0, 48, 1.0) if small else (42.0, 140, 1.0)  # s, one, mV

jumps = torch.arange(0, duration, 6.0)
amperes = torch.tensor(rng.choice([-4.0, -2.0, 0.0, 2.0, 4.0], len(jumps)))
amperes[:3] = torch.tensor([4.0, -4.0, 0.0])
times = torch.linspace(0, duration, samples + 1)[1:]


def current(t):
    """A at time t: the level since the last jump."""
    return amperes[torch.searchsorted(jumps, torch.as_tensor(t), right=True) - 1]


def voltage(order, series, beside, q):
    """What is measured at the samples, in mV; the element starts without charge."""

    def charging(t, u):
        return (current(t) - u / beside) / q

    steps = {"options": {"breakpoints": jumps[1:]}, "rtol": 1e-3, "atol": 1e-2}
    return series * current(times) + fdeint(charging, 0.0, torch.cat([torch.zeros(1), times]), order=order, **steps)[1:]


measured = voltage(*truth) + torch.tensor(rng.normal(0, noise, samples))


# %%
# Two fits
# --------
# One with a capacitor, order 1, one with the order free; both start from the same wrong guess. The logarithms of the
# resistances and of :math:`Q` are fitted, and the logit of the order, so that all stay where they belong.
# ``backward()`` goes through the solver, for the order as for the rest. The standard errors come from the curvature
# of the misfit at its least, by differences of that gradient.


def parameters(raw, free_order=True):
    return torch.cat([raw[:1].sigmoid() if free_order else torch.ones(1), raw[1:].exp()])


def misfit(found):
    """Minus the log-likelihood, but for a constant."""
    return (voltage(*found) - measured).square().sum() / (2 * noise**2)


def fit(*start, free_order):
    """Order, two resistances and Q."""
    raw = torch.cat([torch.tensor(start[:1]).logit(), torch.tensor(start[1:]).log()]).requires_grad_()
    optimizer = torch.optim.LBFGS([raw], max_iter=32, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = misfit(parameters(raw, free_order)) / samples
        loss.backward()
        return loss

    optimizer.step(closure)
    return parameters(raw.detach(), free_order)


def standard_errors(found):
    shifts = 1e-2 * found.diag()
    slopes = [torch.func.grad(misfit)(found + sign * shift) for shift in shifts for sign in (1, -1)]
    curvature = (torch.stack(slopes[::2]) - torch.stack(slopes[1::2])) / (2e-2 * found.unsqueeze(1))
    return torch.linalg.inv((curvature + curvature.T) / 2).diagonal().sqrt()


capacitor = fit(0.9, 10.0, 20.0, 0.5, free_order=False)
element = fit(0.9, 10.0, 20.0, 0.5, free_order=True)
errors = standard_errors(element)
print(f"{'':12}{'truth':>8}{'found':>9}{'error':>9}   with a capacitor")
for row in zip(names, truth, element, errors, capacitor, strict=True):
    print("{:12}{:8.3f}{:9.3f} ± {:.3f}   {:12.3f}".format(*row))
left = {}
for name, parameters in (("capacitor", capacitor), ("element", element)):
    left[name] = (measured - voltage(*parameters)).detach()
    print(f"{name}: {left[name].square().mean().sqrt():.2f} mV are left, of which {noise:.2f} mV are noise")

# %%
# On the left the traces. The capacitor's errors are systematic, largest after a jump: one exponential has one time
# scale and the element has all of them, so the fit takes the fastest part for series resistance, which comes out too
# large, and has no room for the slowest, so that the other resistance comes out too small. On the right, what the
# fits say about alternating current, which was never measured: the impedance over all frequencies, where an element
# gives the flattened arc that electrochemists know and a capacitor a semicircle, and the phase of the element by
# itself.

figure = plt.figure(figsize=(10, 5.4), layout="constrained")
axes = figure.subplot_mosaic(
    [["current", "nyquist"], ["voltage", "nyquist"], ["left", "phase"]],
    height_ratios=(1, 2.2, 1.5),
    width_ratios=(1.25, 1),
)
axes["current"].step(times, current(times), where="post", color=GREEN)
axes["current"].set(ylabel="current, A", xticklabels=[], ylim=(-5, 5), yticks=(-4, 0, 4))
axes["voltage"].plot(times, measured, ".", color=GREY, markersize=4, label="measured")
axes["voltage"].plot(times, voltage(*capacitor), color=BLUE, label="capacitor")
axes["voltage"].plot(times, voltage(*element), color=VERMILION, label="element")
axes["voltage"].set(ylabel="voltage, mV", xticklabels=[])
axes["voltage"].legend(frameon=False, ncols=3, fontsize="small")
for name, color in (("capacitor", BLUE), ("element", VERMILION)):
    axes["left"].plot(times, left[name], color=color, linewidth=1)
axes["left"].axhspan(-2 * noise, 2 * noise, color=ORANGE, alpha=0.2, linewidth=0)
axes["left"].set(xlabel="time, s", ylabel="left over, mV")
frequencies = torch.logspace(-5, 4, 400)  # Hz


def admittance(order, q):
    """Of the element alone."""
    return q * (2j * torch.pi * frequencies) ** order


for (order, series, beside, q), color, style, label in (
    (truth, GREY, "-", "truth"),
    (capacitor, BLUE, "-", "capacitor"),
    (element, VERMILION, "--", "element"),
):
    z, width = series + 1 / (1 / beside + admittance(order, q)), 5 if label == "truth" else 2
    axes["nyquist"].plot(z.real, -z.imag, style, color=color, linewidth=width, label=label)
    axes["phase"].semilogx(
        frequencies, -torch.angle(1 / admittance(order, q)).rad2deg(), style, color=color, linewidth=width
    )
axes["nyquist"].set(
    xlabel="Re Z, mΩ",
    ylabel="−Im Z, mΩ",
    aspect="equal",
    ylim=(0, 18),
    title=f"order {element[0]:.3f} ± {errors[0]:.3f}, truth {truth[0]:.2f}",
)
axes["nyquist"].legend(frameon=False, ncols=3, loc="upper center", fontsize="small")
axes["phase"].set(xlabel="frequency, Hz", ylabel="−phase, degrees", ylim=(55, 95), yticks=(60, 75, 90))
for each in axes.values():
    each.grid(alpha=0.25)
plt.show()

# %%
# What this page claims, checked:

assert ((element - truth).abs() < 4 * errors).all()
assert left["element"].square().mean().sqrt() < 1.2 * noise < 0.8 * left["capacitor"].square().mean().sqrt()
assert capacitor[1] > truth[1] + 0.4
assert capacitor[2] < 0.75 * truth[2]
