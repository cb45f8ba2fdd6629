"""Model files: one safetensors file that holds everything a fitted estimator needs to predict. No pickle.

The document in it names the estimator and its parameters, the options and the state of the network, the encoding of
columns, the scaling of inputs and targets, classes, feature names, the history of the training and versions. Where the
model computed (`device`) and where its checkpoints lay are left out: they belong to a machine. Estimators write and
read the document; here is how its parts become plain values.
"""

from numbers import Integral
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidTypeError
from fracdnn.nn import FractionalNetwork
from fracdnn.parameters import LOCAL_PARAMETERS

_LABEL_KINDS = "biufUO"
# Characters that a dtype of text may hold beyond the longest label: the dtype is the file's word, and memory is taken
# for all of it.
_SPARE_CHARACTERS = 1000


def labels_document(labels: np.ndarray) -> dict[str, Any]:
    """Class labels as plain values with their dtype: numbers, booleans or text."""
    if labels.dtype.kind not in _LABEL_KINDS or not _are_plain(labels.tolist()):
        raise InvalidTypeError(
            f"classes must be numbers, booleans or text to be saved, got {labels.dtype}; encode the labels before fit"
        )
    return {"dtype": "object" if labels.dtype.kind == "O" else labels.dtype.str, "values": labels.tolist()}


def labels_of(document: dict[str, Any]) -> np.ndarray:
    dtype, values = np.dtype(document["dtype"]), document["values"]
    most = max((len(value) for value in values if isinstance(value, str)), default=0) + _SPARE_CHARACTERS
    if dtype.kind not in _LABEL_KINDS or not _are_plain(values) or (dtype.kind == "U" and dtype.itemsize > 4 * most):
        raise ValueError(f"{len(values)} classes of dtype {dtype}")
    return np.array(values, dtype=dtype)


def _are_plain(values: list[Any]) -> bool:
    return all(isinstance(value, bool | int | float | str) for value in values)


def parameters_document(parameters: dict[str, Any]) -> dict[str, Any]:
    """An estimator's parameters as plain values, without those of the machine."""
    return {name: _plain(name, value) for name, value in parameters.items() if name not in LOCAL_PARAMETERS}


def parameters_of(document: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `parameters_document`; parameters of a machine are refused."""
    parameters = dict(document)
    if parameters.keys() & set(LOCAL_PARAMETERS):
        raise ValueError(f"parameters of a machine: {sorted(parameters.keys() & set(LOCAL_PARAMETERS))}")
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        keys = labels_of(weights["keys"]).tolist()
        parameters["class_weight"] = dict(zip(keys, weights["weights"], strict=True))
    return parameters


def _plain(name: str, value: Any) -> Any:
    if name == "class_weight" and isinstance(value, dict):
        names = [key.item() if isinstance(key, np.generic) else key for key in value]
        keys = labels_document(np.array(names, dtype=object))
        return {"keys": keys, "weights": [float(weight) for weight in value.values()]}
    if name == "random_state" and not isinstance(value, Integral):
        return None  # a generator has moved on since; the model itself does not need it
    return value.item() if isinstance(value, np.generic) else value


def network_document(network: FractionalNetwork) -> dict[str, Any]:
    return {"options": network.options, "state": network.state_dict()}


def network_of(document: dict[str, Any]) -> FractionalNetwork:
    """The inverse of `network_document`, in float64.

    What a file says of sizes is not believed: nothing is built unless the tensors that came with it are as large.
    """
    # Files written before engines were removed name one.
    options = {name: value for name, value in document["options"].items() if name != "engine"}
    state = document["state"]
    if not options["residual"] or options["operator"] != "dense":
        raise ValueError("a network that no estimator builds")
    with torch.device("meta"):
        stated = FractionalNetwork(**options).state_dict()
    for name, value in stated.items():
        if value.shape != state[name].shape:
            raise ValueError(f"{name} of shape {tuple(state[name].shape)} in a network of {tuple(value.shape)}")
    network = FractionalNetwork(**options).to(torch.float64)
    network.load_state_dict(state)
    for name, value in network.named_parameters():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} with numbers that are not finite")
    return network
