import json
from pathlib import Path

import pytest

from fracdnn.experiments.jobs import plain, sources_of
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.sources import hash_of_files, hash_of_module, imported_files

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def write(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_a_module_is_followed_through_what_it_imports(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    write(package, a="from house.b import f\n", b="import numpy\n\ndef g():\n    from house.rooms.c import h\n")
    write(package, rooms__c="x = 1\n", rooms__d="x = 2\n")
    (package / "rooms" / "__init__.py").write_text("from house import e\n", encoding="utf-8")
    write(package, e="y = 1\n", other="z = 1\n", __init__="import house.other\n")
    found = {path.relative_to(package).as_posix() for path in imported_files("house.a", package)}
    assert found == {"a.py", "b.py", "rooms/__init__.py", "rooms/c.py", "e.py"}
    before = hash_of_module.__wrapped__("house.a", package)
    write(package, other="z = 2\n", e='"""Words."""\n# More.\ny = 1\n')
    assert hash_of_module.__wrapped__("house.a", package) != before  # a docstring where there was none is a statement
    write(package, e="# Words.\ny = 1\n")
    assert hash_of_module.__wrapped__("house.a", package) == before
    write(package, rooms__c="x = 3\n")
    assert hash_of_module.__wrapped__("house.a", package) != before


def test_the_hash_is_that_of_other_pythons(tmp_path):
    """Python 3.12 knows more fields of a function than 3.11, and 3.13 writes f-strings in another way."""
    write(
        tmp_path,
        a='def f(x: int, *, y=None) -> str:\n    """Words."""\n    return f"{x!r:>{y}}" \'"\' "b" if not x else ...\n',
    )
    assert hash_of_files([tmp_path / "a.py"], tmp_path) == "4f444ec82501"


def test_results_are_of_what_computes_not_of_what_shows():
    for part in PARTS.values():
        folders = {path.parts[-2] for path in imported_files(part.work.__module__)}
        assert not folders & {"report", "cli", "shown", "estimators", "tabular"}
        assert "nn" in folders or part.name == "mittag-leffler"


@pytest.mark.parametrize("name", [name for name in PARTS if (RESULTS / f"{name}.json").exists()])
def test_no_result_is_older_than_the_code_that_made_it(name):
    """Where the code has changed but not the numbers, `python -m fracdnn.experiments.stamp docs/results` says so."""
    document = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert document["settings"] == plain(PARTS[name].full), f"run fracdnn reproduce {name} --out docs/results"
    assert document["sources"] == sources_of(PARTS[name]), (
        f"{name}: older than the code; run python -m fracdnn.experiments.stamp docs/results, "
        f"or fracdnn reproduce {name} --out docs/results"
    )
    assert document["setting"] == "the paper's"
    assert document["commit"]
    assert document["seconds"] / 2 <= 60 * PARTS[name].minutes
