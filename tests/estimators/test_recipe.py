"""What "auto" means, by the size of the table."""

import pytest

from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.recipe import Recipe, resolve_recipe

ROWS = {
    "n_members": [(1, 1), (9, 1), (10, 8), (4999, 8), (5000, 5), (19_999, 5), (20_000, 2), (99_999, 2), (100_000, 1)],
    "max_iter": [(0, 100), (1, 100), (10_000, 100), (10_101, 99), (50_000, 20), (100_000, 10), (10**8, 10)],
    "batch_size": [(1, 32), (256, 32), (257, 64), (512, 64), (513, 128), (1025, 256), (65_535, 256), (65_536, 1024)],
    "holds_out": [(9, False), (10, True), (10**8, True)],
}


@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
@pytest.mark.parametrize(("name", "n", "expected"), [(name, *each) for name, found in ROWS.items() for each in found])
def test_the_number_of_rows_decides(kind, name, n, expected):
    assert getattr(resolve_recipe(kind(), n, 4), name) == expected


def test_bins_go_with_the_number_of_inputs():
    assert [resolve_recipe(FractionalClassifier(), 100, n).n_bins for n in (1, 128, 129)] == [8, 8, 0]


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
def test_iterations_on_all_samples_do_not_depend_on_their_number(optimizer):
    estimator = FractionalRegressor(optimizer=optimizer)
    assert {resolve_recipe(estimator, n, 4).max_iter for n in (1, 10_000, 10**7)} == {60}


def test_what_is_given_is_taken():
    options = {"n_members": 3, "max_iter": 7, "batch_size": 11}
    for n in (1, 10**7):
        for stops in (False, True):
            recipe = resolve_recipe(FractionalClassifier(**options, early_stopping=stops), n, 1000)
            assert recipe == Recipe(**options, n_bins=0, holds_out=stops)
