"""The benchmark of prediction intervals: its measures, and what the page shows of its results."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.intervals import MODELS, pinball, records_in, rendered
from records.pages import filled

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_shows_the_published_results():
    text, records = (DOCS / "estimators.md").read_text(encoding="utf-8"), records_in(DOCS / "results")
    assert filled(text, "intervals", lambda _: rendered(records)) == text
    assert {run["model"] for run in records.runs} == set(MODELS)
    ours = [run for run in records.runs if run["model"] == "fracdnn"]
    assert abs(np.mean([run["coverage"] for run in ours]) - 0.9) < 0.02


def test_the_pinball_loss_is_least_at_the_quantile():
    y = np.random.default_rng(0).exponential(size=20_000)
    losses = [pinball(y, np.full(len(y), end), 0.95) for end in (2.5, -np.log(0.05), 3.5)]
    assert np.argmin(losses) == 1
    assert pinball(np.array([1.0, 4.0]), np.array([2.0, 2.0]), 0.9) == pytest.approx((0.1 + 1.8) / 2)
