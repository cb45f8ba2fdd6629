"""Small solves spend their time in Python, so that what they call is counted."""

import sys
from pathlib import Path

import fracdnn
from fracdnn import fdeint

PACKAGE = str(Path(fracdnn.__file__).parent)


def calls_of(run):
    """Python calls inside the package, warm."""
    count = 0

    def look(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    run()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_a_small_solve():
    assert calls_of(lambda: fdeint(lambda t, u: -u, 1.0, [0, 0.5, 1], order=0.7)) <= 1300
