import json
import os
import struct
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import fracdnn
from fracdnn.container import _sealed, read_document, write_document
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.exceptions import FileContentError, InvalidTypeError
from tests.plain import PLAIN

X, y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def fitted(**options):
    options = {**PLAIN, "optimizer": "lbfgs", "n_layers": 3, "width": 6, "max_iter": 20, "random_state": 0, **options}
    return FractionalClassifier(**options).fit(X, NAMES[y])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return fitted().save(tmp_path_factory.mktemp("model") / "iris.fracdnn").read_bytes()


@pytest.fixture
def model(saved, tmp_path):
    path = tmp_path / "iris.fracdnn"
    path.write_bytes(saved)
    return path


OPTIONS = [
    {},
    {"dtype": "float32"},
    {"learn_order": True, "order": 0.3},
    {"order": 1.0, "width": None},
    {"optimizer": "adam", "activation": "relu"},
    {"width": None},
    {"class_weight": {"setosa": 1.0, "versicolor": 2.0, "virginica": 1.0}, "random_state": np.random.RandomState(3)},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_loaded_classifier_is_the_saved_one(options, tmp_path):
    before = fitted(**options)
    after = fracdnn.load(before.save(tmp_path / "model.fracdnn"))
    assert type(after) is FractionalClassifier
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    np.testing.assert_array_equal(after.states(X), before.states(X))
    assert after.classes_.tolist() == NAMES.tolist()
    assert after.classes_.dtype == before.classes_.dtype
    assert after.history_ == before.history_
    assert (after.order_, after.loss_, after.n_iter_) == (before.order_, before.loss_, before.n_iter_)
    kept, given = after.get_params(), before.get_params()
    if not isinstance(given["random_state"], int):
        given["random_state"] = None
    assert kept == given


@pytest.mark.parametrize("values", [y + 10, y + 10.0, y == 1, NAMES[y].astype(object)], ids=lambda v: str(v.dtype))
def test_labels_of_every_kind_come_back(values, tmp_path):
    before = FractionalClassifier(**PLAIN, n_layers=2, width=3, max_iter=3, random_state=0).fit(X, values)
    after = FractionalClassifier.load(before.save(tmp_path / "model.fracdnn"))
    assert after.classes_.dtype == before.classes_.dtype
    np.testing.assert_array_equal(after.predict(X), before.predict(X))


@pytest.mark.parametrize("columns", [0, [0, 1]])
def test_a_loaded_regressor_is_the_saved_one(columns, tmp_path):
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    before = FractionalRegressor(n_members=3, n_layers=2, width=5, max_iter=10, random_state=0)
    before.fit(table[["c", "d"]], X[:, columns])
    after = fracdnn.load(before.save(tmp_path / "model.fracdnn"))
    np.testing.assert_array_equal(after.predict(table[["c", "d"]]), before.predict(table[["c", "d"]]))
    assert after.feature_names_in_.tolist() == ["c", "d"]
    with pytest.raises(ValueError, match="feature names"):
        after.predict(table[["a", "b"]])


def test_a_new_process_predicts_the_same_bits(tmp_path):
    classifier = fitted()
    classifier.save(tmp_path / "model.fracdnn")
    np.save(tmp_path / "x.npy", X)
    code = (
        "import sys, numpy, fracdnn; model = fracdnn.load(sys.argv[1]); "
        "X = numpy.load(sys.argv[2]); numpy.save(sys.argv[3], model.predict_proba(X)); print(model.predict(X)[0])"
    )
    files = [str(tmp_path / name) for name in ("model.fracdnn", "x.npy", "out.npy")]
    run = subprocess.run([sys.executable, "-c", code, *files], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "setosa"
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), classifier.predict_proba(X))


def test_the_file_says_what_it_is(model):
    with safe_open(model, framework="np") as file:
        metadata = file.metadata()
    assert (metadata["fracdnn"], metadata["format"]) == ("model", "5")
    document = json.loads(metadata["document"])
    assert document["estimator"] == "FractionalClassifier"
    assert document["parameters"]["order"] == 0.5
    assert document["network"]["options"]["n_layers"] == 3
    assert document["features"] == {"n": 4, "names": None}
    assert document["classes"]["values"] == NAMES.tolist()
    assert document["versions"].keys() == {"python", "fracdnn", "torch", "numpy"}


