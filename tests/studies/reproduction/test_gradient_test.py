import numpy as np
import pytest

from reproduction.arms import step_factor
from reproduction.gradient_test import GradientTest, _problem, compare

SMALL = GradientTest(n_layers=10, n_samples=30, increments=(3e-3, 1e-3, 3e-4))


@pytest.mark.parametrize("order", [1.0, 0.5, 0.1])
def test_the_exact_adjoint_meets_central_differences_with_second_order(order):
    found = compare(SMALL, order, "exact")
    assert found.cosine == pytest.approx(1.0)
    for errors in found.errors.values():
        assert abs(np.polyfit(np.log(SMALL.increments), np.log(errors), 1)[0] - 2) < 0.15


def test_the_first_layer_is_compared_with_the_first_layer():
    norms = []
    for adjoint in ("continuous", "exact"):
        groups, loss = _problem(SMALL, 0.1, adjoint)
        loss().backward()
        norms.append(groups["K"][0].grad[0].norm().item())
    found = compare(SMALL, 0.1, "continuous")
    assert found.first_layer == pytest.approx(norms[0] / norms[1])
    assert found.first_layer_with_c == pytest.approx(found.first_layer * step_factor(0.1, SMALL.step_size))
    assert compare(SMALL, 0.1, "exact").off == {"K": 0.0, "b": 0.0}


@pytest.mark.parametrize("order", [1.0, 0.5, 0.1])
def test_the_printed_adjoint_does_so_for_the_class_map_only(order):
    found = compare(SMALL, order, "continuous")
    assert min(found.errors["W"]) < 1e-5
    assert min(found.errors["K"]) > 1e-2
    assert min(found.errors["b"]) > 1e-2
    assert found.first_layer > 2
