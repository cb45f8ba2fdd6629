"""Random cases tried one after the other; of those that fail the simplest is shown, with a script that repeats it.

A case is a frozen dataclass of plain values, and a check a function of it that raises where something is wrong.
"""

from dataclasses import fields

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.campaign import budget

# What counts as nothing but rounding where all is 0, as the loss of a single class: numbers here are of the order of 1.
SMALLEST = 1e-2


def try_cases(name, strategy, check, count):
    """Draw so many cases and check each; what the checks gave."""
    results = []

    @seed(budget.seed_of(name))
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(strategy)
    def try_one(case):
        try:
            with torch.random.fork_rng():
                results.append(check(case))
        except BaseException as error:
            error.add_note(script(check, case))
            raise

    try:
        try_one()
    finally:
        budget.say_tried(name, len(results))
    return results


def script(check, case):
    """To be run in the root of the repository; what a case leaves at its default is left out."""
    values = [(field.name, getattr(case, field.name), field.default) for field in fields(case)]
    given = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
    imports = [f"from {each.__module__} import {each.__name__}" for each in (type(case), check)]
    return "\n".join(["To repeat it:", "", *imports, "", f"{check.__name__}({type(case).__name__}({given}))", ""])


def assert_same(found, expected, tolerance, *, together=False, coarse=False):
    """Tensors by name, each within `tolerance` of its norm, or of the largest norm where errors mix (`together`).

    `coarse` is for numbers of eight bits: they mix, and where numbers of the order of 1 cancel, what is left of them is
    rounding of those; so no scale is below that of as many ones.

    Where something should vanish, rounding of the others is left: no scale is below a thousandth of the largest.
    """
    assert found.keys() == expected.keys()
    norms = {name: float(value.detach().double().norm()) for name, value in expected.items()}
    largest = max(SMALLEST, *norms.values())
    for name, value in expected.items():
        mine = found[name]
        assert mine is not None, f"{name} is missing"
        assert mine.shape == value.shape, f"{name}: shape {tuple(mine.shape)} for {tuple(value.shape)}"
        scale = largest if together or coarse else max(norms[name], 1e-3 * largest)
        scale = max(scale, value.numel() ** 0.5) if coarse else scale
        error = float((mine.detach().double() - value.detach().double()).norm())
        assert error <= tolerance * scale, f"{name}: off by {error:.3g} at a scale of {scale:.3g}"
