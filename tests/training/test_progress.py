"""The bar of a training stays on one line."""

import re

import pytest

from fracdnn.training import Record, shown_progress

LONGEST = Record(1, 1.234e-5, 5e-12, [1.0], line_search_trials=12, accuracy=1.0, validation_score=2.5e10)


@pytest.mark.parametrize("total", [60, 1200, 10**7])
@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits_into_the_columns_there_are(columns, total, monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in ("NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "0")
    with shown_progress(total) as watch:
        watch(LONGEST)
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", capfd.readouterr().err).replace("\r", "\n")
    line = [line for line in shown.splitlines() if line.strip()][-1]
    assert len(line) <= columns
    assert f"1/{total} loss 1.23e-05" in line
    assert ("12 trials" in line) == (columns == 120)
    assert "…" not in line
