"""Which of many variants `make test` runs; the others wait for `make test-slow`."""

from itertools import product

import pytest


def slow_but(chosen, variants):
    """For `parametrize`: slow where a variant is not among the chosen; a tuple has a value for each argument."""
    chosen, variants = list(chosen), list(variants)
    assert all(each in variants for each in chosen)
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=() if each in chosen else pytest.mark.slow)
        for each in variants
    ]


def each_once(*axes):
    """For `parametrize`: all combinations, slow but for as few as hold every value of each axis once."""
    axes = [list(axis) for axis in axes]
    chosen = {tuple(k % len(axis) for axis in axes) for k in range(max(map(len, axes)))}
    places = product(*(range(len(axis)) for axis in axes))
    return [
        pytest.param(
            *(axis[k] for axis, k in zip(axes, place, strict=True)), marks=() if place in chosen else pytest.mark.slow
        )
        for place in places
    ]
