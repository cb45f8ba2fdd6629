"""The known solutions solve their equations."""

import mpmath
import pytest

from tests.solver.problems import KNOWN


@pytest.mark.parametrize("problem", KNOWN, ids=lambda problem: problem.name)
def test_the_known_solution_solves_the_integral_equation(problem):
    """u(t) = u_0 + t u_0' + 1/Γ(γ) ∫_0^t (t − s)^(γ−1) func(s, u(s)) ds, with t − s = t x^(1/γ) for the kernel."""
    with mpmath.workdps(24):
        order, end = mpmath.mpf(problem.order), mpmath.mpf(problem.span)
        places = [0] + [(1 - mpmath.mpf(10) ** -k) ** order for k in (1, 2, 4, 6, 8, 10, 14)] + [1]

        def slope(x):
            s = end * (1 - x ** (1 / order))
            return problem.func(s, problem.exact(s))

        integral = end**order / mpmath.gamma(order + 1) * mpmath.quad(slope, places, maxdegree=6)
        found = problem.value + end * (problem.slope or 0) + integral
        assert abs(found - problem.exact(end)) < 1e-13 * max(1, abs(problem.func(end, problem.exact(end))))
