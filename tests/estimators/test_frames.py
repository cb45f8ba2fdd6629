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
from fracdnn.exceptions import FileContentError, InvalidArgumentError, InvalidTypeError, TableError
from fracdnn.tables.column import MOST_CATEGORIES, MOST_FREQUENT, Categories, Dates, Numbers, Unused
from fracdnn.tables.encoder import Encoded
from tests.plain import PLAIN, plain_encoding

KINDS = [FractionalClassifier, FractionalRegressor]
N = 120


def small(kind=FractionalClassifier, **options):
    return kind(
        **{**PLAIN, "optimizer": "lbfgs", "n_layers": 2, "width": 6, "max_iter": 15, "random_state": 0, **options}
    )


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
    assert encoding.columns == (Numbers("x0", 1.5), Categories("x1", ("blue", "red")))


def test_only_names_that_are_all_text_are_feature_names():
    """As scikit-learn has it: arrays, lists and frames with numbers for names have none."""
    numbered = TABLE.set_axis(range(4), axis=1)
    for X in (numbered, TABLE.astype(object).to_numpy(), TABLE.astype(object).to_numpy().tolist()):
        estimator = small(max_iter=2).fit(X, y)
        assert not hasattr(estimator, "feature_names_in_")
        assert estimator.encoding_.names == ["x0", "x1", "x2", "x3"]
        assert estimator.predict(numbered).shape == (N,)
    with pytest.raises(TypeError, match="Feature names are only supported if all input features have string names"):
        small().fit(TABLE.rename(columns={"old": 2}), y)


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
    with pytest.warns(
        UserWarning, match=r"^column '(length|count)': 1 missing cell where training saw none; predicted"
    ):
        found = answers(estimator, holed)
    np.testing.assert_array_equal(found, answers(estimator, filled))
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
    frame = rf"column 'length' must hold finite numbers, got {bad} in row 3 \(the first is 0\); correct the cell"
    array = "Input X contains infinity or a value too large"
    for given, finite, message in ((infinite, good, array), (TABLE.assign(length=infinite[:, 0]), TABLE, frame)):
        with pytest.raises(ValueError, match=message):
            small(kind).fit(given, y)
        with pytest.raises(ValueError, match=message):
            small(kind).fit(finite, y).predict(given)


@pytest.mark.filterwarnings("ignore:column 'colour'. 120 cells with a category that training has not seen")
def test_categories_that_fit_has_not_seen_are_zeros():
    estimator = small().fit(TABLE, y)
    new = TABLE.assign(colour="violet")
    inputs = by_hand(TABLE)
    inputs[:, 2:6] = 0.0
    expected = small().fit(by_hand(TABLE), y).predict_proba(inputs)
    np.testing.assert_array_equal(estimator.predict_proba(new), expected)
    whole = small().fit(TABLE.dropna(), y[TABLE.notna().all(axis=1)])
    with pytest.warns(UserWarning, match=r"where training saw none|with a category that training has not seen"):
        found = [whole.predict_proba(each) for each in (new, TABLE.assign(colour=None))]
    np.testing.assert_array_equal(*found)


def test_the_order_of_a_dtypes_categories_makes_no_difference():
    expected = small().fit(TABLE, y).predict_proba(TABLE)
    for order in (["red", "green", "blue"], ["blue", "unused", "red", "green"]):
        for ordered in (False, True):
            frame = TABLE.assign(colour=pd.Categorical(TABLE["colour"], order, ordered=ordered))
            np.testing.assert_array_equal(small().fit(frame, y).predict_proba(frame), expected)


