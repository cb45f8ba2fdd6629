"""The site, built once for all tests of a run from a copy of docs/, with the gallery's scripts shown but not run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[3]
# What pages include, and what they link to and describe.
INCLUDED = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "pyproject.toml", "SECURITY.md", "CODE_OF_CONDUCT.md")
BESIDE = ("benchmarks", "examples", "records", "reproduction", "src", "tests")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built pages. Processes of one run share it; a warning of the build is an error."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with FileLock(shared / "site.lock"):
        if not (shared / "site").exists():
            _build(shared / "source", shared / "building")
            (shared / "building").rename(shared / "site")
    return shared / "site"


def _build(source, target):
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("gallery", "__pycache__"))
    for name in INCLUDED:
        shutil.copy(ROOT / name, source)
    for name in BESIDE:
        (source / name).symlink_to(ROOT / name)
    options = ["--nitpicky", "--fail-on-warning", "--keep-going", "-q", "-D", "plot_gallery=0"]
    command = [sys.executable, "-m", "sphinx", *options, "-d", source / "doctrees", source / "docs", target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
