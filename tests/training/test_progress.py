"""The bar of a training stays on one line."""

import re

import pytest

from fracdnn.training import AdamTraining, Record, progress, shown_progress
from tests.training.test_loops import level_set_task

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


def test_without_a_terminal_a_long_epoch_tells_how_far_it_is(monkeypatch, capfd):
    """Half a minute is no time here: a line comes after each batch of an epoch, with the loss so far."""
    monkeypatch.setattr(progress, "BETWEEN_LINES", 0.0)
    task = level_set_task()
    with shown_progress(2) as watch:
        task.watch = watch
        AdamTraining(0.02, task.n // 2, 2).fit(task)
    lines = capfd.readouterr().err.splitlines()
    pattern = r"fracdnn: (.*): loss ([\d.e-]+), [\d,]+ rows/s"
    told, losses = zip(*(re.fullmatch(pattern, line).groups() for line in lines), strict=True)
    assert told[:3] == ("within iteration 1 of 2", "within iteration 1 of 2", "iteration 1 of 2")
    assert told[3:] == ("within iteration 2 of 2", "within iteration 2 of 2", "iteration 2 of 2")
    assert losses[1] == losses[2]
    assert losses[4] == losses[5]
