"""A fitted network for other programs: with its scaling, as ONNX or as a torch.export program."""

import copy
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.columns.encoding import Encoding
from fracdnn.estimators.networks import mean_of
from fracdnn.estimators.shaping import Shaping
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.files import write_whole
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.operators import ACTIVATIONS, affine
from fracdnn.training import Standardization


class Deployed(nn.Module):
    """From features to answers in one module, in float64: scale, run the members, then the mean of `answer` (must be
    traceable).

    The memory's weights are constants here, since the order is what it is.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    column: torch.Tensor
    low: torch.Tensor
    width: torch.Tensor

    def __init__(
        self,
        members: Sequence[FractionalNetwork],
        standardization: Standardization,
        shaping: Shaping,
        answer: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(_Member(network) for network in members)
        for name, value in (vars(standardization) | vars(shaping)).items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
        self._clip, self._answer = shaping.clip, answer

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        inputs = features.to(torch.float64)
        shaping = Shaping(self._clip, self.column, self.low, self.width)
        y = shaping(inputs, (inputs - self.mean) / self.deviation)
        return mean_of(self._answer(member(y)) for member in self.members)

    def use(self, activations: Mapping[str, Callable[[torch.Tensor], torch.Tensor]]) -> None:
        """Take these in place of torch's."""
        for member in self.members:
            assert isinstance(member, _Member)
            member.activations = activations


class _Member(nn.Module):
    """A network written out."""

    history: torch.Tensor

    def __init__(self, network: FractionalNetwork) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().eval()
        order, step_size = network.memory.order.detach().cpu(), network.memory.step_size.detach().cpu()
        self.register_buffer("history", memory_matrix(order, network.architecture.n_layers))
        self._factor = float(l1_step_factor(order, step_size))
        self.activations: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = ACTIVATIONS

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        architecture, weights = self.network.architecture, self.network.weights()
        if weights.input_weight is not None:
            activation = self.activations[architecture.input_activation]
            y = activation(affine(y, weights.input_weight, weights.input_bias))
        activation, states = self.activations[architecture.activation], y.unsqueeze(0)
        for j, K in enumerate(weights.operators.unbind()):
            change = activation(affine(y, K, None if weights.b is None else weights.b[j]))
            y = torch.tensordot(self.history[j, : j + 1], states, dims=1) + self._factor * change
            states = torch.cat([states, y.unsqueeze(0)])
        return nn.functional.linear(y, weights.W)


def check_exportable(encoding: Encoding) -> None:
    """Refuse columns that are not the network's inputs as they are: a program takes one tensor of numbers."""
    if not encoding.is_plain:
        odd = next(column.name for column in encoding.columns if column.inputs != [column.name])
        raise InvalidArgumentError(
            f"a model to export must have been fitted to numbers of which none was missing, got categories, dates or "
            f"missing cells in column {odd!r}; encode the columns before the estimator (OneHotEncoder, SimpleImputer), "
            f"or use save"
        )


def write_program(path: str | os.PathLike, module: Deployed, dtype: torch.dtype) -> Path:
    """Write `.onnx` or `.pt2`, whole or not at all; the program takes features of this dtype."""
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidArgumentError(f"path must end in .onnx or .pt2, got {path}; the ending says which format to write")
    example = torch.zeros(2, len(module.mean), dtype=dtype)
    if path.suffix == ".pt2":
        program = _program(module, example)
        return write_whole(path, lambda temporary: torch.export.save(program, temporary))
    module.use({**ACTIVATIONS, "gelu": _single_gelu})
    return _write_onnx(path, _program(module, example))


def _single_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU by its float32 version, 1e-7 away: ONNX Runtime has no error function in float64."""
    return nn.functional.gelu(x.to(torch.float32)).to(x.dtype)


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
