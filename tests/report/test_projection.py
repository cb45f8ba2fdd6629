"""The plane of the answers: it holds them, its shares are those of their spread, and its second axis tells apart."""

import numpy as np
import pytest

from fracdnn.report.inside import answer_plane

RNG = np.random.default_rng(0)
STATES = RNG.standard_normal((300, 6)) @ RNG.standard_normal((6, 6))


def held(states, directions, answers):
    """The share of the spread of the answers that is linear in the plane."""
    places = (states - states.mean(0)) @ directions.T
    left = answers - answers.mean(0)
    fitted = places @ np.linalg.lstsq(places, left, rcond=None)[0]
    return (fitted**2).sum() / (left**2).sum()


@pytest.mark.parametrize(("n_classes", "whole"), [(2, True), (3, True), (6, False)])
def test_shares_are_what_the_plane_holds_of_the_scores(n_classes, whole):
    W = RNG.standard_normal((n_classes, 6))
    scores = STATES @ (W - W.mean(0)).T
    directions, shares = answer_plane(STATES, W, classifies=True)
    spread = np.linalg.svd(scores - scores.mean(0), compute_uv=False) ** 2
    assert shares.sum() == pytest.approx(spread[:2].sum() / spread.sum())
    assert held(STATES, directions, scores) >= shares.sum() - 1e-9
    assert (shares.sum() == pytest.approx(1)) == whole


def test_what_all_classes_share_does_not_count():
    """A softmax does not notice it, however large it is."""
    W = np.array([[1.0, 0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0, 0]]) + 100 * np.eye(6)[5]
    directions, _ = answer_plane(STATES, W, classifies=True)
    np.testing.assert_allclose(np.abs(directions[0]) / np.abs(directions[0]).max(), np.eye(6)[0], atol=1e-9)


def test_the_second_axis_of_one_value_does_not_go_with_it():
    W = RNG.standard_normal((1, 6))
    directions, shares = answer_plane(STATES, W, classifies=False)
    across, up = (STATES @ directions.T).T
    assert abs(np.corrcoef(across, (STATES @ W.T)[:, 0])[0, 1]) == pytest.approx(1)
    assert abs(np.corrcoef(across, up)[0, 1]) < 1e-9
    assert shares.tolist() == [1, 0]
    # No other direction without correlation spreads more.
    together = STATES.T @ (across - across.mean())
    for other in RNG.standard_normal((50, 6)):
        other = other - together * (other @ together) / (together @ together)
        assert (STATES @ other).std() / np.linalg.norm(other) <= up.std() + 1e-9


def test_states_that_are_all_the_same():
    directions, shares = answer_plane(np.ones((5, 6)), RNG.standard_normal((3, 6)), classifies=True)
    assert shares.tolist() == [0, 0]
    assert np.isfinite(directions).all()
