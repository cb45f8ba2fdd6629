"""A fitted network for other programs: with its scaling, as ONNX or as a torch.export program."""

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.files import write_whole
from fracdnn.nn.operators import ACTIVATIONS, affine


def mean_of(answers: Iterable[torch.Tensor]) -> torch.Tensor:
    """The mean of what the members answer, added up in their order."""
    found = list(answers)
    return found[0] if len(found) == 1 else sum(found[1:], found[0]) / len(found)


class Deployed(nn.Module):
    """From features to answers in one module, in float64: scale, run the members of the estimator, then the mean of
    their answers.

    The memory's weights are constants here, since the order is what it is.
    """

    def __init__(self, estimator: Any, activations: Mapping[str, Callable[[torch.Tensor], torch.Tensor]]) -> None:
        super().__init__()
        self.members = nn.ModuleList(copy.deepcopy(network).cpu().eval() for network in estimator.members_)
        self.estimator, self.activations, self.memories = estimator, activations, []
        for network in estimator.members_:
            order, step_size = network.memory.order.detach().cpu(), network.memory.step_size.detach().cpu()
            matrix = memory_matrix(order, network.architecture.n_layers)
            self.memories.append((matrix, float(l1_step_factor(order, step_size))))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        inputs = features.to(torch.float64)
        y = self.estimator.shaping_(inputs, self.estimator.standardization_(inputs))
        several = zip(self.members, self.memories, strict=True)
        return mean_of(self.estimator._answer(self._outputs(network, *memory, y)) for network, memory in several)

    def _outputs(self, network: Any, matrix: torch.Tensor, factor: float, y: torch.Tensor) -> torch.Tensor:
        architecture, weights = network.architecture, network.weights()
        if weights.input_weight is not None:
            activation = self.activations[architecture.input_activation]
            y = activation(affine(y, weights.input_weight, weights.input_bias))
        activation, states = self.activations[architecture.activation], y.unsqueeze(0)
        for j, K in enumerate(weights.operators.unbind()):
            change = activation(affine(y, K, None if weights.b is None else weights.b[j]))
            y = torch.tensordot(matrix[j, : j + 1], states, dims=1) + factor * change
            states = torch.cat([states, y.unsqueeze(0)])
        return nn.functional.linear(y, weights.W)


def write_program(path: str | os.PathLike, estimator: Any) -> Path:
    """Write `.onnx` or `.pt2`, whole or not at all."""
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidArgumentError(f"path must end in .onnx or .pt2, got {path}; the ending says which format to write")
    if path.suffix == ".onnx":
        require("onnx", "onnxscript")
    module = Deployed(estimator, ACTIVATIONS if path.suffix == ".pt2" else {**ACTIVATIONS, "gelu": _single_gelu})
    encoding = estimator.encoding_
    dtype = estimator._dtype() if encoding.is_plain else torch.float64
    example = torch.zeros(2, len(encoding.feature_names), dtype=dtype)
    with torch.no_grad():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("n_samples")},))
    if path.suffix == ".pt2":
        return write_whole(path, lambda temporary: torch.export.save(program, temporary))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about its registry
        onnx = torch.onnx.export(program, dynamo=True, verbose=False)
    assert onnx is not None
    return write_whole(path, lambda temporary: onnx.save(str(temporary)))


def _single_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU by its float32 version, 1e-7 away: ONNX Runtime has no error function in float64."""
    return nn.functional.gelu(x.to(torch.float32)).to(x.dtype)
