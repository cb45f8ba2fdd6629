"""The report of a fitted estimator: what the file holds, and what a reader sees and does with it in a browser."""

import copy
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics import confusion_matrix, log_loss, r2_score

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.datasets import make_level_set, make_peaks
from fracdnn.estimators.reliability import Reliability
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.report.html import write_report
from fracdnn.report.subject import subject_of
from fracdnn.report.texts import number
from fracdnn.training import History
from fracdnn.version import versions
from tests.report.cases import CASES, INJECTION, Elements, page_of, quick
from tests.slow import each_once

CLASSES = {"Confusion matrix", "Confidence and accuracy", "ROC curve", "Importance of columns", "Training"}
VALUES = {"Observed and predicted", "Importance of columns", "Training"}


def headings_of(path):
    return set(re.findall(r"<h2>(.*?)</h2>", page_of(path)))


class TestFile:
    def test_says_what_it_shows(self, cases):
        estimator, X, y, path = cases["iris"]
        page = Elements(page_of(path))
        assert page.all("html") == [{"lang": "en"}]
        assert "Report of iris" in page.text
        assert (
            f"accuracy {number(estimator.score(X, y))} on 38 held-out rows" in page.text
        )  # as `fracdnn evaluate` does
        assert f"{estimator.order_:.4g}, learned, from 0.5" in page.text
        for heading in (
            "Confusion matrix",
            "Confidence and accuracy",
            "Importance of columns",
            "How the prediction depends",
            "Training",
            "The network",
        ):
            assert heading in page.text
        for row in ("file", "optimizer", "adam", "torch"):
            assert row in page.text

    @pytest.mark.parametrize("name", CASES)
    def test_every_picture_is_there_and_small(self, cases, name):
        estimator, _, _, path = cases[name]
        page = Elements(page_of(path))
        assert headings_of(path) >= (CLASSES if isinstance(estimator, FractionalClassifier) else VALUES)
        assert len(page.all("svg")) >= 4
        assert page.all("script") == []
        assert path.stat().st_size < 2e6
        assert not re.search(r"<t[dh][^>]*></t[dh]>", page_of(path))

    def test_confusion_matrix_counts(self, cases):
        estimator, X, y, _ = cases["twenty"]
        assert subject_of(estimator, X, y).confusions.tolist() == confusion_matrix(y, estimator.predict(X)).tolist()

    def test_reliability_is_told(self, cases):
        estimator, X, y, path = cases["twenty"]
        probabilities = estimator.predict_proba(X)
        text = Elements(page_of(path)).text
        assert number(log_loss(y, probabilities)) in text
        assert number(Reliability.of(probabilities, estimator.predict(X) == y).error) in text

    def test_regression_shows_the_score(self, cases):
        estimator, X, y, path = cases["peaks"]
        assert number(r2_score(y, estimator.predict(X))) in Elements(page_of(path)).text

    def test_scatter_plots_say_how_many_rows_they_show(self, cases):
        assert "These are 1,000 of 2,500 rows" in page_of(cases["level set"][3])

    def test_decision_regions_are_shown_for_two_columns(self, cases):
        assert "Decision regions" in headings_of(cases["level set"][3])
        assert "Decision regions" not in headings_of(cases["iris"][3])

    def test_names_are_never_markup(self, cases):
        path = cases["bad names"][3]
        page = page_of(path)
        assert INJECTION not in page
        elements = Elements(page)
        assert elements.text.count(INJECTION) >= 4  # title twice, details, the table of classes
        assert not elements.all("script")
        assert not elements.all("b")

    def test_same_numbers_give_the_same_file(self, cases, tmp_path):
        estimator, X, y, path = cases["iris"]
        again = write_report(
            str(tmp_path / "again.html"), estimator, X, y, title="Report of iris", details={"file": "Report of iris"}
        )
        assert again.read_bytes() == path.read_bytes()

    def test_says_why_columns_are_left_out_and_tells_versions_once(self, cases, tmp_path):
        estimator, X, y, _ = cases["iris"]
        path = write_report(
            tmp_path / "report.html",
            estimator,
            X,
            y,
            title="",
            columns=[{"column": "comment", "kind": "unused", "missing": "", "what became of it": "it is <empty>"}],
            trained_with={**versions(), "torch": "1.0"},
        )
        text = Elements(page_of(path)).text
        assert "How each column is used" in text
        assert "left out" in text
        assert "<td>–</td>" in page_of(path)
        assert "1 column left out: “comment”." in text
        assert "it is <empty>" in text
        assert text.count(versions()["numpy"]) == 1
        assert f"1.0 (report: {versions()['torch']})" in text

    def test_features_have_the_names_that_were_given_later(self, cases):
        """As the command line does with an estimator that was fitted to bare numbers."""
        estimator, X, y, _ = cases["level set"]
        named = copy.copy(estimator)
        named.feature_names_in_ = np.array(["strength", "quality"], dtype=object)
        assert subject_of(named, X, y).features == ["strength", "quality"]

    def test_takes_arrays_where_a_table_was_fitted(self, cases, tmp_path):
        estimator, X, y, _ = cases["iris"]
        path = write_report(tmp_path / "report.html", estimator, X.to_numpy(), y, title="array")
        assert "Details" not in Elements(page_of(path)).text


