"""What estimators, model files and reports know of a network's inside, in one place."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork

# What BFGS may take for its matrix, in bytes.
MOST_FOR_MATRIX = 2 * 2**30


def mean_order(networks: Sequence[FractionalNetwork]) -> float:
    """The mean of the orders as they stand: an estimator's network has one for all layers."""
    return float(np.mean([float(network.order.detach()) for network in networks]))


def check_matrix_fits(network: FractionalNetwork, solver: str) -> None:
    """Refuse BFGS for a network of so many parameters that its matrix would fill the memory."""
    n = sum(parameter.numel() for parameter in network.parameters())
    needed = n * n * network.W.element_size()
    if solver == "bfgs" and needed > MOST_FOR_MATRIX:
        dtype = str(network.W.dtype).removeprefix("torch.")
        raise InvalidArgumentError(
            f"solver={solver!r} must have at most {_gib(MOST_FOR_MATRIX)} for its matrix of n × n numbers, got "
            f"{_gib(needed)} for n = {n:,} parameters in {dtype}; use solver='lbfgs' or 'adam', a smaller width, fewer "
            f"n_layers or n_bins=0"
        )


def mean_of(answers: Iterable[torch.Tensor]) -> torch.Tensor:
    found = list(answers)
    return found[0] if len(found) == 1 else reduce(torch.add, found) / len(found)


def checked_temperature(value: Any) -> float | None:
    if value is not None and not (isinstance(value, float) and 0 < value < float("inf")):
        raise ValueError(f"a temperature of {value!r:.40}")
    return value


def network_document(network: FractionalNetwork) -> dict[str, Any]:
    return {"options": network.options, "state": network.state_dict()}


def network_of(document: dict[str, Any]) -> FractionalNetwork:
    """The inverse of `network_document`, in float64.

    What a file says of sizes is not believed: nothing is built unless the tensors that came with it are as large.
    """
    options, state = document["options"], document["state"]
    if not options["residual"] or options["operator"] != "dense":
        raise ValueError("a network that no estimator builds")
    stated = {name: options[name] for name in ("n_features", "n_outputs", "n_layers")}
    stated, actual = stated | {"width": options["width"] or options["n_features"]}, _tensor_sizes(options, state)
    if stated != actual:
        raise ValueError(f"options of size {stated} with tensors of size {actual}")
    network = FractionalNetwork(**options).to(torch.float64)
    network.load_state_dict(state)
    for name, value in network.named_parameters():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} with numbers that are not finite")
    return network


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"


def _tensor_sizes(options: dict[str, Any], state: dict[str, torch.Tensor]) -> dict[str, Any]:
    n_outputs, width = state["W"].shape
    n_layers, *layer = state["K"].shape
    if layer != [width, width]:
        raise ValueError(f"layers of shape {layer} with outputs from width {width}")
    n_features = width if options["width"] is None else state["input_weight"].shape[1]
    return {"n_features": n_features, "n_outputs": n_outputs, "n_layers": n_layers, "width": width}
