"""A fitted estimator for other programs: its network with scaling as ONNX or as a torch.export program."""

import copy
import os
import warnings
from pathlib import Path

import torch
from torch import nn

from fracdnn.estimators.base import FractionalEstimator
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.files import write_whole


class Deployed(nn.Module):
    """From features to answers in one module: scale in float64, run the network, scale back or take the softmax.

    The memory's weights are constants here, since the order is what it is.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    weights: torch.Tensor

    def __init__(self, estimator: FractionalEstimator) -> None:
        super().__init__()
        self.network = copy.deepcopy(estimator.network_).cpu().eval()
        assert self.network.stack is not None
        self.dtype = estimator._dtype()
        self.register_buffer("mean", estimator.standardization_.mean)
        self.register_buffer("deviation", estimator.standardization_.deviation)
        plan = self.network.stack.plan(torch.empty(0, dtype=self.dtype))
        self.register_buffer("weights", plan.dense_matrix().detach().to(self.dtype))
        self._factors = plan.factors.tolist()
        self._answer = estimator._answer

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = ((features.to(torch.float64) - self.mean) / self.deviation).to(self.dtype)
        y = x if self.network.opening is None else self.network.opening(x)
        history = y.unsqueeze(0)
        for j, layer in enumerate(self.network.layers):
            y = torch.tensordot(self.weights[j, : j + 1], history, dims=1) + self._factors[j] * layer(y)
            history = torch.cat([history, y.unsqueeze(0)])
        return self._answer(self.network.W(y).to(torch.float64))


def export(estimator: FractionalEstimator, path: str | os.PathLike) -> Path:
    """Write `.onnx` or `.pt2`, whole or not at all."""
    estimator._fitted_network()
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidArgumentError(f"path must end in .onnx or .pt2, got {path}; the ending says which format to write")
    program = _program(Deployed(estimator), estimator.n_features_in_)
    if path.suffix == ".pt2":
        return write_whole(path, lambda temporary: torch.export.save(program, temporary))
    return _write_onnx(path, program)


def _program(module: Deployed, n_features: int) -> torch.export.ExportedProgram:
    example = torch.zeros(2, n_features, dtype=module.dtype)
    with torch.no_grad():
        return torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("n_samples")},))


def _write_onnx(path: Path, program: torch.export.ExportedProgram) -> Path:
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise InvalidArgumentError(
            f"path must end in .pt2 where onnxscript is missing, got {path}; run pip install 'fracdnn[onnx]' for .onnx"
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about its registry
        onnx = torch.onnx.export(program, dynamo=True, verbose=False)
    assert onnx is not None
    return write_whole(path, lambda temporary: onnx.save(str(temporary)))
