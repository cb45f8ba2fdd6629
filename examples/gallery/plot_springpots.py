r"""
How many numbers describe a polymer melt?
=========================================

A spring answers strain, a dashpot answers its first derivative, and a *springpot* what lies between:
:math:`\sigma = V\,d_t^\alpha \gamma`. Two of them in series are the fractional Maxwell model, with four numbers:

.. math:: \sigma + \frac{V}{G}\,d_t^{\alpha-\beta} \sigma = V\,d_t^\alpha \gamma .

Does it describe a real melt? The data are those of a branched polyethylene at 160 °C (Dow's LDPE 150R), measured in
oscillation and in shear. They are read from the wheel of RepTate 1.3.3 (J. Ramírez and V. A. H. Boudara, GPL), a
program for the rheology of polymers, which is fetched from PyPI once and not installed. Where that cannot be done,
the page is made with synthetic data, and every title says so.
"""

# %%
# The data
# --------

import os
from math import gamma

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.optimize import least_squares

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.datasets import load_measured
from fracdnn.exceptions import DownloadError
from fracdnn.report.figures import BLUE, GREY, ORANGE, PURPLE, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))


def model_modulus(frequency, v, alpha, g, beta):
    """Storage and loss modulus as one complex number."""
    return 1 / (
        1 / (v * (1j * frequency) ** alpha) + 1 / (g * (1j * frequency) ** beta)
    )


def synthetic():
    """Synthetic data: a fractional Maxwell model with noise of 5 %."""
    rng = np.random.default_rng(0)
    frequency = np.geomspace(6e-4, 270, 128)
    modulus = model_modulus(frequency, 1.45e5, 0.87, 2.6e4, 0.34)
    noisy = modulus.real * rng.lognormal(
        0, 0.05, 128
    ) + 1j * modulus.imag * rng.lognormal(0, 0.05, 128)
    return frequency, noisy


try:
    frequency, modulus = load_measured("polyethylene moduli")
    shear, title = load_measured("polyethylene shear"), "LDPE at 160 °C"
except DownloadError as error:
    print(error)
    (frequency, modulus), shear, title = synthetic(), None, "synthetic data"
print(
    f"{title}: {len(frequency)} frequencies over"
    f" {np.log10(frequency[-1] / frequency[0]):.1f} decades"
)

# %%
# Springpots against Maxwell's modes
# ----------------------------------
# The usual answer to so wide a spectrum is a sum of Maxwell elements, a spring and a dashpot each, two numbers an
# element. How many does it take?


def maxwell(frequency, *parameters):
    strength, time = np.exp(parameters).reshape(2, -1, 1)
    return (strength * 1j * frequency * time / (1 + 1j * frequency * time)).sum(
        0
    )


def fractional(frequency, v, alpha, g, beta):
    return model_modulus(frequency, np.exp(v), alpha, np.exp(g), beta)


def liquid(frequency, v, g, beta):
    return fractional(frequency, v, 1.0, g, beta)


models = {
    f"Maxwell, {n} mode{'s' * (n > 1)}": (
        maxwell,
        [*[9.0] * n, *np.log(np.geomspace(0.01, 200, n))],
    )
    for n in range(1, 7)
}
models["springpot and dashpot"] = (liquid, [12.0, 9.0, 0.3])
models["two springpots"] = (fractional, [12.0, 0.95, 9.0, 0.3])


def logs(values):
    return np.concatenate([np.log(values.real), np.log(values.imag)])


fits, n = {}, 2 * len(frequency)
print(f"{'':24}numbers   error     AIC     BIC")
for name, (model, start) in models.items():
    fit = least_squares(
        lambda p, model=model: logs(model(frequency, *p)) - logs(modulus), start
    )
    deviance, count = (
        n * np.log(2 * np.pi * 2 * fit.cost / n) + n,
        len(start) + 1,
    )
    fits[name] = (
        fit.x,
        np.sqrt(2 * fit.cost / n),
        deviance + 2 * count,
        deviance + count * np.log(n),
    )
    print(
        f"{name:24}{len(start):7}  {fits[name][1]:6.1%}"
        f"  {fits[name][2]:7.1f} {fits[name][3]:7.1f}"
    )

(v, alpha, g, beta), error, *_ = fits["two springpots"]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.4), layout="constrained", width_ratios=(1.5, 1)
)
left.loglog(
    frequency, modulus.real, "o", color=BLUE, markersize=4, label="storage $G'$"
)
left.loglog(
    frequency, modulus.imag, "s", color=ORANGE, markersize=4, label="loss $G''$"
)
fine = np.geomspace(frequency[0] / 3, frequency[-1] * 3, 200)
for name, style, color in (
    ("two springpots", "-", VERMILION),
    ("Maxwell, 2 modes", ":", GREY),
):
    values = models[name][0](fine, *fits[name][0])
    left.loglog(fine, values.real, style, color=color, label=name)
    left.loglog(fine, values.imag, style, color=color)
left.set(
    xlabel="frequency, rad/s",
    ylabel="modulus, Pa",
    title=f"{title}: orders {alpha:.2f} and {beta:.2f}",
    ylim=(10, 1e6),
)
left.legend(frameon=False)
for kind, color, marker in (
    (maxwell, GREY, "o"),
    (liquid, PURPLE, "D"),
    (fractional, VERMILION, "s"),
):
    of_kind = [
        (len(start), fits[name][1])
        for name, (model, start) in models.items()
        if model is kind
    ]
    right.semilogy(*zip(*of_kind, strict=True), marker + "-", color=color)
