"""The Mittag-Leffler function in the formula of RheoJAX 0.7.1, and ours: largest relative errors against mpmath.

`python -m benchmarks.rheojax --out docs/results/rheojax.json --page docs/calculus.md`. RheoJAX itself requires JAX and
Python 3.12. This is its published formula for z < 0 and 0 < α < 1, written again in NumPy. The published code, run with
JAX 0.10 in float64 on these points, has the same largest errors, except at α = β = 0.5, where rounding decides (60 %):

    E(z) ≈ (1 − w) A(min(z, z₀)) + w T(z),   w = 1/(1 + e^(−(z − z₀)/δ)),   z₀ = −0.9 − 7.1 α,   δ = 0.1 + 0.4 α,
    T(z) = Σ_{k=0}^{299} z^k/Γ(αk + β),   A(z) = −Σ_{k=1}^{20} z^(−k)/Γ(β − αk),   and A(z) alone for z < z₀ − 4 δ.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from scipy.special import expit, gammaln, rgamma

from fracdnn.caputo import mittag_leffler
from records.keeping import Records, made_with
from records.pages import fill_page, filled

ORDERS, POINTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95), np.linspace(-10.0, -1.0, 91)


def by_rheojax(z: np.ndarray, order: float, beta: float) -> np.ndarray:
    """The formula above, in float64."""
    middle, width = -0.9 - 7.1 * order, 0.1 + 0.4 * order
    k = np.arange(300)
    series = ((-1.0) ** k * np.exp(k * np.log(-z[:, None]) - gammaln(order * k + beta))).sum(1)
    k = np.arange(1, 21)
    expansion = -(np.minimum(z, middle)[:, None] ** -k * rgamma(beta - order * k)).sum(1)
    share = np.where(z < middle - 4 * width, 0.0, expit((z - middle) / width))
    return (1 - share) * expansion + share * series


def exact(z: float, order: float, beta: float) -> float:
    """By the power series in as many digits as it cancels."""
    radius = abs(z) ** (1 / order)
    with mpmath.workdps(int(30 + radius)):
        alpha, shift = mpmath.mpf(order), mpmath.mpf(beta)
        terms = (mpmath.mpf(z) ** k * mpmath.rgamma(alpha * k + shift) for k in range(int((4 * radius + 60) / order)))
        return float(mpmath.fsum(terms))


FORMULAS: dict[str, Callable[..., Any]] = {"rheojax": by_rheojax, "fracdnn": mittag_leffler}


def errors(order: float, beta: float) -> dict[str, Any]:
    """The largest relative error of each formula, and where it is."""
    truth = np.array([exact(float(z), order, beta) for z in POINTS])
    found: dict[str, Any] = {}
    for name, formula in FORMULAS.items():
        relative = np.abs(formula(POINTS, order, beta) / truth - 1)
        found |= {name: float(relative.max()), f"{name}_at": round(float(POINTS[relative.argmax()]), 3)}
    return found


def rendered(records: Records) -> str:
    """A line for each order."""
    lines = ["| order | RheoJAX, β = 1 | β = order | fracdnn, β = 1 | β = order |", "| --- | --- | --- | --- | --- |"]
    for order in ORDERS:
        runs = [records.get({"order": order, "beta": beta}) or {} for beta in (1.0, order)]
        cells = [f"{100 * run['rheojax']:.3g} % at z = {run['rheojax_at']:g}" for run in runs]
        cells += [f"{run['fracdnn']:.1g}" for run in runs]
        lines.append(f"| {order} | {' | '.join(cells)} |")
    return "\n".join(lines)


def records_in(path: Path) -> Records:
    return Records(path, ("order", "beta"), rheojax="0.7.1", z=[POINTS[0], POINTS[-1], len(POINTS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="fill in the table of this page")
    options = parser.parse_args()
    records, made = records_in(options.out), made_with(("mpmath", "scipy"))
    for order in ORDERS:
        for beta in (1.0, order):
            job = {"order": order, "beta": beta}
            if records.get(job) is None:
                records.add({**job, **errors(order, beta), "made_with": made})
    print(rendered(records))
    if options.page is not None:
        fill_page(options.page, lambda text: filled(text, "rheojax", lambda _: rendered(records)))


if __name__ == "__main__":
    main()
