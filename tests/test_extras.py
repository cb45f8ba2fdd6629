"""Optional packages: the core works without any of them, and where one is missing a line names the extra to install."""

import io
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

import fracdnn
from fracdnn.container import write_document
from fracdnn.datasets import perfume
from fracdnn.estimators.table_model import TableModel
from fracdnn.exceptions import FracdnnError, MissingExtraError
from fracdnn.extras import EXTRAS, PACKAGES, require
from fracdnn.tables.reading import read_parts, read_table
from fracdnn.training import shown_progress
from tests.cli.commands import run

OPTIONAL = [module for modules in EXTRAS.values() for module in modules]
# torch itself needs jinja2.
OURS = [module for module in OPTIONAL if module != "jinja2"]

CORE = """
import torch, fracdnn
from fracdnn.training import AdamTraining, Objective, Task

layers = [torch.nn.Linear(3, 3) for _ in range(4)]
fracdnn.nn.FractionalStack(layers, order=0.5, learn_order=True)(torch.ones(2, 3)).sum().backward()
t = fracdnn.graded_mesh(1.0, 20)
fracdnn.fdeint(lambda t, u: -u, torch.ones(1, dtype=torch.float64), t, order=0.5)
fracdnn.caputo.caputo_derivative(t.numpy() ** 2, order=0.5, t=t.numpy())
fracdnn.caputo.mittag_leffler(-1.0, 0.5)
network = fracdnn.nn.FractionalNetwork(2, 2, n_layers=3, order=0.5)
x, y = fracdnn.datasets.make_level_set(50)
task = Task(network, Objective(), torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y))
AdamTraining(max_epochs=2).fit(task)
fracdnn.optim.BFGS(network.parameters(), max_iter=2).step(lambda: (network(task.x) ** 2).mean())
fracdnn.memory
"""


def without(modules, code, *arguments, cwd=None):
    """Run the code in a process that cannot import these modules."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({list(modules)!r})); sys.argv[0] = 'fracdnn'\n"
    command = [sys.executable, "-W", "error", "-c", blocked + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_the_core_needs_no_extra():
    done = without(OURS, CORE)
    assert done.returncode == 0, done.stderr


def line(module, extra):
    return f"{PACKAGES.get(module, module)} is missing: run pip install 'fracdnn[{extra}]'"


DOORS = [
    pytest.param("sklearn", "estimators", "from fracdnn import FractionalClassifier", marks=pytest.mark.slow),
    ("sklearn", "estimators", "from fracdnn import load"),
    pytest.param(
        "sklearn", "estimators", "from fracdnn.estimators.estimator import FractionalEstimator", marks=pytest.mark.slow
    ),
    ("jinja2", "report", "import fracdnn.report.html"),
    pytest.param("matplotlib", "report", "import fracdnn.report.figures", marks=pytest.mark.slow),
]


def test_a_public_name_whose_extra_is_missing_is_no_attribute():
    """Tools that look at every name of the package must not fail."""
    code = """
import inspect, fracdnn
assert not hasattr(fracdnn, "FractionalClassifier")
names = [name for name, _ in inspect.getmembers(fracdnn)]
assert "fdeint" in names and "load" not in names
try:
    fracdnn.load
except AttributeError as error:
    print(type(error).__name__, error)
