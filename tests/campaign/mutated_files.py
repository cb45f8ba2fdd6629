"""Model files and checkpoints changed at random: bytes, header, and document and tensors with a new checksum."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import torch
from safetensors.torch import load as tensors_in

import fracdnn
from fracdnn.container import _sealed
from fracdnn.estimators.table_model import TableModel
from fracdnn.exceptions import FileContentError, TableError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    MiniBatchTraining,
    Objective,
    Task,
)
from tests.campaign.changes import BYTES, drawn, raised, unclear, with_bytes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
WORDS = np.array(["red", "green"])[np.arange(12) % 2]
TABLE = pl.DataFrame({"length": X[:, 0], "colour": WORDS, "weight": X[:, 1]})
TRAININGS = {
    "lbfgs": FullBatchTraining(max_iter=3),
    "bfgs": FullBatchTraining("bfgs", max_iter=3),
    "batches": MiniBatchTraining(n_batches=2, max_iter=2),
    "adam": AdamTraining(0.02, 6, 3, early_stopping=EarlyStopping(0.3, n_iter_no_change=3)),
}
# In place of a value of a document; those of `TEXTS` are no values of JSON's, or too deep for its writer.
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3, 1.5, -0.0, 1e-300, 1e300, 10**9, 2**31, 2**63, 10**400, float("nan")),
    *(float("inf"), -float("inf"), "", "a", "\x00", "\ud800", "nan", "0.5", "float64", "<U100000000", "<f8", "O", "V8"),
    *("dense", "layer", "compressed", "FractionalRegressor", "x" * 9999, [], {}, [[]], [0.5], [0.5, 0.5], [1] * 999),
    *({"a": 1}, {"tensor at": "nothing"}, {"tensor at": []}, {"tensor at": 0}, "deep list", "deep dict", "long number"),
]
TEXTS = {
    '"deep list"': "[" * 100_000 + "]" * 100_000,
    '"deep dict"': '{"a":' * 50_000 + "1" + "}" * 50_000,
    '"long number"': "9" * 5000,
}
HEADER_VALUES = [*VALUES[:25], "F16", "F64", "F32", "I64", "BOOL", "U8", "C64", "F4", [-1], [2**62, 4], [0, 2**63]]
METADATA_VALUES = [
    "²",
    "9" * 5000,
    "-1",
    "2.0",
    " 2",
    "3",
    "1",
    "",
    "checkpoint_path",
    "model",
    "0" * 64,
    "null",
    "[]",
    "{}",
]
SIZES = (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.uint8, torch.complex64)


def training_task():
    generator = torch.Generator().manual_seed(0)
    network = FractionalNetwork(2, 2, n_layers=2, order=0.5, generator=generator).double()
    return Task(network, Objective(), torch.from_numpy(X), torch.arange(12) % 2, generator=generator)


def ready(folder):
    """Good files by name, with what they give: predictions, or the parameters that a resumed training ends at."""
    tiny = {"n_members": 2, "n_layers": 2, "width": 2, "max_iter": 2, "random_state": 0}
    names = pd.DataFrame(X, columns=["a", "b"])
    weights = {"red": 1.0, "green": 2.0}
    classifier = fracdnn.FractionalClassifier(**tiny, class_weight=weights)
    models = {
        "classifier": classifier.fit(X, WORDS),
        "regressor": fracdnn.FractionalRegressor(**tiny, learn_order=True).fit(names, X),
        "table": TableModel(fracdnn.FractionalRegressor(**tiny).fit(TABLE, X[:, 0]), "y", {"a": 1}),
    }
    world = {"folder": folder, "good": {}, "gives": {}}
    for name, model in models.items():
        world["good"][name] = model.save(folder / f"{name}.fracdnn").read_bytes()
        world["gives"][name] = answers(model)
    for name, training in TRAININGS.items():
        path = folder / f"{name}.ckpt"
        replace(training, checkpoints=Checkpoints(path, every=1 if name == "adam" else 3)).fit(training_task())
        world["good"][name] = path.read_bytes()
        world["gives"][name] = resumed(name, path)
    return world


def answers(model):
    """Predictions for samples with the features that the model says it takes."""
    if isinstance(model, TableModel):
        return model.predict(TABLE)
    samples = np.resize(X, (5, model.n_features_in_))
    names = getattr(model, "feature_names_in_", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return model.predict(samples)
    return model.predict(pd.DataFrame(samples, columns=names))


def resumed(name, path):
    """The parameters after a training that goes on from the file, by one record more where it can."""
    task, training = training_task(), TRAININGS[name]
    limit = {} if name == "adam" else {training._limit: getattr(training, training._limit) + 1}
    replace(training, checkpoints=Checkpoints(path, every=50, resume=True), **limit).fit(task)
    return torch.cat([p.detach().reshape(-1) for p in task.network.parameters()]).numpy()


def undamaged(world):
    return [(name, []) for name in world["good"]]


def draw(world, chosen):
    name = chosen.choice(list(world["good"]))
    kinds = chosen.choices([BYTES, HEADER, DOCUMENT], [30, 25, 45])[0]
    return name, [drawn(chosen, chosen.choice(kinds)) for _ in range(chosen.choice([1, 1, 1, 2, 3]))]


HEADER = ("header", "header", "metadata", "without")
DOCUMENT = ("set", "set", "set", "copy", "remove", "rename", "tensor", "tensor")


def changed(good, changes):
    """The bytes with the changes: those of the document first, with a new checksum, then the header's, then bytes'."""
    by_kind = {kinds: [c for c in changes if c[0] in kinds] for kinds in (DOCUMENT, HEADER, BYTES)}
    if by_kind[DOCUMENT]:
        good = _with_document(good, by_kind[DOCUMENT])
    if by_kind[HEADER]:
        good = _with_header(good, by_kind[HEADER])
    for kind, *values in by_kind[BYTES]:
        good = with_bytes(good, kind, *values)
    return good


def _parts(good):
    length = struct.unpack("<Q", good[:8])[0]
    return json.loads(good[8 : 8 + length]), good[8 + length :]


def _with_header(good, changes):
    header, rest = _parts(good)
    for kind, a, b, _ in changes:
        if kind == "metadata":
            names = sorted(header.get("__metadata__") or {"fracdnn": ""})
            header["__metadata__"] = {**(header.get("__metadata__") or {})}
            header["__metadata__"][names[a % len(names)]] = METADATA_VALUES[b % len(METADATA_VALUES)]
        else:
            # Of tensors; the metadata's texts are `metadata`'s.
            tensors = {name: value for name, value in header.items() if name != "__metadata__"}
            _changed_value(tensors, "set" if kind == "header" else "remove", a, b, HEADER_VALUES)
            header = {**{k: v for k, v in header.items() if k == "__metadata__"}, **tensors}
    text = _text(header)
    return struct.pack("<Q", len(text)) + text + rest


def _text(value):
    text = json.dumps(value)
    for name, instead in TEXTS.items():
        text = text.replace(name, instead)
    return text.encode()


def _with_document(good, changes):
    metadata, tensors = dict(_parts(good)[0]["__metadata__"]), dict(tensors_in(good))
    document = {"document": json.loads(metadata["document"])}
    for kind, a, b, c in changes:
        if kind == "tensor":
            names = sorted(tensors)
            name = names[a % len(names)]
            tensors[name] = _changed_tensor(tensors[name], b, c).contiguous()
        else:
            _changed_value(document, kind, a, b, VALUES)
    metadata["document"] = _text(document.get("document")).decode()
    return _sealed(tensors, metadata)


def _changed_tensor(tensor, how, which):
    numbers = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e300, 1e-300)
    options = [
        lambda: tensor.to(SIZES[which % len(SIZES)]),
        lambda: tensor.reshape(-1),
        lambda: tensor.reshape(1, *tensor.shape),
        lambda: tensor[..., : which % (tensor.shape[-1] + 1)] if tensor.dim() else tensor.reshape(1, 1),
        lambda: torch.cat([tensor, tensor]) if tensor.dim() else tensor.reshape(1),
        lambda: tensor.new_empty(0),
        lambda: tensor.new_empty(0, *tensor.shape[1:]),
        lambda: _with_number(tensor, which, numbers[which % len(numbers)]),
        lambda: _with_number(tensor, which // 7, numbers[which % len(numbers)]),
        lambda: tensor.flip(0) if tensor.dim() else -tensor,
    ]
    return options[how % len(options)]().clone()


def _with_number(tensor, place, number):
    if not tensor.numel():
        return tensor
    tensor = tensor.clone()
    if not tensor.is_floating_point():
        number = place % 200
    wide = torch.tensor(number, dtype=torch.float64)  # rounds to infinity where the dtype has no such number
    tensor.reshape(-1)[place % tensor.numel()] = wide.to(tensor.dtype)
    return tensor


def _places(value, found, parent=None, key=None):
    """Every (container, key) of nested dicts and lists."""
    if parent is not None:
        found.append((parent, key))
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for inner, item in items:
        _places(item, found, value, inner)
    return found


def _changed_value(root, kind, a, b, values):
    places = _places(root, [])
    if not places:
        return
    parent, key = places[a % len(places)]
    if kind == "set":
        parent[key] = json.loads(json.dumps(values[b % len(values)]))
    elif kind == "copy":
        from_parent, from_key = places[b % len(places)]
        parent[key] = json.loads(json.dumps(from_parent[from_key]))
    elif kind == "remove":
        del parent[key]
    elif isinstance(parent, dict):
        parent[["", "surprise", "\x00", "tensor at", "device", "n"][b % 6]] = parent.pop(key)


def problem(world, case):
    name, changes = case
    path = world["folder"] / "changed.fracdnn"
    path.write_bytes(changed(world["good"][name], changes))
    covered = all(change[0] not in DOCUMENT for change in changes)
    try:
        found = resumed(name, path) if name in TRAININGS else fracdnn.load(path)
    except FileContentError as error:
        return unclear(error, path)
    except BaseException as error:
        return f"loading {raised(error)}"
    if name not in TRAININGS:
        try:
            found = answers(found)
        except TableError:
            return None if not covered else "a table that a model of a good file refuses"
        except BaseException as error:
            return f"predicting {raised(error)}"
        if len(found) not in (5, 12):
            return f"gives {len(found)} predictions"
    if covered and not np.array_equal(found, world["gives"][name]):
        return f"gives something else than the good file\n{found}"
    return None


def rebuilt(name, changes, folder):
    """The changed file of a finding, written into the folder for a closer look."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    world = ready(folder)
    path = folder / f"changed-{name}"
    path.write_bytes(changed(world["good"][name], changes))
    print(path, problem(world, (name, changes)))
