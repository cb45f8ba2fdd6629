"""The structure: imports run one way and in no circle, files and functions are small, the package is imported fast."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fracdnn

PACKAGE = Path(fracdnn.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ROOT = Path(__file__).parents[1]
# What lies beside the package: none of it is in the wheel. Each imports only from itself and those before it.
BESIDE = ["records", "reproduction", "benchmarks", "examples", "tools", "tests"]
# A module imports only from its own room and from rooms above it in this list.
ROOMS = [
    "version",
    "exceptions",
    "extras",
    "tracing",
    "validation",
    "parameters",
    "files",
    "interrupts",
    "container",
    "kernels",
    "caputo",
    "memory",
    "solver",
    "nn",
    "optim",
    "fitting",
    "training",
    "tables",
    "estimators",
    "datasets",
    "report",
    "cli",
]
# The front door may see every room.
FRONT = ["__init__", "__main__"]
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 60


def test_a_file_name_occurs_once():
    names = [path.name for path in FILES if path.name not in ("__init__.py", "__main__.py")]
    assert sorted(names) == sorted(set(names))


def module_name(path, package=PACKAGE):
    """As it is imported: `fracdnn.nn` for nn/__init__.py."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path, modules):
    """The modules of the package that a file imports, wherever in it: at the top, in functions, for types only.

    What `from fracdnn.nn import FractionalNetwork` imports is the module `fracdnn.nn`; what
    `from fracdnn.memory import plan` imports is the module `fracdnn.memory.plan`.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def imported_packages(path):
    """The first part of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
    return found


def import_graph(package=PACKAGE):
    """What each module of the package imports from it."""
    paths = {module_name(path, package): path for path in package.rglob("*.py")}
    return {name: imported_modules(path, paths.keys()) for name, path in paths.items()}


def circle_in(graph):
    """Modules each of which imports the next, the first again at the end; none where there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def room_of(module):
    """The second part of the name; the package itself is the front door."""
    return [*module.split("."), "__init__"][1]


@pytest.fixture(scope="module")
def graph():
    return import_graph()


@pytest.mark.parametrize("module", sorted(map(module_name, FILES)))
def test_imports_run_one_way(module, graph):
    room = room_of(module)
    if room in FRONT:
        return
    assert room in ROOMS, f"{room} has no place in the list of rooms"
    for other in graph[module]:
        assert room_of(other) not in FRONT, f"{module} imports the front door, {other}"
        assert ROOMS.index(room_of(other)) <= ROOMS.index(room), f"{module} imports {other}, which is above it"


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_holds_a_circle(room, graph):
    inside = {module for module in graph if room_of(module) == room}
    circle = circle_in({module: graph[module] & inside for module in inside})
    assert not circle, " imports ".join(circle)


def imports_of_what_is_beside(folder, forbidden):
    """Files that import what they must not, with what that is."""
    found = {path: imported_packages(path) & set(forbidden) for path in sorted(folder.rglob("*.py"))}
    return [f"{path.name} imports {', '.join(sorted(names))}" for path, names in found.items() if names]


@pytest.mark.parametrize("place", range(-1, len(BESIDE) - 1), ids=["src", *BESIDE[:-1]])
def test_the_product_imports_no_study_and_studies_import_one_way(place):
    folder = ROOT / BESIDE[place] if place >= 0 else PACKAGE
    assert imports_of_what_is_beside(folder, BESIDE[place + 1 :]) == []


@pytest.mark.parametrize(
    "line", ["import records.pages", "from reproduction import part", "def f():\n    from benchmarks.case import Case"]
)
def test_an_import_of_a_study_would_be_found(line, tmp_path):
    (tmp_path / "module.py").write_text(f"import torch\n{line}\n", encoding="utf-8")
    package = re.search(r"records|reproduction|benchmarks", line)[0]
    assert imports_of_what_is_beside(tmp_path, BESIDE) == [f"module.py imports {package}"]


@pytest.mark.parametrize("name", ["records", "reproduction"])
def test_no_study_holds_a_circle(name):
    circle = circle_in(import_graph(ROOT / name))
    assert not circle, " imports ".join(circle)


@pytest.mark.parametrize(
    "upward",
    [
        "from fracdnn.room.high import high",
        "from fracdnn.room import high",
        "import fracdnn.room.high",
        "from fracdnn.room import what_the_room_offers",
        "def late():\n    from fracdnn.room.high import high",
        "if TYPE_CHECKING:\n    from fracdnn.room.high import high",
    ],
)
def test_every_kind_of_import_can_close_a_circle(upward, tmp_path):
    room = tmp_path / "fracdnn" / "room"
    room.mkdir(parents=True)
    files = {"__init__": "from fracdnn.room.high import high", "high": "from fracdnn.room.low import low", "low": ""}
    for name, text in files.items():
        (room / f"{name}.py").write_text(text, encoding="utf-8")
    assert circle_in(import_graph(room.parent)) == []
    (room / "low.py").write_text(upward, encoding="utf-8")
    circle = circle_in(import_graph(room.parent))
    assert {"fracdnn.room.low", "fracdnn.room.high"} <= set(circle)
    assert circle[0] == circle[-1]


@pytest.mark.parametrize(
    "path",
    [*FILES, *sorted(ROOT.glob("records/*.py")), *sorted(ROOT.glob("reproduction/**/*.py"))],
    ids=lambda path: "/".join(path.parts[-3:]),
)
def test_files_and_functions_are_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES, f"{path.name} has {len(text.splitlines())} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= MOST_LINES_OF_A_FUNCTION, f"{path.name}: {node.name} has {length} lines"


def files_with(word, folder, allowed):
    """Files of a folder in which a word stands, and should not: outside of the rooms that may know it."""
    rooms = [folder / room for room in allowed]
    files = [path for path in sorted(folder.rglob("*.py")) if not any(room in path.parents for room in rooms)]
    return [path.name for path in files if re.search(rf"\b{word}\b", path.read_text(encoding="utf-8"))]


def test_the_processes_of_a_training_are_known_to_what_trains_alone():
    """Everything else reads, computes and writes as one process does."""
    assert files_with("ranks", PACKAGE, ["training", "estimators", "cli"]) == []


def test_a_word_in_a_room_that_should_not_know_it_would_be_found(tmp_path):
    for room, line in (("training", "ranks = 2"), ("nn", "def f(ranks): ..."), ("solver", "nranks = 1")):
        (tmp_path / room).mkdir()
        (tmp_path / room / f"in_{room}.py").write_text(line, encoding="utf-8")
    assert files_with("ranks", tmp_path, ["training"]) == ["in_nn.py"]


LATE = ("matplotlib", "scipy", "sklearn", "rich", "safetensors", "polars", "onnx", "numba")


@pytest.mark.parametrize(
    ("code", "late"),
    [
        ("import fracdnn, fracdnn.cli, fracdnn.interrupts", ("torch", "numpy", "typer", *LATE)),
        ("import fracdnn; fracdnn.nn, fracdnn.solver, fracdnn.caputo, fracdnn.optim, fracdnn.training", LATE),
    ],
)
def test_what_takes_long_is_imported_late(code, late):
    code = f"import sys; {code}; print([m for m in {late} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