class TestEdges:
    def write(self, tmp_path, estimator, X, y):
        return write_report(tmp_path / "report.html", estimator, X, y, title="edge")

    def test_one_class(self, tmp_path):
        X, y = np.arange(12.0).reshape(6, 2), np.zeros(6, dtype=int)
        path = self.write(tmp_path, quick().fit(X, y), X, y)
        assert "accuracy 1 on 6 held-out rows, which are all of class “0”" in page_of(path)

    @pytest.mark.parametrize(("n_features", "kind"), each_once([1, 2, 5], [FractionalClassifier, FractionalRegressor]))
    def test_one_sample(self, tmp_path, kind, n_features):
        X, y = make_blobs(30, n_features, centers=2, random_state=0)
        path = self.write(tmp_path, quick(kind, width=n_features).fit(X, y), X[:1], y[:1])
        text = Elements(page_of(path)).text
        assert ("undefined" in text) == (kind is FractionalRegressor)
        assert "Nothing to compare with" in text

    def test_no_history(self, tmp_path):
        X, y = make_blobs(30, 2, centers=2, random_state=0)
        estimator = quick().fit(X, y)
        estimator.history_ = History()
        path = self.write(tmp_path, estimator, X, y)
        assert "ended before its first iteration" in page_of(path)

    def test_losses_that_are_not_finite(self, tmp_path):
        X, y = make_blobs(30, 2, centers=2, random_state=0)
        estimator = quick(n_layers=8).fit(X, y)
        document = estimator.history_.to_dict()
        document["records"][-1] |= {"loss": float("nan"), "layer_gradients": [0.0, float("inf"), *[1.0] * 6]}
        estimator.history_ = History.from_dict(document)
        assert "Training" in headings_of(self.write(tmp_path, estimator, X, y))

    def test_class_that_training_has_not_seen(self, tmp_path):
        X, y = make_blobs(60, 2, centers=3, random_state=0)
        estimator = quick().fit(X[y < 2], y[y < 2])
        counts = subject_of(estimator, X, y).confusions
        assert counts.sum(axis=1).tolist() == [20, 20, 20]
        assert counts[:, 2].tolist() == [0, 0, 0]
        assert "undefined" in Elements(page_of(self.write(tmp_path, estimator, X, y))).text  # the log-loss

    def test_several_outputs(self, tmp_path):
        X, y = make_peaks(50, random_state=0)
        path = self.write(tmp_path, quick(FractionalRegressor).fit(X, np.c_[y, -y]), X, np.c_[y, -y])
        assert "output 2" in page_of(path)

    def test_many_rows_of_a_deep_network(self, tmp_path):
        X, y = make_level_set(3000, random_state=0)
        estimator = quick(width=None, n_layers=300, max_iter=1).fit(X[:50], y[:50])
        assert self.write(tmp_path, estimator, X, y).stat().st_size < 2e6

    def test_errors_name_the_argument(self, cases, tmp_path):
        estimator, X, y, _ = cases["iris"]
        path = tmp_path / "report.html"
        with pytest.raises(InvalidTypeError, match="estimator must be a FractionalClassifier or"):
            write_report(path, PCA(), X, y, title="")
        with pytest.raises(NotFittedError):
            write_report(path, FractionalClassifier(), X, y, title="")
        with pytest.raises(
            InvalidArgumentError, match="ids must name each of the 38 rows of X, got 2; pass one per row"
        ):
            write_report(path, estimator, X, y, title="", ids=[1, 2])
        with pytest.raises(InvalidArgumentError, match="y must hold a label for each of the 38 samples"):
            write_report(path, estimator, X, y[:-1], title="")
        regressor, X, y, _ = cases["peaks"]
        with pytest.raises(InvalidArgumentError, match="y must have 1 columns as in fit"):
            write_report(path, regressor, X, np.c_[y, y], title="")
        assert not path.exists()


@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
def test_frames_with_categories_and_holes(kind, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"color": rng.choice(["red", "blue"], 80), "length": rng.normal(size=80)})
    y = ((frame["color"] == "red") ^ (frame["length"] > 0)).astype(int).to_numpy()
    frame.loc[::9, "length"] = np.nan
    estimator = quick(kind).fit(frame[:60], y[:60])
    subject = subject_of(estimator, frame[60:], y[60:])
    assert subject.features == ["color=blue", "color=red", "length", "length is missing"]
    np.testing.assert_array_equal(subject.predicted.reshape(-1), estimator.predict(frame[60:]))
    page = page_of(write_report(tmp_path / "report.html", estimator, frame[60:], y[60:], title="Frames"))
    score = estimator.score(frame[60:], y[60:])
    assert number(score) in page
    assert estimator.n_features_in_ == 2
    assert not estimator.encoding_.is_plain
