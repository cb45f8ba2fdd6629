"""Docstrings, written for a terminal, as reStructuredText."""

import sys

import pytest

from tests.studies.docs.building import ROOT

pytest.importorskip("sphinx", reason="the extra docs is not installed")
sys.path.insert(0, str(ROOT / "docs" / "_site"))

from docstrings import as_rst

CASES = {
    "code": ("Of `fit` and `b_`.", "Of \\ ``fit``\\  and \\ ``b_``\\ ."),
    "as it is": ("|u|, x* of history_ [n, n_features].", "\\|u\\|, x\\* of history\\_ [n, n\\_features]."),
    "index": ("Σ_k H_jk Y_{j−1}", "\\ :math:`\\sum_{k}`\\  \\ :math:`H_{jk}`\\  \\ :math:`Y_{j-1}`\\ "),
    "power": ("(m+1)^(1−order)", "\\ :math:`(m+1)^{1-\\mathrm{order}}`\\ "),
    "both": ("d_t^0.5 u", "\\ :math:`d_{t}^{0.5}`\\  u"),
    "block": ("With\n\n    a = b_1 * c\n    d\n\nas above.", "With\n\n::\n\n    a = b_1 * c\n    d\n\n\nas above."),
    "section": (
        "Sum.\n\nParameters\n----------\norder : float, default=0.5\n    In (0, 1].",
        "Sum.\n\n.. rubric:: Parameters\n\n\n``order`` : ``float, default=0.5``\n    In (0, 1].",
    ),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_as_it_stands(case):
    written, expected = CASES[case]
    assert "\n".join(as_rst(written.splitlines())) == expected
