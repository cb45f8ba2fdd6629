"""A fitted network for other programs: with its scaling, as ONNX or as a torch.export program."""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.files import write_whole
from fracdnn.nn import FractionalNetwork
from fracdnn.tables.cells import MISSING
from fracdnn.tables.column import Categories, Numbers
from fracdnn.tables.encoder import Encoder


def mean_of(answers: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the mean of the members' answers, added up in their order."""
    first, *others = answers
    return sum(others, first) / (1 + len(others)) if others else first


class Deployed(nn.Module):
    """A module from features to answers, in float64: scale, run the members, then take the mean of their answers."""

    def __init__(self, estimator: Any, members: Iterable[FractionalNetwork]) -> None:
        super().__init__()
        self.estimator, self.members = estimator, nn.ModuleList(members)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        inputs = features.to(torch.float64)
        x = self.estimator.shaping_(inputs, self.estimator.standardization_(inputs))
        return mean_of(self.estimator._answer(network(x)) for network in self.members)


def _fixed(network: FractionalNetwork, suffix: str) -> FractionalNetwork:
    """Return a copy on the CPU in float64 whose order is a constant, with operations that the format has."""
    options = {**network.options, "order": float(network.order.detach()), "learn_order": False}
    if suffix == ".onnx":
        options["activation"] = _FOR_ONNX.get(options["activation"], options["activation"])
    fixed = FractionalNetwork(**options, dtype=torch.float64)
    fixed.load_state_dict(network.state_dict(), strict=False)
    return fixed.eval()


def write_program(path: str | os.PathLike, estimator: Any) -> Path:
    """Write `.onnx` or `.pt2`, whole or not at all; the program takes features, or the columns of a table."""
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidArgumentError(f"path must end in .onnx or .pt2, got {path}; the ending says which format to write")
    encoding = estimator.encoding_
    _check_columns(encoding, path.suffix)
    if path.suffix == ".onnx":
        require("onnx", "onnxscript")
    module = Deployed(estimator, [_fixed(network, path.suffix) for network in estimator.members_])
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
    model = onnx.model_proto if encoding.is_plain else _with_columns(onnx.model_proto, encoding)
    return write_whole(path, lambda temporary: temporary.write_bytes(model.SerializeToString()))


def _check_columns(encoding: Encoder, suffix: str) -> None:
    """Refuse columns that a program cannot take: in .pt2 all but plain numbers, in .onnx dates."""
    kinds = {"date": "dates", "category": "categories", "number": "missing cells", "unused": "unused cells"}
    for column in encoding.columns:
        if column.kind == "date" or (suffix == ".pt2" and column.inputs != [column.name]):
            remedy = "make numbers of the dates before the estimator" if column.kind == "date" else "export to .onnx"
            raise InvalidArgumentError(
                f"a model to export to {suffix} must have no {kinds[column.kind]}, got some in column {column.name!r}; "
                f"{remedy}, or use save"
            )


def _single_gelu(x: torch.Tensor) -> torch.Tensor:
    """Return GELU computed in float32, 1e-7 off: ONNX Runtime has no error function in float64."""
    return nn.functional.gelu(x.to(torch.float32)).to(x.dtype)


def _silu_without_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """Return SiLU as x / (1 + e^-x), which is -0 where e^-x is infinite.

    Some versions of ONNX Runtime replace x sigmoid(x) with an operator of theirs that has no kernel in float64.
    """
    return x / (1 + torch.exp(-x))


_FOR_ONNX = {"gelu": _single_gelu, "silu": _silu_without_sigmoid}


def _with_columns(model: Any, encoding: Encoder) -> Any:
    """Return the ONNX model with an input [n_samples, 1] for each column instead of one for all features.

    A number is float64, NaN if it is missing; a category is text without surrounding blanks, "" if it is missing. Torch
    has no text, so the categories' codes are ONNX's own operators.
    """
    from onnx import TensorProto, compose, helper, numpy_helper

    model = compose.add_prefix(model, "fracdnn/")  # so that no name within the program is that of a column
    inputs, nodes, parts = [], [], []

    def add(kind: str, sources: list[str], out: str, **options: Any) -> str:
        nodes.append(helper.make_node(kind, sources, [out], **options))
        return out

    def constant(out: str, values: Any) -> str:
        return add("Constant", [], out, value=numpy_helper.from_array(np.asarray(values)))

    for number, column in enumerate(encoding.used().columns):
        own = f"fracdnn/column_{number}"
        kind = TensorProto.DOUBLE if isinstance(column, Numbers) else TensorProto.STRING
        inputs.append(helper.make_tensor_value_info(column.name, kind, ["n_samples", 1]))
        if isinstance(column, Numbers):
            is_missing = add("IsNaN", [column.name], f"{own}_is_missing")
            parts.append(add("Where", [is_missing, constant(f"{own}_median", column.median), column.name], own))
            if column.gaps:
                parts.append(add("Cast", [is_missing], f"{own}_missing", to=TensorProto.DOUBLE))
        elif isinstance(column, Categories):
            places = {text: place for place, text in enumerate(column.categories)}
            places |= dict.fromkeys(MISSING, len(column.inputs) - 1 if column.gaps else -1)
            codes = {"keys_strings": list(places), "values_int64s": list(places.values()), "domain": "ai.onnx.ml"}
            others = len(column.categories) if column.others else -1
            code = add("LabelEncoder", [column.name], f"{own}_code", default_int64=others, **codes)
            known = constant(f"{own}_places", np.arange(len(column.inputs))[None])
            parts.append(add("Cast", [add("Equal", [code, known], f"{own}_is")], own, to=TensorProto.DOUBLE))
    whole = helper.make_tensor_value_info(add("Concat", parts, "fracdnn/columns", axis=1), TensorProto.DOUBLE, None)
    domains = [helper.make_opsetid("ai.onnx.ml", 3)]  # besides those of the model, each of which is to stand once
    graph = helper.make_graph(nodes, "columns", inputs, [whole])
    front = helper.make_model(graph, opset_imports=domains, ir_version=model.ir_version)
    return compose.merge_models(front, model, [(whole.name, model.graph.input[0].name)])
