import inspect
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.nn.operators import ACTIVATIONS
from fracdnn.parameters import BOOLEAN, LOCAL_PARAMETERS, parameter, with_parameters

KINDS = [FractionalClassifier, FractionalRegressor]


@pytest.mark.parametrize("kind", KINDS)
def test_the_signature_shows_every_parameter(kind):
    shown = inspect.signature(kind).parameters
    assert list(shown) == list(kind._parameter_rules)
    assert {each.kind for each in shown.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {name: each.default for name, each in shown.items()} == kind().get_params()
    assert set(LOCAL_PARAMETERS) < shown.keys()
    with pytest.raises(TypeError, match="positional"):
        kind(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'surprise'"):
        kind(surprise=1)


def test_a_classifier_has_two_more_parameters():
    assert FractionalClassifier().alpha == FractionalRegressor().alpha == 3e-4
    more = FractionalClassifier._parameter_rules.keys() - FractionalRegressor._parameter_rules.keys()
    assert more == {"class_weight"}
    for kind in KINDS:
        with pytest.raises(ValueError, match=r"alpha must be a number at least 0, got -1.0; the default is 0.0003"):
            kind(alpha=-1.0).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_are_allowed_are_those_that_networks_take(kind):
    assert kind._parameter_rules["activation"] == [set(ACTIVATIONS)]
    (names,) = kind._parameter_rules["dtype"]
    assert all(isinstance(kind(dtype=name)._dtype(), torch.dtype) for name in names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "given",
    [
        {"random_state": np.random.RandomState(0), "device": torch.device("cpu")},
        {"random_state": np.int32(3), "learn_order": np.bool_(False), "device": "cpu"},
    ],
)
def test_values_of_types_that_are_imported_late_are_allowed(kind, given):
    kind(**given)._check_parameters()


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"random_state": "0"}, "a whole number, a RandomState or None, got '0'; the default is None"),
        ({"device": 0}, "a str or a device, got 0; the default is 'auto'"),
        ({"checkpoint_path": 1}, "None or a str or a PathLike, got 1; the default is None"),
    ],
)
def test_values_of_other_types_are_not(given, allowed):
    with pytest.raises(ValueError, match=f"^{next(iter(given))} must be {re.escape(allowed)}$"):
        FractionalClassifier(**given)._check_parameters()


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_shown_copied_and_set(kind):
    given = kind(order=0.3, width=None)
    assert repr(given) == f"{kind.__name__}(order=0.3, width=None)"
    for copy in (clone(given), pickle.loads(pickle.dumps(given))):
        assert copy.get_params() == given.get_params()
        assert copy != given  # an estimator equals only itself, and may be a key
        assert len({copy, given}) == 2
    assert given.set_params(order=0.4).order == 0.4
    assert kind().order == 0.5


def test_a_subclass_declares_parameters_of_its_own():
    @with_parameters
    class Patient(FractionalRegressor):
        max_iter: int = 500
        patience: float = parameter([BOOLEAN], "How long to wait.", default=1.0)

    assert list(inspect.signature(Patient).parameters)[-1] == "patience"
    assert (Patient().max_iter, FractionalRegressor().max_iter) == (500, "auto")
    assert "patience" not in FractionalRegressor._parameter_rules
    with pytest.raises(ValueError, match=r"patience must be True or False, got 0.5; the default is 1.0"):
        Patient(patience=0.5)._check_parameters()
    with pytest.raises(ValueError, match="max_iter must be a whole number at least 1 or 'auto', got 0; the default"):
        Patient(max_iter=0)._check_parameters()


def sections_of(kind):
    """The entries of each section of a numpydoc docstring: name, type and meaning."""
    text, found = inspect.getdoc(kind), {}
    for title in ("Parameters", "Attributes"):
        _, rest = text.split(f"\n\n{title}\n{'-' * len(title)}\n")
        entries = re.split(r"\n(?! )", rest.split("\n\n")[0])
        found[title] = [(*head.split(" : "), meaning) for head, meaning in (each.split("\n", 1) for each in entries)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_docstring_lists_every_parameter_with_its_default(kind):
    entries = sections_of(kind)["Parameters"]
    shown = inspect.signature(kind).parameters
    assert [name for name, _, _ in entries] == list(shown)
    for name, described, meaning in entries:
        assert described.endswith(f", default={shown[name].default!r}")
        assert meaning.endswith(".")
        assert all(line.startswith("    ") and len(line) <= 120 for line in meaning.splitlines())
    described = {name: kind for name, kind, _ in entries}
    assert described["optimizer"] == "{'adam', 'bfgs', 'lbfgs'}, default='adam'"
    assert described["width"] == "int | None, default=64"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_the_docstring_lists_what_a_fit_leaves(kind, method):
    X, y = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["a", "b"]), np.arange(20) % 2
    options = {"classes": [0, 1]} if method == "partial_fit" and kind is FractionalClassifier else {}
    fitted = getattr(kind(max_iter=2, n_members=2), method)(X, y, **options)
    left = {name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")}
    assert sorted(name for name, _, _ in sections_of(kind)["Attributes"]) == sorted(left)


def test_wrong_arguments_are_usual_type_errors_of_the_estimator():
    for name, remedy in (("epochs", "did you mean 'max_iter'"), ("widht", "did you mean 'width'"), ("q", "its param")):
        for kind in (FractionalClassifier, FractionalRegressor):
            words = rf"{kind.__name__}\(\) got an unexpected keyword argument '{name}'; {remedy}"
            with pytest.raises(TypeError, match=words):
                kind(**{name: 3})
    with pytest.raises(TypeError, match=r"FractionalClassifier\(\) takes keyword arguments only, got the positional 3"):
        FractionalClassifier(3)


def test_there_are_few_parameters():
    assert len(FractionalClassifier().get_params()) <= 21
    assert len(FractionalRegressor().get_params()) <= 21