def test_a_loaded_model_learns_on(model):
    classifier = fracdnn.load(model).set_params(learning_rate_init=1e-3)
    before = classifier.score(X, NAMES[y])
    for _ in range(5):
        classifier.partial_fit(X, NAMES[y])
    assert classifier.score(X, NAMES[y]) >= before


def test_every_cut_is_noticed(model, tmp_path):
    whole = model.read_bytes()
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        cut = tmp_path / "cut.fracdnn"
        cut.write_bytes(whole[:length])
        with pytest.raises(
            FileContentError, match=r"cut\.fracdnn must be a fracdnn model, got a file that cannot be read"
        ):
            fracdnn.load(cut)


def test_every_altered_byte_is_noticed(model):
    whole = bytearray(model.read_bytes())
    places = np.random.default_rng(0).choice(len(whole), 200, replace=False)
    for place in [0, 5, 9, len(whole) - 1, *places]:
        altered = whole.copy()
        altered[place] ^= 0x15
        model.write_bytes(altered)
        with pytest.raises(FileContentError):
            fracdnn.load(model)


def test_other_files_are_refused(model, tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": np.zeros(3)}, foreign)
    with pytest.raises(FileContentError, match="got a safetensors file of another program"):
        fracdnn.load(foreign)
    text = tmp_path / "table.csv"
    text.write_text("a,b\n1,2\n" * 100, encoding="utf-8")
    with pytest.raises(FileContentError, match=r"table\.csv must be a fracdnn model"):
        fracdnn.load(text)
    huge = tmp_path / "huge.fracdnn"
    huge.write_bytes(struct.pack("<Q", 2**62) + b"{}" * 50)  # a header that claims to be longer than any file
    with pytest.raises(FileContentError, match="must be a fracdnn model"):
        fracdnn.load(huge)
    write_document(tmp_path / "run.ckpt", "checkpoint", {})
    with pytest.raises(FileContentError, match="must be a fracdnn model, got a checkpoint"):
        fracdnn.load(tmp_path / "run.ckpt")
    with pytest.raises(FileContentError, match=r"must hold a FractionalRegressor, got a FractionalClassifier"):
        FractionalRegressor.load(model)
    with pytest.raises(FileNotFoundError, match="nothing"):
        fracdnn.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        fracdnn.load(tmp_path)


def test_other_formats_say_what_to_do(model):
    with safe_open(model, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    for other in ("4", "6", "²", "9" * 5000):
        save_file(tensors, model, metadata={**metadata, "format": other})
        with pytest.raises(
            FileContentError, match=r"must have format 5, got format .* of another fracdnn; upgrade fracdnn, or train"
        ) as refused:
            fracdnn.load(model)
        assert len(str(refused.value)) < 1000


FORGERIES = [
    lambda d: d["network"]["options"].update(n_layers=10**9),
    lambda d: d["network"]["options"].update(width=10**6),
    lambda d: d["network"]["state"].pop("input_weight"),
    lambda d: d["network"]["options"].update(surprise=1),
    lambda d: d.update(estimator="__import__"),
    lambda d: d["parameters"].update(order=-1.0),
    lambda d: d["parameters"].update(surprise=1),
    lambda d: d["parameters"].update(tolerance=1e-3),
    lambda d: d["classes"].update(dtype="O8,V3"),
    lambda d: d.pop("history"),
    lambda d: d["network"]["options"].update(n_features=3_000_000),
    lambda d: d["features"].update(n=7),
    lambda d: d["classes"].update(values=["a"]),
    lambda d: d["parameters"].update(device="meta"),
    lambda d: d["standardization"].update(mean=d["standardization"]["mean"][:2]),
    lambda d: d["network"]["options"].update(residual=False),
    lambda d: d["network"]["options"].update(operator="nine-point", grid_shape=[2, 3]),
    lambda d: d.pop("estimator"),
    lambda d: d["classes"].update(dtype="<U100000000"),  # 1.2 GB for three words
    lambda d: d["classes"].update(dtype="O", values=[["a"], ["b"], ["c"]]),
    lambda d: d.update(smoothing=1.0),
    lambda d: d.update(smoothing=10**400),
    lambda d: d.update(loss="low"),
    lambda d: d["features"].update(names=["a", "b"]),
    lambda d: d["history"]["records"][0].update(loss="low"),
    lambda d: d["history"].update(status=None),
    lambda d: d["standardization"]["deviation"].zero_(),
    lambda d: d["standardization"]["mean"].fill_(float("nan")),
    lambda d: d["standardization"].update(mean=d["standardization"]["mean"].float()),
    lambda d: d["network"]["state"]["K"].fill_(float("nan")),
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_document_that_lies_builds_nothing(forge, model):
    document = read_document(model, "model")
    forge(document)
    write_document(model, "model", document)
    with pytest.raises(FileContentError, match="must hold a whole model, got an inconsistent document"):
        fracdnn.load(model)


DOCUMENTS = ["[" * 100_000 + "]" * 100_000, '{"a": {"tensor at": []}}', '{"a": {"tensor at": "b"}}', "[]", "null", "{"]


@pytest.mark.parametrize("text", DOCUMENTS, ids=lambda text: text[:30])
def test_a_document_that_is_none(text, model):
    model.write_bytes(_sealed({}, {"fracdnn": "model", "format": "5", "document": text}))
    with pytest.raises(FileContentError, match="must hold a whole model, got an inconsistent document") as refused:
        fracdnn.load(model)
    assert len(str(refused.value)) < 1000
    assert "\n" not in str(refused.value)


def test_a_model_is_read_in_one_go(model, tmp_path):
    """From a pipe too: a file that is opened twice may be another one the second time."""
    whole, expected = model.read_bytes(), fracdnn.load(model).predict_proba(X)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(whole,))
    writer.start()
    found = fracdnn.load(tmp_path / "pipe")
    writer.join()
    np.testing.assert_array_equal(found.predict_proba(X), expected)


TARGET_FORGERIES = [
    lambda d: d["target"].update(flat=True),
    lambda d: d["target"]["scale"].update(mean=d["target"]["scale"]["mean"][:1]),
    lambda d: d.update(estimator="FractionalClassifier"),
]


@pytest.mark.parametrize("forge", TARGET_FORGERIES)
def test_targets_that_lie_build_nothing(forge, tmp_path):
    regressor = FractionalRegressor(**PLAIN, n_layers=2, width=3, max_iter=3, random_state=0).fit(X, X[:, :2])
    document = read_document(regressor.save(tmp_path / "model.fracdnn"), "model")
    forge(document)
    write_document(tmp_path / "model.fracdnn", "model", document)
    with pytest.raises(FileContentError, match="must hold a whole model, got an inconsistent document"):
        fracdnn.load(tmp_path / "model.fracdnn")


def test_only_known_classes_are_built(model):
    class Foreign(FractionalClassifier):
        pass

    document = read_document(model, "model")
    document["estimator"] = "Foreign"
    write_document(model, "model", document)
    with pytest.raises(FileContentError, match=r"got an inconsistent document \('Foreign'\)"):
        fracdnn.load(model)
    assert type(Foreign.load(model)) is Foreign  # whoever names the class has it


def test_tensors_are_written_however_they_lie_in_memory(tmp_path):
    one, square = torch.tensor(3.0), torch.arange(4.0).reshape(2, 2)
    document = {"expanded": one.expand(1), "rows": one.expand(3), "across": square.T, "none": one.expand(0)}
    found = read_document(write_document(tmp_path / "file", "model", document), "model")
    assert all(torch.equal(found[name], value) for name, value in document.items())


def test_a_failed_save_leaves_the_old_file(model):
    before = model.read_bytes()
    classifier = fitted()
    classifier.classes_ = np.array([object()])
    with pytest.raises(InvalidTypeError, match="classes must be numbers, booleans or text to be saved, got object"):
        classifier.save(model)
    with pytest.raises(NotFittedError):
        FractionalClassifier().save(model)
    assert model.read_bytes() == before
    assert [path.name for path in model.parent.iterdir()] == [model.name]


@pytest.mark.parametrize(
    "name",
    ["float16", "bfloat16", "float32", "float64", "complex64", "bool"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)],
)
def test_tensors_of_every_type_are_read_and_left_out(name, tmp_path):
    dtype = getattr(torch, name)
    tensors = {"vector": torch.ones(3, dtype=dtype), "scalar": torch.ones((), dtype=dtype)}
    write_document(tmp_path / "x", "model", {**tensors, "empty": torch.ones(0, 2, dtype=dtype), "n": 1})
    found = read_document(tmp_path / "x", "model")
    assert found["empty"].shape == (0, 2)
    assert all(found[key].dtype == dtype and torch.equal(found[key], value) for key, value in tensors.items())
    assert read_document(tmp_path / "x", "model", plain=True)["n"] == 1
