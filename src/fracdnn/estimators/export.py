"""A fitted estimator for other programs: its network with scaling as ONNX or as a torch.export program."""

import copy
import os
import warnings
from pathlib import Path

import torch
from torch import nn

from fracdnn.estimators.base import FractionalEstimator
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.files import write_whole
from fracdnn.nn import FractionalNetwork


class Deployed(nn.Module):
    """From features to answers in one module, in float64: scale, run the network, scale back or take the softmax.

    The memory's weights are constants here, since the order is what it is.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    weights: torch.Tensor

    def __init__(self, estimator: FractionalEstimator) -> None:
        super().__init__()
        self.network = copy.deepcopy(estimator.network_).cpu().eval()
        assert self.network.stack is not None
        self.register_buffer("mean", estimator.standardization_.mean)
        self.register_buffer("deviation", estimator.standardization_.deviation)
        plan = self.network.stack.plan(torch.empty(0, dtype=torch.float64))
        self.register_buffer("weights", plan.dense_matrix().detach())
        self._factors = plan.factors.tolist()
        self._answer = estimator._answer

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        y = self.network._open((features.to(torch.float64) - self.mean) / self.deviation)
        history = y.unsqueeze(0)
        for j, layer in enumerate(self.network.layers):
            y = torch.tensordot(self.weights[j, : j + 1], history, dims=1) + self._factors[j] * layer(y)
            history = torch.cat([history, y.unsqueeze(0)])
        return self._answer(self.network.W(y))


def export(estimator: FractionalEstimator, path: str | os.PathLike) -> Path:
    """Write `.onnx` or `.pt2`, whole or not at all."""
    estimator._fitted_network()
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidArgumentError(f"path must end in .onnx or .pt2, got {path}; the ending says which format to write")
    example = torch.zeros(2, estimator.n_features_in_, dtype=estimator._dtype())
    module = Deployed(estimator)
    if path.suffix == ".pt2":
        program = _program(module, example)
        return write_whole(path, lambda temporary: torch.export.save(program, temporary))
    _without_double_erf(module.network)
    return _write_onnx(path, _program(module, example))


def _without_double_erf(network: FractionalNetwork) -> None:
    """GELU by its float32 version, 1e-7 away: ONNX Runtime has no error function in float64."""

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x.to(torch.float32)).to(x.dtype)

    if network._opening_activation is nn.functional.gelu:
        network._opening_activation = gelu
    for layer in network.layers:
        if layer._activation is nn.functional.gelu:
            layer._activation = gelu  # type: ignore[assignment]


def _program(module: Deployed, example: torch.Tensor) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("n_samples")},))


def _write_onnx(path: Path, program: torch.export.ExportedProgram) -> Path:
    require("onnx", "onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about its registry
        onnx = torch.onnx.export(program, dynamo=True, verbose=False)
    assert onnx is not None
    return write_whole(path, lambda temporary: onnx.save(str(temporary)))
