import polars as pl
import pytest

from fracdnn.tabular import reading


@pytest.mark.parametrize("part_bytes", [reading.PART_BYTES, 200])
def test_names_may_hold_line_ends(part_bytes, tmp_path, monkeypatch):
    """As spreadsheets write them: every part of the table has the whole heading."""
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
    rows = "".join(f"{k},{k % 3}\n" for k in range(100))
    (tmp_path / "t.csv").write_text(f'"length\nin ""mm""","y"\n{rows}', encoding="utf-8")
    table = reading.read_table(str(tmp_path / "t.csv"))
    assert table.columns == ['length\nin "mm"', "y"]
    assert table["y"].to_list() == [str(k % 3) for k in range(100)]
    assert pl.concat(reading.read_parts(str(tmp_path / "t.csv"), ["y"]))["y"].dtype == pl.Float64
