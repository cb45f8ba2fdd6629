"""Inputs of plain and ugly tables are those of version 0.1's two folders, recorded before they became one."""

import json
from pathlib import Path

import numpy as np
import pytest

from fracdnn.tables import Encoder
from tests.tables.plain_and_ugly import TABLES, frame_of, new_rows, weights_of

RECORDED = json.loads((Path(__file__).parent / "encodings.json").read_text(encoding="utf-8"))


def approximately(state):
    """The same columns, with numbers to 1e-9."""
    numbers = {"median": lambda value: pytest.approx(value, rel=1e-9, abs=1e-9)}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in state.items()}
    return {name: numbers.get(name, lambda value: value)(value) for name, value in lists.items()}


@pytest.mark.parametrize("weights", ["all rows", "weighted rows"])
@pytest.mark.parametrize("name", TABLES)
def test_inputs_are_as_recorded(name, weights):
    recorded = RECORDED[f"{name}, {weights}"]
    encoder = Encoder.fit(frame_of(name), weights_of(name)[weights], **TABLES[name][1])
    assert [approximately(column) for column in json.loads(json.dumps(encoder.state()))] == recorded["state"]
    assert encoder.feature_names == recorded["feature_names"]
    for found in (encoder, Encoder.from_state(encoder.state())):
        for table, inputs in ((frame_of(name)[:13], "inputs"), (new_rows(name), "new_inputs")):
            np.testing.assert_allclose(found.transform(table), recorded[inputs], rtol=1e-9, atol=1e-9)
