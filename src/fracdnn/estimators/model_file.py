"""Model files: one safetensors file that holds everything a fitted estimator needs to predict. No pickle.

The document in it names the estimator and its parameters, the options and the state of the network, the scaling of
features and targets, classes, feature names, the history of the training and versions. Where the model computed
(`device`) and where its checkpoints lay are left out: they belong to a machine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from fracdnn.container import read_document, write_document
from fracdnn.estimators.base import LOCAL_PARAMETERS, FractionalEstimator, order_of
from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.regressor import FractionalRegressor
from fracdnn.exceptions import FileContentError, InvalidTypeError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import History, Standardization
from fracdnn.version import versions

ESTIMATORS: dict[str, type[FractionalEstimator]] = {
    "FractionalClassifier": FractionalClassifier,
    "FractionalRegressor": FractionalRegressor,
}
_LABEL_KINDS = "biufUO"


def save(estimator: FractionalEstimator, path: str | os.PathLike) -> Path:
    """Write a fitted estimator."""
    return write_document(path, "model", document_of(estimator))


def load(path: str | os.PathLike) -> FractionalEstimator:
    """The estimator that `save` wrote."""
    document = read_document(path, "model")
    with checked(path):
        return estimator_of(document)


@contextmanager
def checked(path: str | os.PathLike) -> Iterator[None]:
    """Whatever a document that does not fit together raises, as one kind of error."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise FileContentError(
            f"{path} must hold a whole model, got a document that does not fit together ({error}); save it again"
        ) from error


def document_of(estimator: FractionalEstimator) -> dict[str, Any]:
    check_is_fitted(estimator)
    parameters = {
        name: value for name, value in estimator.get_params(deep=False).items() if name not in LOCAL_PARAMETERS
    }
    document = {
        "estimator": type(estimator).__name__,
        "parameters": {name: _plain_parameter(name, value) for name, value in parameters.items()},
        "network": {"options": estimator.network_.options, "state": estimator.network_.state_dict()},
        "standardization": vars(estimator.standardization_),
        "features": {"n": estimator.n_features_in_, "names": _names(estimator)},
        "history": estimator.history_.to_dict(),
        "loss": estimator.loss_,
        "smoothing": estimator._smoothing,
        "versions": versions(),
    }
    if isinstance(estimator, FractionalClassifier):
        document["classes"] = labels_document(estimator.classes_)
    if isinstance(estimator, FractionalRegressor):
        document["target"] = {"flat": estimator._flat, "scale": vars(estimator.target_scale_)}
    return document


def estimator_of(document: dict[str, Any]) -> FractionalEstimator:
    """The inverse of `document_of`."""
    estimator = ESTIMATORS[document["estimator"]](**_parameters(document["parameters"]))
    estimator._validate_params()
    network = _network(document["network"]).to(torch.float64)
    network.load_state_dict(document["network"]["state"])
    estimator.network_ = network.to(estimator._device())
    estimator.standardization_ = Standardization(**document["standardization"])
    estimator.n_features_in_ = document["features"]["n"]
    scales = [estimator.standardization_.mean.shape, estimator.standardization_.deviation.shape]
    if scales != [(network.n_features,)] * 2 or estimator.n_features_in_ != network.n_features:
        raise ValueError("a scaling of other features than the network's")
    if document["features"]["names"] is not None:
        estimator.feature_names_in_ = np.array(document["features"]["names"], dtype=object)
    estimator.history_ = History.from_dict(document["history"])
    estimator.n_iter_ = len(estimator.history_.records)
    estimator.loss_ = document["loss"]
    estimator._smoothing = float(document["smoothing"])
    estimator.order_ = order_of(network)
    if isinstance(estimator, FractionalClassifier):
        estimator.classes_ = labels_of(document["classes"])
        if len(estimator.classes_) != network.W.out_features:
            raise ValueError("other classes than the network's")
    if isinstance(estimator, FractionalRegressor):
        estimator._flat = document["target"]["flat"]
        estimator.target_scale_ = Standardization(**document["target"]["scale"])
    return estimator


def labels_document(labels: np.ndarray) -> dict[str, Any]:
    """Class labels as plain values with their dtype: numbers, booleans or text."""
    if labels.dtype.kind not in _LABEL_KINDS or not all(
        isinstance(v, bool | int | float | str) for v in labels.tolist()
    ):
        raise InvalidTypeError(
            f"classes must be numbers, booleans or text to be saved, got {labels.dtype}; encode the labels before fit"
        )
    return {"dtype": "object" if labels.dtype.kind == "O" else labels.dtype.str, "values": labels.tolist()}


def labels_of(document: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(document["dtype"])
    if dtype.kind not in _LABEL_KINDS:
        raise ValueError(f"classes of dtype {dtype}")
    return np.array(document["values"], dtype=dtype)


def _network(document: dict[str, Any]) -> FractionalNetwork:
    """The network of these options, built only if its size is that of the tensors that came with it."""
    options, state = document["options"], document["state"]
    n_outputs, width = state["W.weight"].shape
    operators = [value.shape for name, value in state.items() if name.endswith(".K")]
    n_features = width if options["width"] is None else state["opening.weight"].shape[1]
    told = [options[name] for name in ("n_features", "n_outputs", "n_layers")] + [options["width"] or width]
    held = [n_features, n_outputs, len(operators), width]
    if told != held or set(operators) != {(width, width)}:
        raise ValueError(f"options of size {told} with tensors of size {held}")
    return FractionalNetwork(**options)


def _names(estimator: FractionalEstimator) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _plain_parameter(name: str, value: Any) -> Any:
    if name == "class_weight" and isinstance(value, dict):
        names = [key.item() if isinstance(key, np.generic) else key for key in value]
        keys = labels_document(np.array(names, dtype=object))
        return {"keys": keys, "weights": [float(weight) for weight in value.values()]}
    if name == "random_state" and not isinstance(value, Integral):
        return None  # a generator has moved on since; the model itself does not need it
    return value.item() if isinstance(value, np.generic) else value


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(document)
    if parameters.keys() & set(LOCAL_PARAMETERS):
        raise ValueError(f"parameters of a machine: {sorted(parameters.keys() & set(LOCAL_PARAMETERS))}")
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        keys = labels_of(weights["keys"]).tolist()
        parameters["class_weight"] = dict(zip(keys, weights["weights"], strict=True))
    return parameters
