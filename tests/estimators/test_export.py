import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_diabetes, load_iris

from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn.operators import ACTIVATIONS
from tests.plain import PLAIN

IRIS = load_iris(return_X_y=True)


def fitted(**options):
    return FractionalClassifier(
        **{**PLAIN, "optimizer": "lbfgs", "n_layers": 3, "width": 6, "max_iter": 20, "random_state": 0, **options}
    ).fit(*IRIS)


def run_onnx(path, X, dtype):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = [tensor.name for tensor in session.get_inputs()]
    return session.run(None, {name: X.astype(dtype)})[0]


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        pytest.param("float32", {}, marks=pytest.mark.slow),
        pytest.param("float64", {"order": 1.0}, marks=pytest.mark.slow),
        pytest.param("float32", {"n_layers": 6}, marks=pytest.mark.slow),
        ("float64", {"learn_order": True, "width": None}),
    ],
    ids=repr,
)
def test_onnx_and_torch_export_agree(dtype, options, tmp_path):
    classifier = fitted(dtype=dtype, **options)
    X = IRIS[0].astype(dtype)
    expected = classifier.predict_proba(X)
    np.testing.assert_allclose(
        run_onnx(classifier.export(tmp_path / "iris.onnx"), X, dtype), expected, rtol=0, atol=1e-6
    )
    program = torch.export.load(classifier.export(tmp_path / "iris.pt2")).module()
    for rows in (1, 7, 150):  # any number of samples
        with torch.no_grad():
            found = program(torch.from_numpy(X[:rows])).numpy()
        np.testing.assert_allclose(found, expected[:rows], rtol=0, atol=1e-6)
        onnx = run_onnx(tmp_path / "iris.onnx", X[:rows], dtype)
        np.testing.assert_allclose(onnx, expected[:rows], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation(activation, tmp_path):
    classifier = fitted(activation=activation, dtype="float32", n_layers=1, max_iter=5)
    X = IRIS[0].astype(np.float32)
    found = run_onnx(classifier.export(tmp_path / "iris.onnx"), X, np.float32)
    np.testing.assert_allclose(found, classifier.predict_proba(X), rtol=0, atol=1e-6)


def test_silu_has_no_pattern_that_runtimes_replace(tmp_path):
    """ONNX Runtime 1.30 made QuickGelu of x sigmoid(x), for which it has no kernel in float64."""
    X, y = load_diabetes(return_X_y=True)
    regressor = FractionalRegressor(n_layers=2, width=6, max_iter=2, random_state=0, dtype="float64").fit(X, y)
    path = regressor.export(tmp_path / "diabetes.onnx")
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert "Exp" in kinds
    assert kinds.isdisjoint({"Sigmoid", "Swish", "QuickGelu"})
    far = 1e5 * X  # e^-x overflows within the network
    np.testing.assert_allclose(run_onnx(path, far, np.float64)[:, 0], regressor.predict(far), rtol=1e-6)


def test_regressors_give_values_in_the_targets_units(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    regressor = FractionalRegressor(n_layers=3, width=6, max_iter=20, random_state=0, dtype="float64", n_members=2).fit(
        X, y
    )
    found = run_onnx(regressor.export(tmp_path / "diabetes.onnx"), X, np.float64)
    np.testing.assert_allclose(found[:, 0], regressor.predict(X), rtol=1e-6)


def test_tables_with_categories_and_missing_cells(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.standard_normal(80), "age": rng.uniform(size=80)})
    table["kind"] = rng.choice(["a", "b", "c"], 80)
    table = table.assign(features=table["age"], column_1=table["size"], linear=table["kind"])  # as the program's own
    table.loc[::7, ["size", "kind"]] = None
    y = np.where(table["age"] + (table["kind"] == "a") > 0.7, "yes", "no")
    classifier = FractionalClassifier(random_state=0, width=8, max_iter=5, n_members=2).fit(table, y)
    new = table.head(20)
    new.loc[3, "kind"], new.loc[4, ["age", "kind"]] = "never seen", [np.nan, None]
    session = onnxruntime.InferenceSession(classifier.export(tmp_path / "t.onnx"), providers=["CPUExecutionProvider"])
    cells = {name: new[[name]].to_numpy(np.float64) for name in ("size", "age", "features", "column_1")}
    cells |= {name: new[[name]].fillna("").to_numpy(object) for name in ("kind", "linear")}
    with (
        pytest.warns(UserWarning, match="1 cell with a category that training has not seen"),
        pytest.warns(UserWarning, match="'age': 1 missing cell where training saw none; predicted as the median"),
    ):
        expected = classifier.predict_proba(new)
    np.testing.assert_allclose(session.run(None, cells)[0], expected, rtol=0, atol=1e-6)
    domains = [each.domain for each in onnx.load(tmp_path / "t.onnx").opset_import]
    assert sorted(domains) == ["", "ai.onnx.ml"]  # each of them once
    with pytest.raises(InvalidArgumentError, match=r"to \.pt2 must have no missing cells, got some in column 'size'"):
        classifier.export(tmp_path / "t.pt2")
    dated = FractionalClassifier(random_state=0, width=8, max_iter=1).fit(
        pd.DataFrame({"day": pd.date_range("2024-01-01", periods=80)}), y
    )
    with pytest.raises(InvalidArgumentError, match=r"export to \.onnx must have no dates, got some in column 'day'"):
        dated.export(tmp_path / "t.onnx")


def test_other_endings_and_a_missing_exporter(tmp_path, monkeypatch):
    classifier = fitted()
    with pytest.raises(InvalidArgumentError, match=r"path must end in \.onnx or \.pt2, got .*model\.pb"):
        classifier.export(tmp_path / "model.pb")
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"onnxscript is missing: run pip install 'fracdnn\[onnx\]'"):
        classifier.export(tmp_path / "iris.onnx")
    assert not list(tmp_path.iterdir())