"""
    done = without(["sklearn"], code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"MissingNameError {line('sklearn', 'estimators')}\n"


@pytest.mark.parametrize(("module", "extra", "code"), DOORS)
def test_a_room_names_the_extra_it_needs(module, extra, code):
    done = without([module], code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"fracdnn.exceptions.MissingExtraError: {line(module, extra)}"


def spreadsheet():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    return content.getvalue()


def fit_text():
    return fracdnn.FractionalClassifier(max_iter=1).fit([["a", 1.0], ["b", 2.0]] * 5, [0, 1] * 5)


USES = [
    ("polars", "estimators", fit_text),
    ("safetensors", "estimators", lambda: write_document("model.fracdnn", "model", {})),
    ("safetensors", "estimators", lambda: fracdnn.load("model.fracdnn")),
    ("rich", "estimators", lambda: shown_progress(3).__enter__()),
    ("polars", "estimators", lambda: read_table("table.csv")),
    ("polars", "estimators", lambda: next(read_parts("table.csv"))),
    ("fastexcel", "tables", lambda: read_table("table.xlsx")),
    ("polars", "estimators", lambda: perfume._rows(spreadsheet())),
    ("fastexcel", "tables", lambda: perfume._rows(spreadsheet())),
]


@pytest.mark.parametrize(("module", "extra", "use"), USES)
def test_a_function_names_the_extra_it_needs(module, extra, use, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingExtraError, match=f"^{re.escape(line(module, extra))}$"):
        use()
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_a_table_needs_polars(monkeypatch, tmp_path):
    X, y = load_iris(return_X_y=True)
    classifier = fracdnn.FractionalClassifier(max_iter=1, random_state=0).fit(X[:, :1], y)
    TableModel(classifier, "b", {}).save(tmp_path / "table.fracdnn")
    classifier.save(tmp_path / "array.fracdnn")
    monkeypatch.setitem(sys.modules, "polars", None)
    assert fracdnn.load(tmp_path / "array.fracdnn").n_features_in_ == 1
    with pytest.raises(MissingExtraError, match=re.escape(line("polars", "estimators"))):
        fracdnn.load(tmp_path / "table.fracdnn")


def test_the_error_is_an_import_error_that_names_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=re.escape(line("sklearn", "estimators"))) as caught:
        require("rich", "sklearn", "polars")
    assert isinstance(caught.value, MissingExtraError)
    assert isinstance(caught.value, FracdnnError)
    assert caught.value.name == "sklearn"


def test_what_is_there_is_not_imported():
    code = f"import sys; from fracdnn.extras import require; require(*{OPTIONAL}); print(*sys.modules)"
    assert not {*OPTIONAL, "torch"} & set(without([], code).stdout.split())


RUN = "from fracdnn.cli import main; main()"
TRAIN = ["train", "t.csv", "--target", "y", "--out", "m.fracdnn"]


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        pytest.param("typer", ["--help"], marks=pytest.mark.slow),
        ("typer", ["demo"]),
        ("sklearn", TRAIN),
        pytest.param("sklearn", ["info", "m.fracdnn"], marks=pytest.mark.slow),
        ("jinja2", ["report", "m.fracdnn"]),
    ],
)
def test_commands_that_cannot_begin_say_it_in_one_line(module, arguments, tmp_path):
    for name in ("t.csv", "m.fracdnn"):  # whether there is one is asked first
        (tmp_path / name).write_text("a,y\n1,2\n")
    done = without([module], RUN, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"fracdnn: {line(module, 'cli')}\n")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("polars", TRAIN),
        ("fastexcel", ["train", "t.xlsx", *TRAIN[2:]]),
        ("safetensors", ["info", "m.fracdnn"]),
        ("matplotlib", ["demo"]),
        ("lmfit", ["fit", "t.csv", "--model", "relaxation"]),
    ],
)
def test_commands_say_it_in_one_line(module, arguments, tmp_path):
    there = [tmp_path / arguments[1]] if arguments[1:] else []
    for file in there:  # whether there is one is asked first
        file.write_text("a,b\n1,2\n")
    done = run(*arguments, cwd=tmp_path, missing=[module])
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"fracdnn: {line(module, 'cli')}\n")
    assert list(tmp_path.iterdir()) == there


def test_the_version_needs_no_extra():
    assert without(OPTIONAL, RUN, "--version").stdout == f"fracdnn {fracdnn.__version__}\n"


def test_debug_shows_where_it_is_missing(tmp_path):
    done = without(["typer"], RUN, "--help", "--debug", cwd=tmp_path)
    assert "Traceback" in done.stderr


def required(document, extra):
    """The packages that an extra lists, without their versions, and the extras it includes."""
    found = [re.match(r"[\w-]+(\[[\w,]+\])?", text).group() for text in document["optional-dependencies"][extra]]
    included = [name for entry in found if "[" in entry for name in entry.partition("[")[2].rstrip("]").split(",")]
    return {entry for entry in found if "[" not in entry}, set(included)


def test_the_extras_are_those_of_the_project():
    path = Path(__file__).parent.parent / "pyproject.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    for extra, modules in EXTRAS.items():
        assert required(document, extra)[0] == {PACKAGES.get(module, module) for module in modules}
    brought, left = set(), {"all"}
    while left:
        brought |= left
        left = {name for extra in left for name in required(document, extra)[1]} - brought
    assert brought == {"all", *EXTRAS}
    core = {re.match(r"[\w-]+", text).group() for text in document["dependencies"]}
    assert core == {"torch", "numpy", "scipy"}


def test_public_names_are_listed_and_found():
    code = "import fracdnn; print(*dir(fracdnn)); import sys; print('torch' in sys.modules)"
    listed, imported = without([], code).stdout.splitlines()
    assert set(fracdnn.__all__) <= set(listed.split())
    assert imported == "False"
    for name in fracdnn.__all__:
        assert getattr(fracdnn, name) is getattr(fracdnn, name)
    with pytest.raises(AttributeError, match="module 'fracdnn' has no attribute 'fdient'"):
        fracdnn.fdient  # noqa: B018
