r"""
Does a drug leave by a power law?
=================================

The textbook says that a drug leaves the blood by :math:`c' = -k c`. If molecules are held up on their way for times
without a typical length, it is :math:`d_t^\gamma c = -k^\gamma c` instead. Do measurements need an order below 1, do
they need it more than a second compartment, and do they determine it at all?

Two classic data sets, measured in people: indometacin in plasma after an injection (six subjects), and theophylline
after a dose by mouth (twelve).
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import fracdnn
from fracdnn.datasets import load_measured
from fracdnn.fitting.named_models import dose, relaxation
from fracdnn.report.figures import BLUE, GREY, PURPLE, VERMILION

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
hours, plasma = load_measured("indometacin")  # [6, 11] each
if small:
    hours, plasma = hours[:3], plasma[:3]

# %%
# One order for all
# -----------------
# Each subject has a dose and a rate of their own; the order is one for all of them. Several data sets in one fit share
# the parameters that have the same name. Errors are equal parts of the concentration, so logarithms are fitted.


def one_compartment(subject):
    def model(t, order, **own):
        return torch.log(
            relaxation(
                t, own[f"size{subject}"], 1 / own[f"rate{subject}"], order, 0.0
            )
        )

    return model


def two_compartments(subject):
    def model(t, **own):
        names = ("size", "fast", "more", "slow")
        size, fast, more, slow = (own[f"{name}{subject}"] for name in names)
        return torch.log(
            size * torch.exp(-(fast + slow) * t) + more * torch.exp(-slow * t)
        )

    return model


people = range(len(hours))
rates = {
    f"{name}{i}": (start, 1e-3, None)
    for i in people
    for name, start in (("size", 3.0), ("rate", 1.0))
}
slow = {
    f"{name}{i}": (start, 1e-3, None)
    for i in people
    for name, start in (
        ("size", 2.0),
        ("fast", 2.0),
        ("more", 0.5),
        ("slow", 0.2),
    )
}
together = {
    "t": list(hours),
    "data": list(np.log(plasma)),
    "sigma": [1.0] * len(hours),
    "absolute_sigma": False,
}
held = {"order": {"value": 1.0, "vary": False}}
fits = {
    "ordinary": fracdnn.fit(
        [one_compartment(i) for i in people],
        held | rates,
        intervals=False,
        **together,
    ),
    "fractional": fracdnn.fit(
        [one_compartment(i) for i in people],
        {"order": (0.9, 0.3, 1.0)} | rates,
        **together,
    ),
    "two compartments": fracdnn.fit(
        [two_compartments(i) for i in people], slow, intervals=False, **together
    ),
}
n = plasma.size
corrected = {}
print(f"{'indometacin':18}parameters     AIC    AICc     BIC")
for name, result in fits.items():
    count = len(result.free) + 1  # and the size of the errors
    corrected[name] = result.aic + 2 + 2 * count * (count + 1) / (n - count - 1)
    print(
        f"{name:18}{len(result.free):10}{result.aic:8.1f}"
        f"{corrected[name]:8.1f}{result.bic:8.1f}"
    )
low, high = fits["fractional"].intervals["order"]
print(
    f"order {fits['fractional'].values['order']:.2f},"
    f" 95 % interval {low:.2f} to {high:.2f}"
)

# %%
# The order is well determined and far from 1, if there is one compartment. One order for all does most of what a
# second compartment does, which takes two more numbers for each subject. AIC finds these worth their price; AICc and
# BIC, which charge more for parameters where measurements are few, prefer the order. A power law over one and a half
# decades of time looks like two exponentials, and the other way round: these data cannot say which is true.
#
# A dose by mouth
# ---------------
# With absorption, :math:`c(t) = s\,(1 - e^{-k_a t}) - k\,I^\gamma c(t)`, which loses no drug; at order 1 it is the
# textbook's model. Here every second subject is fitted alone, and the question is what ten values say of an order.

times, levels = load_measured("theophylline")
subjects = range(0, 12, 4 if small else 2)
start = {
    "size": (12.0, 0.0, None),
    "absorption": (1.5, 0.0, None),
    "rate": (0.1, 0.0, None),
    "order": (0.9, 0.3, 1.0),
}
rows, curves = [], {}
for subject in subjects:
    t, c = (
        times[subject, 1:],
        levels[subject, 1:],
    )  # nothing could have arrived at time 0
    result = fracdnn.fit(dose, start, t, c)
    rows.append((result.values["order"], *result.intervals["order"]))
    curves[subject] = result
order, lowest, highest = np.array(rows).T
print(
    f"theophylline: intervals reach 1 in {(highest > 0.999).sum()}"
    f" of {len(rows)} subjects"
)
print(curves[0].summary())

# %%
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(12, 4), layout="constrained"
)
for name, color, style in (
    ("ordinary", GREY, ":"),
    ("fractional", VERMILION, "-"),
    ("two compartments", BLUE, "--"),
):
    left.semilogy(
        hours[0],
        np.exp(fits[name].sets[0].fitted),
        style,
        color=color,
        label=name,
    )
left.semilogy(hours[0], plasma[0], "ko", markersize=4)
left.set(
    xlabel="hours after the injection",
    ylabel="mg/l",
    title="Indometacin, subject 1",
)
profile = fits["fractional"].profiles["order"]
middle.plot(
    profile.values, np.sqrt(profile.excess), "o-", color=VERMILION, markersize=4
)
middle.axhline(1, color=GREY, linewidth=1, linestyle="--")
middle.set(
    xlabel="order, indometacin",
    ylabel="√(Δχ² / limit)",
    ylim=(0, 2),
    title="Inside the interval below the line",
)
right.errorbar(
    order,
    list(subjects),
    xerr=[order - lowest, highest - order],
    fmt="o",
    color=PURPLE,
    capsize=3,
)
right.axvline(1, color=GREY, linewidth=1)
right.set(
    xlabel="order, theophylline", ylabel="subject", title="95 % intervals"
)
left.legend(frameon=False)
for axes in (left, middle, right):
    axes.grid(alpha=0.25)
plt.show()

# %%
# The intervals of these subjects all end at 1: an order of 1 is not excluded, and few measurements late in time leave
# room for much less. So an order below 1 is a compact description of indometacin, not a proof of memory.
#
# What this page claims, checked:

assert 0.7 < low < high < 0.95
assert small or fits["fractional"].bic < min(
    fits["ordinary"].bic, fits["two compartments"].bic
)
assert small or corrected["fractional"] < min(
    corrected["ordinary"], corrected["two compartments"]
)
assert small or fits["two compartments"].aic < fits["fractional"].aic
assert (highest > 0.999).all()
