"""Values in many digits, from definitions that share nothing with the library's formulas."""

import mpmath
import numpy as np


def l1_weight(order: float, m: int) -> mpmath.mpf:
    """a_m = (m+1)^(1−order) − m^(1−order), with a_0 = 1."""
    with mpmath.workdps(60):
        exponent = 1 - mpmath.mpf(order)
        return mpmath.mpf(1) if m == 0 else mpmath.mpf(m + 1) ** exponent - mpmath.mpf(m) ** exponent


def l1_difference(order: float, m: int) -> mpmath.mpf:
    with mpmath.workdps(60):
        return l1_weight(order, m - 1) - l1_weight(order, m)


def mittag_leffler(z: complex, alpha: float, beta: float) -> mpmath.mpc:
    """By the power series where it is feasible, else by the Hankel contour along the branch cut."""
    if alpha == beta == 1:
        return mpmath.exp(z)
    radius = abs(z) ** (1 / alpha)
    if radius < 30 or (alpha > 0.5 and radius < 120):
        return _by_series(z, alpha, beta, radius)
    return _by_branch_cut(z, alpha, beta)


def _by_series(z: complex, alpha: float, beta: float, radius: float) -> mpmath.mpc:
    with mpmath.workdps(int(40 + radius)):
        a, b, z_exact = mpmath.mpf(alpha), mpmath.mpf(beta), mpmath.mpmathify(z)
        total, power, k = mpmath.mpf(0), mpmath.mpf(1), 0
        while True:
            term = power * mpmath.rgamma(a * k + b)
            total += term
            if a * k > 1.5 * radius + 10 and abs(term) < mpmath.eps * abs(total):
                return +total
            k, power = k + 1, power * z_exact


def mittag_leffler_derivatives(z: complex, alpha: float, beta: float) -> list[mpmath.mpc]:
    """By z, alpha and beta, and twice by z: the power series term by term."""
    radius = abs(z) ** (1 / alpha)
    with mpmath.workdps(int(30 + radius)):
        a, b, z_exact = mpmath.mpf(alpha), mpmath.mpf(beta), mpmath.mpmathify(z)
        totals, k = [mpmath.mpf(0)] * 4, 0
        while True:
            x = a * k + b
            coefficient = mpmath.rgamma(x)
            power = z_exact**k * coefficient
            slope = -mpmath.psi(0, x) * power
            by_z = k * z_exact ** (k - 1) * coefficient if k else 0
            twice = k * (k - 1) * z_exact ** (k - 2) * coefficient if k > 1 else 0
            terms = [by_z, k * slope, slope, twice]
            totals = [total + term for total, term in zip(totals, terms, strict=True)]
            small = all(abs(term) <= mpmath.eps * abs(total) for term, total in zip(terms, totals, strict=True))
            if a * k > 1.5 * radius + 10 and small:
                return totals
            k += 1


def _by_branch_cut(z: complex, alpha: float, beta: float) -> mpmath.mpc:
    """Below the cut inwards, once around the unit circle, above the cut outwards; plus the pole's residue."""
    with mpmath.workdps(20):
        a, b, z_exact = mpmath.mpf(alpha), mpmath.mpf(beta), mpmath.mpmathify(z)

        def along(angle, r):  # the integrand at r·e^(iπ·angle), without e^s
            return r ** (a - b) * mpmath.expjpi(angle * (a - b)) / (r**a * mpmath.expjpi(angle * a) - z_exact)

        cuts = mpmath.quad(lambda r: mpmath.exp(-r) * (along(-1, r) - along(1, r)), [1, 3, 8, 20, 60])
        circle = mpmath.quad(
            lambda x: mpmath.exp(mpmath.expjpi(x)) * along(x, 1) * 1j * mpmath.pi * mpmath.expjpi(x),
            list(np.linspace(-1, 1, 5)),
        )
        total = (cuts + circle) / (2j * mpmath.pi)
        if abs(mpmath.arg(z_exact)) < a * mpmath.pi:
            pole = mpmath.exp(mpmath.log(z_exact) / a)
            total += mpmath.exp(pole) * pole ** (1 - b) / a
        return total
