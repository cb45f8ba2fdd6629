import inspect
import pickle

import pytest
from sklearn.base import clone

from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.parameters import LOCAL_PARAMETERS, SharedParameters, parameter, with_parameters
from fracdnn.exceptions import InvalidTypeError

KINDS = [FractionalClassifier, FractionalRegressor]


@pytest.mark.parametrize("kind", KINDS)
def test_the_signature_shows_every_parameter(kind):
    shown = inspect.signature(kind).parameters
    assert list(shown) == list(kind._parameter_constraints)
    assert {each.kind for each in shown.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {name: each.default for name, each in shown.items()} == kind().get_params()
    assert set(LOCAL_PARAMETERS) < shown.keys()
    with pytest.raises(TypeError, match="positional"):
        kind(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'surprise'"):
        kind(surprise=1)


def test_a_classifier_has_another_decay_and_two_more_parameters():
    assert (FractionalClassifier().alpha, FractionalRegressor().alpha) == (1e-3, 3e-3)
    more = FractionalClassifier._parameter_constraints.keys() - FractionalRegressor._parameter_constraints.keys()
    assert more == {"label_smoothing", "class_weight"}
    for kind in KINDS:
        with pytest.raises(ValueError, match=f"The 'alpha' parameter of {kind.__name__} must be a float in the range"):
            kind(alpha=-1.0).fit([[0.0], [1.0]], [0, 1])


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
        patience: float = parameter(default=1.0, allowed=["boolean"])

    assert list(inspect.signature(Patient).parameters)[-1] == "patience"
    assert (Patient().max_iter, FractionalRegressor().max_iter) == (500, 60)
    assert "patience" not in FractionalRegressor._parameter_constraints
    with pytest.raises(ValueError, match="The 'patience' parameter of Patient must be"):
        Patient(patience=0.5)._validate_params()
    with pytest.raises(ValueError, match="The 'max_iter' parameter of Patient must be"):
        Patient(max_iter=0)._validate_params()


def test_a_parameter_says_what_is_allowed():
    with pytest.raises(InvalidTypeError, match="patience must be declared with what is allowed, got a default alone"):

        @with_parameters
        class Careless(SharedParameters):
            patience: float = 1.0
