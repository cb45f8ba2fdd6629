"""The benchmark's modules import one way, and its registry lists every case."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import benchmarks
from benchmarks import registry
from benchmarks.case import Group

FOLDER = Path(benchmarks.__file__).parent


def module_name(path, folder=FOLDER):
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph(folder=FOLDER):
    """What each module imports of its own package, at the top or inside a function."""
    names = {module_name(path, folder): path for path in folder.rglob("*.py")}
    return {name: _imports(path, names) - {name} for name, path in names.items()}


def _imports(path, names):
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & names.keys()) or {node.module}
    return found & names.keys()


def test_there_are_no_circles():
    found = graph()
    assert {"benchmarks.cases.depth", "benchmarks.case"} <= found["benchmarks.registry"] | found["benchmarks.runner"]
    TopologicalSorter(found).prepare()


def test_a_circle_would_be_found(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "one.py").write_text("from package.two import x", encoding="utf-8")
    (folder / "two.py").write_text("def f():\n    from package import one", encoding="utf-8")
    with pytest.raises(CycleError):
        TopologicalSorter(graph(folder)).prepare()


def test_the_registry_lists_every_case():
    listed = {id(group) for group in registry.GROUPS.values()}
    for path in sorted((FOLDER / "cases").glob("[!_]*.py")):
        module = getattr(registry, path.stem)
        groups = [value for value in vars(module).values() if isinstance(value, Group)]
        assert groups, f"{path.name} has no group"
        assert {id(group) for group in groups} <= listed
    for name, group in registry.GROUPS.items():
        assert name == group.name
