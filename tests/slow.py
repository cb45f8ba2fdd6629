"""Which of many variants `make test` runs; the others wait for `make test-slow`."""

import pytest


def slow_but(chosen, variants):
    """For `parametrize`: slow where a variant is not among the chosen; a tuple has a value for each argument."""
    chosen, variants = list(chosen), list(variants)
    assert all(each in variants for each in chosen)
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=() if each in chosen else pytest.mark.slow)
        for each in variants
    ]
