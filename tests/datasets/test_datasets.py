from pathlib import Path

import numpy as np
import pytest

from fracdnn.datasets import load_perfume, make_level_set, make_peaks
from fracdnn.exceptions import InvalidArgumentError

PERFUME = Path(__file__).parents[3] / "shared" / "data" / "perfume.csv"
needs_perfume = pytest.mark.skipif(not PERFUME.exists(), reason="the perfume table is not beside the checkout")


def test_level_set():
    X, y = make_level_set(1000, random_state=0)
    assert X.shape == (1000, 2)
    assert X.min() >= 0
    assert X.max() <= 1
    np.testing.assert_array_equal(y, X[:, 0] <= X[:, 1])
    np.testing.assert_array_equal(X, make_level_set(1000, random_state=0)[0])
    assert not np.array_equal(X, make_level_set(1000, random_state=1)[0])


def test_peaks():
    X, values = make_peaks(20_000, random_state=0)
    assert np.abs(X).max() <= 3
    assert values.max() == pytest.approx(8.1, abs=0.1)  # its highest peak and lowest hollow
    assert values.min() == pytest.approx(-6.55, abs=0.1)


@needs_perfume
def test_perfume():
    perfume = load_perfume(PERFUME)
    assert perfume.data.shape == (560, 2)
    assert len(perfume.target_names) == 20
    assert len(np.unique(perfume.data, axis=0)) == 152
    assert perfume.data[:, 0].min() == 46
    assert perfume.data[:, 0].max() == 85
    assert perfume.data[0].tolist() == [64, 558]
    X_train, X_test, y_train, y_test = perfume.split_by_time()
    assert len(X_train) == len(X_test) == 280
    assert (np.bincount(y_train) == 14).all()
    assert (np.bincount(y_test) == 14).all()


@needs_perfume
def test_a_table_without_a_heading_is_the_same(tmp_path):
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(PERFUME.read_text().splitlines()[1:]), encoding="utf-8")
    np.testing.assert_array_equal(load_perfume(bare).data, load_perfume(PERFUME).data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "path must name a readable file, got .*: No such file or directory; get the table 'Perfume Data'"),
        ("", "path must hold 20 lines of a name and 28 readings, got 0 lines"),
        ("a,1,2\n", "path must hold 20 lines of a name and 28 readings, got 1 lines"),
        ("\n".join(["a" + ",1" * 27 + ",x"] * 20), "path must hold whole numbers as readings"),
    ],
)
def test_bad_tables(tmp_path, content, message):
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=message):
        load_perfume(path)


def test_bad_counts():
    with pytest.raises(InvalidArgumentError, match="n must be at least 1, got 0"):
        make_level_set(0)
    with pytest.raises(InvalidArgumentError, match="n must be at least 1, got 0"):
        make_peaks(0)
