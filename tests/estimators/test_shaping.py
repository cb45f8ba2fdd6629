"""Clipped inputs and bins between quantiles."""

import numpy as np
import pytest
import torch

from fracdnn.estimators.shaping import Shaping

COUNTING = np.arange(9.0)[:, None]
ONES = np.ones(9)


def test_bins_by_hand():
    shaping = Shaping.of(COUNTING, ONES, 4, None)
    assert (shaping.column.tolist(), shaping.low.tolist(), shaping.width.tolist()) == ([0] * 4, [0, 2, 4, 6], [2] * 4)
    inputs = torch.tensor([[3.0], [0.0], [8.0], [-50.0], [50.0]], dtype=torch.float64)
    found = shaping(inputs, inputs / 10)
    assert found[:, 0].tolist() == [0.3, 0.0, 0.8, -5.0, 5.0]
    low, high = [-0.5] * 4, [0.5] * 4
    assert found[:, 1:].tolist() == [[0.5, 0.0, -0.5, -0.5], low, high, low, high]


def test_inputs_of_few_values_have_no_bins():
    inputs = np.column_stack([np.arange(60) % 2, np.arange(60) % 4, np.arange(60), np.full(60, 3.0)]).astype(float)
    shaping = Shaping.of(inputs, np.ones(60), 8, 3.0)
    assert set(shaping.column.tolist()) == {1, 2}
    assert shaping.n_added == 3 + 8
    assert Shaping.of(inputs, np.ones(60), 0, 3.0).n_added == 0
    assert Shaping.of(inputs[:, [0, 3]], np.ones(60), 8, 3.0).n_added == 0


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1.7e308])
def test_widths_that_vanish_or_overflow_are_no_bins(unit):
    inputs = unit * np.array([-1.0, -0.9, 0.9, 1.0] if unit > 1 else np.arange(9.0))[:, None]
    assert Shaping.of(inputs, np.ones(len(inputs)), 8, None).n_added == 0
    assert Shaping.of(np.sign(inputs) + inputs / unit, np.ones(len(inputs)), 8, None).n_added > 0  # but for its unit


@pytest.mark.parametrize("n_bins", [3, 8])
def test_a_weight_is_a_repetition_to_the_last_bit(n_bins):
    random = np.random.default_rng(0)
    inputs, counts = random.normal(size=(70, 3)), random.integers(0, 5, 70)
    weighted = Shaping.of(inputs, counts.astype(float), n_bins, 3.0)
    repeated = Shaping.of(inputs.repeat(counts, 0), np.ones(counts.sum()), n_bins, 3.0)
    for name in ("column", "low", "width"):
        assert getattr(weighted, name).equal(getattr(repeated, name))


@pytest.mark.parametrize("clip", [3.0, 1e-200, 1e200])
def test_a_clip_bends_and_never_reaches_beyond(clip):
    shaping = Shaping.of(np.empty((0, 0)), np.empty(0), 0, clip)
    z = clip * torch.tensor([[4 / 3, -4 / 3, 0.0, 1e-6, 1e100, -1e100]], dtype=torch.float64)
    expected = clip * torch.tensor([[0.8, -0.8, 0.0, 1e-6, 1.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(shaping(z, z), expected, rtol=1e-12, atol=0.0)


def test_the_farthest_outliers_are_clipped_too():
    z = torch.tensor([[1e200, -1e308, torch.finfo(torch.float64).max]], dtype=torch.float64)
    assert Shaping.of(np.empty((0, 0)), np.empty(0), 0, 3.0)(z, z).tolist() == [[3.0, -3.0, 3.0]]
    assert Shaping.of(np.empty((0, 0)), np.empty(0), 0, None)(z, z).equal(z)


def test_a_document_is_a_shaping():
    shaping = Shaping.of(COUNTING, ONES, 4, 3.0)
    again = Shaping.of_document(vars(shaping), 1)
    assert again(torch.ones(1, 1).double(), torch.ones(1, 1).double()).equal(
        shaping(torch.ones(1, 1).double(), torch.ones(1, 1).double())
    )


@pytest.mark.parametrize(
    "change",
    [
        {"column": torch.tensor([0, 0, 0])},
        {"column": torch.zeros(4)},
        {"low": torch.zeros(4)},
        {name: torch.zeros(2, 2, dtype=torch.float64) for name in ("low", "width")},
        {"column": torch.tensor([0, 0, 0, 1])},
        {"column": torch.tensor([-1, 0, 0, 0])},
        {"low": torch.full((4,), torch.nan, dtype=torch.float64)},
        {"width": torch.zeros(4, dtype=torch.float64)},
        {"width": torch.full((4,), torch.nan, dtype=torch.float64)},
        {"width": torch.full((4,), torch.inf, dtype=torch.float64)},
        {"clip": 0.0},
        {"clip": -3.0},
        {"clip": float("inf")},
        {"clip": float("nan")},
        {"clip": "3"},
    ],
)
def test_a_document_that_is_none(change):
    with pytest.raises(ValueError, match="invalid bins of 1 inputs, or an invalid clip of"):
        Shaping.of_document({**vars(Shaping.of(COUNTING, ONES, 4, 3.0)), **change}, 1)
