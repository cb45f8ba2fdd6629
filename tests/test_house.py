"""The structure: imports run one way, and importing the package is quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fracdnn

PACKAGE = Path(fracdnn.__file__).parent
# A module imports only from its own room and from rooms above it in this list.
ROOMS = [
    "version",
    "exceptions",
    "extras",
    "tracing",
    "validation",
    "files",
    "container",
    "kernels",
    "caputo",
    "memory",
    "solver",
    "nn",
    "optim",
    "training",
    "estimators",
    "tabular",
    "datasets",
    "report",
    "experiments",
    "cli",
]
# The front door may see every room.
FRONT = ["__init__", "__main__"]


def room_of(path):
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "fracdnn" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fracdnn" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    room = room_of(path)
    if room in FRONT:
        return
    assert room in ROOMS, f"{room} has no place in the list of rooms"
    for other in imported_rooms(path):
        assert ROOMS.index(other) <= ROOMS.index(room), f"{path.name} in {room} imports from {other}"


LATE = ("matplotlib", "scipy", "sklearn", "rich", "safetensors", "polars", "onnx", "plotly", "numba")


@pytest.mark.parametrize(
    ("code", "late"),
    [
        ("import fracdnn, fracdnn.cli, fracdnn.kernels.interrupts", ("torch", "numpy", "typer", *LATE)),
        ("import fracdnn; fracdnn.nn, fracdnn.solver, fracdnn.caputo, fracdnn.optim, fracdnn.training", LATE),
    ],
)
def test_what_takes_long_is_imported_late(code, late):
    code = f"import sys; {code}; print([m for m in {late} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
