"""The pictures of docs/explanation and of a report: made by their scripts, and all of them shown."""

import re
import sys

import pytest
from PIL import Image

from tests.studies.docs.building import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import report_picture
from pictures import PICTURES, main

from tests.browser.chromium import CHROMIUM


def test_pages_show_every_picture():
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "explanation").glob("*.md"))
    assert set(re.findall(r"\.\./images/(.+?)\.png", text)) == PICTURES.keys()
    for name in PICTURES:
        assert (ROOT / "docs" / "images" / f"{name}.png").is_file()


@pytest.mark.slow
def test_the_script_makes_those_pictures(tmp_path):
    main(tmp_path)
    for name in PICTURES:
        with (
            Image.open(tmp_path / f"{name}.png") as made,
            Image.open(ROOT / "docs" / "images" / f"{name}.png") as shown,
        ):
            assert made.size == shown.size


def test_the_report_s_picture_follows_the_tutorial():
    table, commands = report_picture.tutorial()
    assert "wine.csv" in table
    assert [command.split()[:2] for command in commands] == [["fracdnn", "train"], ["fracdnn", "report"]]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install the package chromium")
def test_the_script_makes_the_report_s_picture(tmp_path):
    report_picture.main(tmp_path / "report.png")
    with Image.open(tmp_path / "report.png") as made, Image.open(ROOT / "docs" / "images" / "report.png") as shown:
        assert made.size == shown.size
        assert len(made.getcolors(2**24)) > 1000  # plots were drawn
