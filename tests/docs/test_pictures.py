"""The pictures of docs/explanation: made by their script, and all of them shown."""

import re
import sys

import pytest
from PIL import Image

from tests.docs.building import ROOT

sys.path.insert(0, str(ROOT / "docs"))

from pictures import PICTURES, main


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
