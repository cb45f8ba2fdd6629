"""Frames and arrays with categories and holes, as estimators take them."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fracdnn
from fracdnn.container import read_document, write_document
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.cells import Cells
from fracdnn.estimators.encoding import MOST_CATEGORIES, Categories, Encoding, Numbers
from fracdnn.exceptions import FileContentError, InvalidArgumentError, InvalidTypeError
from tests.plain import PLAIN

KINDS = [FractionalClassifier, FractionalRegressor]
N = 120


def small(kind=FractionalClassifier, **options):
    return kind(**{**PLAIN, "solver": "lbfgs", "n_layers": 2, "width": 6, "max_iter": 15, "random_state": 0, **options})


def columns(holes=True, seed=0):
    """Columns of every kind as lists, and what depends on them."""
    rng = np.random.default_rng(seed)
    found = {
        "length": rng.normal(size=N).round(2).tolist(),
        "colour": rng.choice(["red", "green", "blue"], N).tolist(),
        "old": (rng.random(N) > 0.5).tolist(),
        "count": rng.integers(0, 9, N).tolist(),
    }
    y = ((np.array(found["colour"]) == "red") ^ (np.array(found["length"]) > 0)).astype(int)
    if holes:
        found = {name: [None if rng.random() < 0.1 else v for v in values] for name, values in found.items()}
    return found, y


COLUMNS, y = columns()
TABLE = pd.DataFrame(COLUMNS)
INPUTS = ["length", "length is missing", "colour=blue", "colour=green", "colour=red", "colour=(missing)"]
INPUTS += ["old", "old is missing", "count", "count is missing"]


def answers(estimator, X):
    return estimator.predict_proba(X) if isinstance(estimator, FractionalClassifier) else estimator.predict(X)


def by_hand(frame):
    """The inputs of the network, one after the other."""
    old = frame["old"].map({True: 1.0, False: 0.0})
    parts = []
    for name, values in (("length", frame["length"]), ("old", old), ("count", frame["count"])):
        values = values.astype(float)
        parts.append((name, [values.fillna(values.median()), values.isna()]))
    colours = [frame["colour"] == colour for colour in ("blue", "green", "red")]
    parts.insert(1, ("colour", [*colours, frame["colour"].isna()]))
    return np.column_stack([np.asarray(part, dtype=float) for _, several in parts for part in several])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_pandas_and_polars_give_what_encoding_by_hand_gives(kind, dtype):
    estimator = small(kind, dtype=dtype).fit(TABLE, y)
    assert estimator.encoding_.feature_names == INPUTS
    assert estimator.feature_names_in_.tolist() == list(COLUMNS)
    assert estimator.n_features_in_ == 4
    expected = answers(small(kind, dtype=dtype).fit(by_hand(TABLE), y), by_hand(TABLE))
    polars = pl.DataFrame(COLUMNS)
    for frame in (
        TABLE,
        polars,
        TABLE.convert_dtypes(),
        TABLE.astype({"colour": "category"}),
        polars.cast({"colour": pl.Categorical}),
        polars.cast({"colour": pl.Enum(["red", "none", "blue", "green"]), "count": pl.Int8}),
    ):
        np.testing.assert_array_equal(answers(small(kind, dtype=dtype).fit(frame, y), frame), expected)
        np.testing.assert_array_equal(answers(estimator, frame), expected)
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        estimator.predict(TABLE[list(COLUMNS)[::-1]])


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_lists_of_objects_are_columns_too(kind):
    expected = answers(small(kind).fit(TABLE, y), TABLE)
    objects = TABLE.astype(object).to_numpy()
    holes = [TABLE.astype(object).where(TABLE.notna(), hole).to_numpy() for hole in (pd.NA, pd.NaT, Decimal("nan"))]
    for X in (objects, *holes, objects.tolist()):
        estimator = small(kind).fit(X, y)
        np.testing.assert_array_equal(answers(estimator, X), expected)
        assert estimator.encoding_.feature_names[:3] == ["x0", "x0 is missing", "x1=blue"]
    text = np.array([["1.5", "red"], ["2.5", "blue"], ["1.0", "red"]])
    encoding = small(kind).fit(text, [0, 1, 0]).encoding_
    assert encoding.columns == (Numbers(1.5), Categories(("blue", "red")))


@pytest.mark.parametrize("kind", KINDS)
def test_holes_in_arrays(kind):
    X = np.random.default_rng(0).normal(size=(N, 3))
    target = (X[:, 0] > 0).astype(int)
    X[::7, 1] = np.nan
    estimator = small(kind).fit(X, target)
    assert estimator.encoding_.feature_names == ["x0", "x1", "x1 is missing", "x2"]
    median = np.nanmedian(X[:, 1])
    filled = np.column_stack([X[:, 0], np.nan_to_num(X[:, 1], nan=median), np.isnan(X[:, 1]), X[:, 2]])
    expected = answers(small(kind).fit(filled, target), filled)
    np.testing.assert_array_equal(answers(estimator, X), expected)
    np.testing.assert_array_equal(answers(small(kind).fit(csr_array(X), target), csr_array(X)), expected)
    np.testing.assert_array_equal(answers(small(kind).fit(pd.DataFrame(X), target), pd.DataFrame(X)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_holes_that_only_predictions_meet_are_filled_by_the_median(kind, tmp_path):
    given, target = columns(holes=False)
    table = pd.DataFrame(given)
    estimator = small(kind).fit(table, target)
    assert estimator.encoding_.feature_names == ["length", "colour=blue", "colour=green", "colour=red", "old", "count"]
    holed, filled = table.astype({"count": float}), table.astype({"count": float})
    holed.loc[5, ["length", "count"]], filled.loc[5, ["length", "count"]] = np.nan, table[["length", "count"]].median()
    np.testing.assert_array_equal(answers(estimator, holed), answers(estimator, filled))
    X = table[["length", "count"]].to_numpy()
    plain = small(kind).fit(X, target)
    assert plain.encoding_.is_plain
    plain = fracdnn.load(plain.save(tmp_path / "model.fracdnn"))
    X_holed, X_filled = (frame[["length", "count"]].to_numpy() for frame in (holed, filled))
    np.testing.assert_array_equal(answers(plain, X_holed), answers(plain, X_filled))


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_infinity_is_refused(kind, bad):
    good = TABLE[["length", "count"]].to_numpy()
    infinite = good.copy()
    infinite[3, 0] = bad
    for given, finite in ((infinite, good), (TABLE.assign(length=infinite[:, 0]), TABLE)):
        with pytest.raises(ValueError, match="Input X contains infinity or a value too large"):
            small(kind).fit(given, y)
        with pytest.raises(ValueError, match="Input X contains infinity or a value too large"):
            small(kind).fit(finite, y).predict(given)


def test_categories_that_fit_has_not_seen_are_zeros():
    estimator = small().fit(TABLE, y)
    new = TABLE.assign(colour="violet")
    inputs = by_hand(TABLE)
    inputs[:, 2:6] = 0.0
    expected = small().fit(by_hand(TABLE), y).predict_proba(inputs)
    np.testing.assert_array_equal(estimator.predict_proba(new), expected)
    whole = small().fit(TABLE.dropna(), y[TABLE.notna().all(axis=1)])
    np.testing.assert_array_equal(whole.predict_proba(new), whole.predict_proba(TABLE.assign(colour=None)))


def test_the_order_of_a_dtypes_categories_makes_no_difference():
    expected = small().fit(TABLE, y).predict_proba(TABLE)
    for order in (["red", "green", "blue"], ["blue", "unused", "red", "green"]):
        for ordered in (False, True):
            frame = TABLE.assign(colour=pd.Categorical(TABLE["colour"], order, ordered=ordered))
            np.testing.assert_array_equal(small().fit(frame, y).predict_proba(frame), expected)


def test_what_columns_of_objects_are():
    rows = 4
    frame = pd.DataFrame(
        {
            "numbers": pd.Series([1, 2.5, Decimal("3"), None], dtype=object),
            "mixed": pd.Series([1, "1", 2.5, True], dtype=object),
            "booleans": pd.Series([True, np.bool_(False), None, True], dtype=object),
            "digits": pd.Series(["01", "1", None, "1"], dtype="str"),
            "codes": pd.Categorical([1, 2, None, 1]),
            "parts": pd.cut([0.5, 1.5, 0.5, 0.2], [0, 1, 2]),
        }
    )
    encoding = small().fit(frame, np.arange(rows) % 2).encoding_
    assert encoding.columns == (
        Numbers(2.5, holes=True),
        Categories(("1", "2.5", "True")),
        Numbers(1.0, holes=True),
        Categories(("01", "1"), holes=True),
        Categories(("1", "2"), holes=True),
        Categories(("(0, 1]", "(1, 2]")),
    )


def test_numbers_for_categories_and_text_for_numbers():
    """A hole makes floats of a column's integers, and a file may be read otherwise the second time."""
    frame = pd.DataFrame({"code": pd.Categorical([1, 2, 3] * 10), "size": np.arange(30.0)})
    estimator = small().fit(frame, np.arange(30) % 2)
    expected = estimator.predict_proba(frame)
    for other in (
        frame.astype({"code": float}),
        frame.astype({"code": str, "size": str}),
        frame.astype({"code": int, "size": object}),
    ):
        np.testing.assert_array_equal(estimator.predict_proba(other), expected)
    wrong = frame.astype({"size": object})
    wrong.loc[7, "size"] = "<0.5"
    message = r"column 'size' of X must hold finite numbers as in fit, got '<0\.5' in row 7 \(the first is 0\); correct"
    with pytest.raises(InvalidArgumentError, match=message):
        estimator.predict(wrong)
    with pytest.raises(InvalidArgumentError, match="got 'inf' in row 7"):
        estimator.predict(wrong.assign(size=["inf" if k == 7 else "1" for k in range(30)]))


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (pd.to_datetime(["2026-01-01", "2026-01-02"]), r"datetime64\[us\]"),
        (pl.Series([datetime.date(2026, 1, 1)] * 2), "Date"),
        (pl.Series([[1], [2]]), r"List\(Int64\)"),
        (pd.Series([datetime.date(2026, 1, 1)] * 2), "date"),
        (pd.Series([1j, 2]), "complex128"),
        (pd.Series([{"a": 1}, "b"]), "dict"),
        (pd.Series([b"a", b"b"]), "bytes"),
        (pl.Series([b"a", b"b"]), "Binary"),
    ],
)
def test_other_columns_are_refused_with_a_remedy(values, got):
    kind = pl.DataFrame if isinstance(values, pl.Series) else pd.DataFrame
    frame = kind({"a": values, "b": ["c", "d"]})
    message = (
        rf"column 'a' of X must hold numbers, text, categories or booleans, got {got}; leave the column out, or make"
    )
    with pytest.raises(InvalidTypeError, match=message):
        small().fit(frame, [0, 1])
    with pytest.raises(
        InvalidTypeError, match="column 'x0' of X must hold numbers, text, categories or booleans, got dict"
    ):
        small().fit(np.array([[{"a": 1}], ["b"]], dtype=object), [0, 1])
    cells = np.array([[None], ["b"]], dtype=object)
    cells[0, 0] = np.zeros(2)
    with pytest.raises(InvalidTypeError, match=r"column 'x0' of X must hold .*, got ndarray; leave the column out"):
        small().fit(cells, [0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_holes_is_left_out(kind):
    empty = TABLE.assign(nothing=np.nan, never=None)
    with pytest.warns(UserWarning, match="all cells of X are missing in 'nothing', 'never', left out of the model"):
        estimator = small(kind).fit(empty, y)
    np.testing.assert_array_equal(answers(estimator, empty), answers(small(kind).fit(TABLE, y), TABLE))
    np.testing.assert_array_equal(answers(estimator, empty.assign(nothing=1e6, never="a")), answers(estimator, empty))
    with pytest.raises(InvalidArgumentError, match="X must hold a value in some column, got missing cells only; pass"):
        small(kind).fit(np.full((N, 2), np.nan), y)


@pytest.mark.parametrize("seed", range(5))
def test_medians_are_those_of_repeated_numbers(seed):
    rng = np.random.default_rng(seed)
    X, counts = rng.integers(0, 5, (15 + seed, 3)).astype(float), rng.integers(0, 4, 15 + seed)
    X[rng.random(X.shape) < 0.2] = np.nan
    texts = rng.choice(["a", "b", "c"], len(X)).astype(object)
    frame = pd.DataFrame(X).assign(text=texts).rename(columns=str)
    labels = rng.integers(0, 2, len(X))
    weighted = small().fit(frame, labels, sample_weight=counts)
    repeated = small().fit(frame.loc[frame.index.repeat(counts)], labels.repeat(counts))
    assert weighted.encoding_ == repeated.encoding_
    assert [column.median for column in weighted.encoding_.columns[:3]] == np.nanmedian(X.repeat(counts, 0), 0).tolist()
    np.testing.assert_array_equal(weighted.predict_proba(frame), repeated.predict_proba(frame))


def test_the_median_of_huge_numbers_is_finite():
    X = np.array([[1e308, np.nan], [1.7e308, 1.0]])
    encoding = small(FractionalRegressor).fit(X, [0.0, 1.0]).encoding_
    assert encoding.columns[0] == Numbers(1.35e308)


def test_of_many_categories_the_most_frequent_have_an_input_each():
    names = [f"k{j:03d}" for j in range(MOST_CATEGORIES + 5)]
    values = [name for j, name in enumerate(names) for _ in range(1 if j in (3, 40, 77, 78, 79) else 2)]
    frame = pl.DataFrame({"key": values, "x": np.arange(len(values)) % 7})
    target = np.arange(len(values)) % 2
    estimator = small(max_iter=3).fit(frame, target)
    rare = [names[j] for j in (3, 40, 77, 78, 79)]
    assert estimator.encoding_.columns[0] == Categories(tuple(n for n in names if n not in rare), others=True)
    assert estimator.encoding_.feature_names[MOST_CATEGORIES - 1 :] == ["key=k104", "key=(others)", "x"]
    ask = estimator.predict_proba(pl.DataFrame({"key": [*rare, "new"], "x": [1] * 6}))
    assert (ask == ask[0]).all()
    few = small(max_iter=3).fit(frame.filter(~pl.col("key").is_in(rare)), target[[v not in rare for v in values]])
    assert few.encoding_.columns[0] == Categories(tuple(n for n in names if n not in rare))


@pytest.mark.parametrize("kind", KINDS)
def test_pipelines_searches_and_clones(kind):
    scaled = ColumnTransformer([("scale", StandardScaler(), ["length", "count"])], remainder="passthrough")
    pipeline = make_pipeline(scaled.set_output(transform="pandas"), small(kind))
    assert pipeline.fit(TABLE, y)[-1].encoding_.feature_names[0] == "scale__length"
    assert pipeline.predict(TABLE).shape == (N,)
    assert cross_val_score(small(kind, max_iter=40), TABLE, y, cv=3).mean() > (0.7 if kind is KINDS[0] else 0.2)
    search = GridSearchCV(small(kind), {"order": [0.5, 1.0]}, cv=2).fit(pl.DataFrame(COLUMNS), y)
    again = clone(search.best_estimator_)
    assert not hasattr(again, "encoding_")
    np.testing.assert_array_equal(again.fit(TABLE, y).predict(TABLE), search.predict(pl.DataFrame(COLUMNS)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_is_the_saved_one(kind, tmp_path):
    before = small(kind).fit(TABLE, y)
    after = fracdnn.load(before.save(tmp_path / "model.fracdnn"))
    assert after.encoding_ == before.encoding_
    np.testing.assert_array_equal(answers(after, pl.DataFrame(COLUMNS)), answers(before, TABLE))
    after.set_params(warm_start=True).fit(TABLE.assign(colour="violet"), y)
    assert after.encoding_ == before.encoding_


def test_the_first_part_fixes_what_is_known():
    parts = [TABLE[TABLE["colour"] != "red"], TABLE]
    labels = [y[TABLE["colour"] != "red"], y]
    classifier = small().partial_fit(parts[0], labels[0], classes=[0, 1])
    encoding = classifier.encoding_
    assert encoding.columns[1] == Categories(("blue", "green"), holes=True)
    assert classifier.partial_fit(parts[1], labels[1]).encoding_ is encoding
    regressor = small(FractionalRegressor).partial_fit(parts[0], labels[0]).partial_fit(parts[1], labels[1])
    assert regressor.encoding_ == encoding


FORGERIES = [
    lambda columns: columns.pop(),
    lambda columns: columns[0].update(median=float("inf")),
    lambda columns: columns[0].update(median="0"),
    lambda columns: columns[0].update(median=None),
    lambda columns: columns[0].update(holes=1),
    lambda columns: columns[0].update(holes=False),
    lambda columns: columns[0].update(surprise=1),
    lambda columns: columns[1].update(categories=["a", "c", "b"]),
    lambda columns: columns[1].update(categories=["a", "a", "b"]),
    lambda columns: columns[1].update(categories=["a", "b"]),
    lambda columns: columns[1].update(categories=[1, 2, 3]),
    lambda columns: columns[1].update(categories=7),
    lambda columns: columns[1].update(categories=[]),
    lambda columns: columns[1].update(holes=False, others=True),
    lambda columns: columns[1].update(holes=None),
    lambda columns: columns.__setitem__(0, None),
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_an_encoding_that_lies_builds_nothing(forge, tmp_path):
    path = small(max_iter=2).fit(TABLE, y).save(tmp_path / "model.fracdnn")
    document = read_document(path, "model")
    forge(document["encoding"])
    write_document(path, "model", document)
    with pytest.raises(FileContentError, match="must hold a whole model, got a document that does not fit together"):
        fracdnn.load(path)


def test_a_number_of_features_that_lies_takes_no_memory(tmp_path):
    path = small(max_iter=2).fit(TABLE, y).save(tmp_path / "model.fracdnn")
    document = read_document(path, "model")
    document["features"].update(n=10**12, names=None)
    write_document(path, "model", document)
    with pytest.raises(FileContentError, match="other features than the network's"):
        fracdnn.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_earlier_versions_are_read(kind, tmp_path):
    X = TABLE[["length", "count"]].fillna(0.0).to_numpy()
    before = small(kind).fit(X, y)
    path = before.save(tmp_path / "model.fracdnn")
    document = read_document(path, "model")
    del document["encoding"]
    write_document(path, "model", document)
    after = fracdnn.load(path)
    np.testing.assert_array_equal(answers(after, X), answers(before, X))
    holed, mean = X.copy(), X.copy()
    holed[0], mean[0] = np.nan, after.standardization_.mean.numpy()
    np.testing.assert_array_equal(answers(after, holed), answers(after, mean))


def test_export_is_for_numbers(tmp_path):
    message = "fitted to numbers without holes, got categories or missing cells in column 'colour'; encode the columns"
    with pytest.raises(InvalidArgumentError, match=message):
        small(max_iter=2).fit(TABLE[["colour", "length"]], y).export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())
    assert small(max_iter=2).fit(TABLE[["length"]].fillna(0.0), y).export(tmp_path / "model.pt2").exists()


def test_plain_numbers_are_not_touched():
    X = np.random.default_rng(0).normal(size=(20, 3))
    encoding = Encoding.of_numbers([0.0, 0.0, 0.0], ["a", "b", "c"])
    assert encoding(Cells(X, {})) is X


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "with text"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_occurs_twice(kind, text):
    X = pd.DataFrame(np.random.default_rng(0).random((20, 3)), columns=["a", "b", "c"])
    X["c"] = "x" if text else X["c"]
    fitted, twice = small(kind).fit(X, np.arange(20) % 2), X.set_axis(["a", "b", "a"], axis=1)
    message = "X must have each column once, got 'a' 2 times; rename or remove one"
    for call in (lambda: small(kind).fit(twice, np.arange(20) % 2), lambda: fitted.predict(twice)):
        with pytest.raises(InvalidArgumentError, match=message):
            call()