right.annotate(
    "sums of Maxwell modes",
    (4, fits["Maxwell, 2 modes"][1]),
    (4.6, 0.9),
    color=GREY,
)
right.annotate(
    "springpot and dashpot",
    (3, fits["springpot and dashpot"][1]),
    (0.3, 0.12),
    color=PURPLE,
)
right.annotate(
    "two springpots", (4, error), (4.5, error * 0.85), color=VERMILION
)
right.set(
    xlabel="numbers fitted",
    ylabel="error (root mean square of logarithms)",
    xlim=(0, 13),
)
right.set_yticks([0.03, 0.1, 0.3, 1], ["3 %", "10 %", "30 %", "100 %"])
right.minorticks_off()
for axes in (left, right):
    axes.grid(alpha=0.25)

# %%
# A prediction in time
# --------------------
# The fit saw oscillations of small amplitude only. It also says how stress grows when the melt is suddenly sheared at
# a constant rate, as long as the strain is small: with :math:`\gamma = \dot\gamma t` the right-hand side is
# :math:`V \dot\gamma\,t^{1-\alpha} / \Gamma(2-\alpha)`, and ``fdeint`` solves the equation for the stress. Beside it,
# how stress relaxes after a sudden strain:
# :math:`G(t) = G\,t^{-\beta} E_{\alpha-\beta,\,1-\beta}(-\frac{G}{V} t^{\alpha-\beta})`.

v, g = np.exp([v, g])
times = torch.cat([torch.zeros(1), torch.logspace(-1, 3.3, 60)]).double()


def growth(t, viscosity):
    return g / v * (v * t ** (1 - alpha) / gamma(2 - alpha) - viscosity)


envelope = fdeint(growth, 0.0, times, order=alpha - beta).numpy()[
    1:
]  # stress over rate, Pa·s
times = times[1:].numpy()
relaxation = (
    g
    * times**-beta
    * mittag_leffler(
        torch.tensor(-g / v * times ** (alpha - beta)), alpha - beta, 1 - beta
    ).numpy()
)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.2), layout="constrained"
)
left.loglog(
    times,
    envelope,
    color=VERMILION,
    linewidth=2.5,
    label="predicted from oscillation",
)
miss = None
if shear is not None:
    rate, (t, stress) = 0.03, shear
    keep = (t > times[0]) & (t < times[-1])
    t, viscosity = t[keep], stress[keep] / rate
    left.loglog(
        t,
        viscosity,
        "o",
        color=BLUE,
        markersize=3.5,
        label=f"measured at {rate:g} 1/s",
    )
    left.axvline(0.3 / rate, color=GREY, linewidth=1)
    left.annotate("strain 0.3", (0.33 / rate, 1.2 * envelope[0]), color=GREY)
    expected = np.exp(np.interp(np.log(t), np.log(times), np.log(envelope)))
    miss = np.log(viscosity / expected)[rate * t < 0.3]
left.set(
    xlabel="time since the start, s",
    ylabel="stress / rate, Pa s",
    title=f"Start of shear, {title}",
)
left.legend(frameon=False)
right.loglog(
    times, relaxation, color=VERMILION, linewidth=2.5, label="two springpots"
)
strength, time = np.exp(fits["Maxwell, 2 modes"][0]).reshape(2, -1, 1)
two_modes = (strength * np.exp(-times / time)).sum(0)
right.loglog(
    times[two_modes > 1],
    two_modes[two_modes > 1],
    ":",
    color=GREY,
    linewidth=2,
    label="two Maxwell modes",
)
right.set(
    xlabel="time since the strain, s",
    ylabel="stress / strain, Pa",
    ylim=(1, 1e5),
    title="Relaxation, predicted",
)
right.legend(frameon=False)
for axes in (left, right):
    axes.grid(alpha=0.25)
plt.show()
if miss is not None:
    print(
        f"start of shear, strains below 0.3: {len(miss)} measurements,"
        f" off by {np.sqrt((miss**2).mean()):.0%}"
        f" (mean {np.expm1(miss.mean()):+.0%})"
    )

# %%
# Look at the right of the first picture: two springpots, four numbers, stand where sums of Maxwell modes need two or
# three times as many. Enough modes do fit better in the end, and BIC takes them, but their twelve numbers say little,
# where two orders say that the melt is between solid and liquid over all these decades. On the left of the second
# picture, the measurements run along the predicted line, somewhat below, as the printed number says, and leave it
# where the strain has become large and the equation no longer holds. The model has
# limits of its own: its viscosity grows for ever, like :math:`t^{1-\alpha}`, where that of a melt becomes steady, and
# at the lowest frequencies it overestimates :math:`G'`.
#
# What this page claims, checked:

assert error < 0.1
assert fits["two springpots"][3] < min(
    fits[f"Maxwell, {n} modes"][3] for n in (2, 3, 4)
)
assert fits["two springpots"][3] < fits["springpot and dashpot"][3]
assert miss is None or np.sqrt((miss**2).mean()) < 0.3