def test_what_columns_of_objects_are():
    frame = pd.DataFrame(
        {
            "numbers": pd.Series([1, 2.5, Decimal("3"), None], dtype=object),
            "mixed": pd.Series([1, "1", 2.5, "x"], dtype=object),
            "booleans": pd.Series([True, np.bool_(False), None, True], dtype=object),
            "digits": pd.Series(["01", "1", None, "1"], dtype="str"),
            "codes": pd.Categorical([1, 2, None, 1]),
            "digit codes": pd.Categorical(["01", "1", None, "1"]),
            "parts": pd.cut([0.5, 1.5, 0.5, 0.2], [0, 1, 2]),
            "days": pd.Series([datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 9), datetime.date(2024, 1, 2)]),
            "times": pd.to_datetime(["2024-01-01 12:00", "2024-01-01 18:00", None, None]).tz_localize("Asia/Tokyo"),
        }
    )
    encoding = small().fit(frame, np.arange(4) % 2).encoding_
    assert encoding.columns == (
        Numbers("numbers", 2.5, gaps=True),
        Categories("mixed", ("1", "2.5", "x")),
        Numbers("booleans", 1.0, gaps=True),
        Categories("digits", ("01", "1"), gaps=True),
        Categories("codes", ("1", "2"), gaps=True),
        Categories("digit codes", ("01", "1"), gaps=True),
        Categories("parts", ("(0, 1]", "(1, 2]")),
        Dates("days", "2024-01-01", 1.0, ("days", "weekday"), gaps=True),
        Dates("times", "2024-01-01", 0.625, ("days", "hour"), gaps=True),
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
    message = r"column 'size' must hold numbers, got '<0\.5' in row 7 \(the first is 0\); correct the cell"
    with pytest.raises(TableError, match=message):
        estimator.predict(wrong)
    with pytest.raises(TableError, match="must hold finite numbers, got inf in row 7"):
        estimator.predict(wrong.assign(size=["inf" if k == 7 else "1" for k in range(30)]))


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (pl.Series([[1], [2]]), r"List\(Int64\)"),
        (pl.Series([datetime.timedelta(1)] * 2), "Duration"),
        (pd.Series([datetime.timedelta(1)] * 2), "timedelta64"),
        (pd.Series([1j, 2]), "complex128"),
        (pd.Series([{"a": 1}, "b"]), "dict"),
        (pd.Series([b"a", b"b"]), "bytes"),
        (pl.Series([b"a", b"b"]), "Binary"),
    ],
)
def test_other_columns_are_refused_with_a_remedy(values, got):
    kind = pl.DataFrame if isinstance(values, pl.Series) else pd.DataFrame
    frame = kind({"a": values, "b": ["c", "d"]})
    rule = "must hold numbers, text, categories, booleans, dates or times of day"
    message = rf"column 'a' of X {rule}, got {got}.*; leave"
    with pytest.raises(InvalidTypeError, match=message):
        small().fit(frame, [0, 1])
    with pytest.raises(InvalidTypeError, match=f"column 'x0' of X {rule}, got dict"):
        small().fit(np.array([[{"a": 1}], ["b"]], dtype=object), [0, 1])
    cells = np.array([[None], ["b"]], dtype=object)
    cells[0, 0] = np.zeros(2)
    with pytest.raises(InvalidTypeError, match=r"column 'x0' of X must hold .*, got ndarray; leave the column out"):
        small().fit(cells, [0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_holes_is_left_out(kind):
    empty = TABLE.assign(nothing=np.nan, never=None)
    with (
        pytest.warns(UserWarning, match="column 'nothing' is left out: it is empty"),
        pytest.warns(UserWarning, match="column 'never' is left out: it is empty"),
    ):
        estimator = small(kind).fit(empty, y)
    assert estimator.encoding_.left_out == {"nothing": "it is empty", "never": "it is empty"}
    np.testing.assert_array_equal(answers(estimator, empty), answers(small(kind).fit(TABLE, y), TABLE))
    np.testing.assert_array_equal(answers(estimator, empty.assign(nothing=1e6, never="a")), answers(estimator, empty))
    message = "the table must have a column to learn from, got none: column 'x0' is left out: it is empty; col"
    with pytest.raises(TableError, match=message):
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
    assert encoding.columns[0] == Numbers("x0", 1.35e308)


def test_of_many_categories_the_most_frequent_by_weight_have_an_input_each():
    names = [f"k{j:03d}" for j in range(MOST_CATEGORIES + 5)]
    frequent = names[7 : 7 + MOST_FREQUENT]
    frame = pl.DataFrame({"key": names * 2, "x": np.arange(2 * len(names)) % 7})
    weight = np.where(frame["key"].is_in(frequent), 3.0, 1.0)
    target = np.arange(len(frame)) % 2
    estimator = small(max_iter=3).fit(frame, target, sample_weight=weight)
    assert estimator.encoding_.columns[0] == Categories("key", tuple(frequent), others=True)
    assert estimator.encoding_.feature_names[MOST_FREQUENT - 1 :] == ["key=k036", "key=(others)", "x"]
    ask = estimator.predict_proba(pl.DataFrame({"key": ["k000", "k099", "new"], "x": [1] * 3}))
    assert (ask == ask[0]).all()
    fewer = frame["key"].is_in(names[:MOST_CATEGORIES])
    few = small(max_iter=3).fit(frame.filter(fewer), target[fewer.to_numpy()])
    assert few.encoding_.columns[0] == Categories("key", tuple(names[:MOST_CATEGORIES]))


def test_text_among_numbers_is_missing_with_a_warning():
    frame = pd.DataFrame({"dose": [*map(str, range(40)), "<1"], "day": ["2024-01-01"] * 40 + ["soon"]})
    with (
        pytest.warns(UserWarning, match="^column 'dose': a cell that is no number is taken as missing, such as '<1'; "),
        pytest.warns(UserWarning, match="^column 'day': a cell that is no date is taken as missing, such as 'soon'; "),
    ):
        encoding = small().fit(frame, np.arange(41) % 2).encoding_
    assert encoding.columns[0] == Numbers("dose", 19.5, gaps=True, skips_text=True)
    assert encoding.columns[1] == Dates("day", "2024-01-01", 0.0, ("days",), gaps=True)


def test_text_that_differs_in_each_row_is_left_out_with_a_warning():
    frame = TABLE.assign(name=[f"name {k}" for k in range(N)])
    with pytest.warns(UserWarning, match="column 'name' is left out: it is text with 120 different values in 120 rows"):
        estimator = small().fit(frame, y)
    assert estimator.encoding_.columns[-1] == Unused(
        "name", "it is text with 120 different values in 120 rows; group its values to use it"
    )
    np.testing.assert_array_equal(estimator.predict_proba(frame), small().fit(TABLE, y).predict_proba(TABLE))


def test_a_message_names_the_row_of_the_whole_table():
    """Predictions are made for a part of the rows at a time."""
    estimator = small(max_iter=2).fit(pd.DataFrame({"a": [1.0, 2.0] * 20, "b": ["x", "y"] * 20}), np.arange(40) % 2)
    long = pd.DataFrame({"a": ["1"] * 20_000, "b": "x"})
    long.loc[17_000, "a"] = "bad"
    with pytest.raises(TableError, match=r"column 'a' must hold numbers, got 'bad' in row 17000 \(the first is 0\)"):
        estimator.predict(long)


def test_class_weights_do_not_change_what_columns_are():
    weighted = small(class_weight={0: 1.0, 1: 50.0}).fit(TABLE, y)
    assert weighted.encoding_ == small().fit(TABLE, y).encoding_


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_already_is_taken_in_place_of_the_table(kind):
    estimator = small(kind).fit(TABLE, y)
    encoded = Encoded(estimator.encoding_.transform(pl.DataFrame(COLUMNS)), estimator.encoding_)
    again = small(kind).fit(encoded, y)
    assert again.encoding_ == estimator.encoding_
    assert again.feature_names_in_.tolist() == list(COLUMNS)
    for X in (TABLE, encoded, encoded[:50]):
        np.testing.assert_array_equal(answers(again, X), answers(estimator, X))
    other = Encoded(encoded.inputs[:, :1], plain_encoding(0.0))
    with pytest.raises(InvalidArgumentError, match="X must be encoded as in fit, got another encoding; pass the table"):
        estimator.predict(other)


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


def test_the_first_part_fixes_what_is_known():
    parts = [TABLE[TABLE["colour"] != "red"], TABLE]
    labels = [y[TABLE["colour"] != "red"], y]
    classifier = small().partial_fit(parts[0], labels[0], classes=[0, 1])
    encoding = classifier.encoding_
    assert encoding.columns[1] == Categories("colour", ("blue", "green"), gaps=True)
    assert classifier.partial_fit(parts[1], labels[1]).encoding_ is encoding
    regressor = small(FractionalRegressor).partial_fit(parts[0], labels[0]).partial_fit(parts[1], labels[1])
    assert regressor.encoding_ == encoding


FORGERIES = [
    lambda columns: columns.pop(),
    lambda columns: columns[0].update(median=float("inf")),
    lambda columns: columns[0].update(median="0"),
    lambda columns: columns[0].update(median=None),
    lambda columns: columns[0].update(gaps=1),
    lambda columns: columns[0].update(gaps=False),
    lambda columns: columns[0].update(surprise=1),
    lambda columns: columns[1].update(categories=["a", "c", "b"]),
    lambda columns: columns[1].update(categories=["a", "a", "b"]),
    lambda columns: columns[1].update(categories=["a", "b"]),
    lambda columns: columns[1].update(categories=[1, 2, 3]),
    lambda columns: columns[1].update(categories=7),
    lambda columns: columns[1].update(categories=[]),
    lambda columns: columns[1].update(gaps=False, others=True),
    lambda columns: columns[1].update(gaps=None),
    lambda columns: columns.__setitem__(0, None),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return small(max_iter=2).fit(TABLE, y).save(tmp_path_factory.mktemp("frames") / "model.fracdnn").read_bytes()


@pytest.mark.parametrize("forge", FORGERIES)
def test_an_encoding_that_lies_builds_nothing(forge, saved, tmp_path):
    path = tmp_path / "model.fracdnn"
    path.write_bytes(saved)
    document = read_document(path, "model")
    forge(document["encoding"])
    write_document(path, "model", document)
    with pytest.raises(FileContentError, match="must hold a whole model, got an inconsistent document"):
        fracdnn.load(path)


def test_a_number_of_features_that_lies_takes_no_memory(tmp_path):
    path = small(max_iter=2).fit(TABLE, y).save(tmp_path / "model.fracdnn")
    document = read_document(path, "model")
    document["features"].update(n=10**12, names=None)
    write_document(path, "model", document)
    with pytest.raises(FileContentError, match="other features than the network's"):
        fracdnn.load(path)


def test_export_is_for_numbers(tmp_path):
    message = r"export to \.pt2 must have no categories, got some in column 'colour'; export to \.onnx, or use save"
    with pytest.raises(InvalidArgumentError, match=message):
        small(max_iter=2).fit(TABLE[["colour", "length"]], y).export(tmp_path / "model.pt2")
    with pytest.warns(UserWarning, match="'x1' is left out: it is empty"):
        half_empty = small(max_iter=2).fit(np.c_[np.arange(N), np.full(N, np.nan)], y)
    with pytest.raises(InvalidArgumentError, match=r"to \.pt2 must have no unused cells, got some in column 'x1'"):
        half_empty.export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())
    assert small(max_iter=2).fit(TABLE[["length"]].fillna(0.0), y).export(tmp_path / "model.pt2").exists()


def test_plain_numbers_are_not_touched():
    X = np.random.default_rng(0).normal(size=(20, 3))
    encoding = plain_encoding(0.0, 0.0, 0.0)
    assert encoding.transform(X) is X


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "with text"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_occurs_twice(kind, text):
    X = pd.DataFrame(np.random.default_rng(0).random((20, 3)), columns=["a", "b", "c"])
    X["c"] = "x" if text else X["c"]
    fitted, twice = small(kind).fit(X, np.arange(20) % 2), X.set_axis(["a", "b", "a"], axis=1)
    message = "X must have each column once, got 'a' 2 times; rename or remove one"
    for call in (lambda: small(kind).fit(twice, np.arange(20) % 2), lambda: fitted.predict(twice)):
        with pytest.raises(TableError, match=message):
            call()
