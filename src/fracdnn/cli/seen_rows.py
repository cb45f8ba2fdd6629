"""Which rows a model was trained on, as hashes in its file: what it scores on them says little of new rows."""

from base64 import b64decode, b64encode

import numpy as np

from fracdnn.tabular.ids import row_hashes

# Of more rows, those with the smallest hashes, which are as good as drawn at random.
MOST = 4096
# Below this share, rows may be alike by chance.
LEAST_SHARE = 0.2


def as_text(inputs: np.ndarray) -> str:
    """Of the rows learned from, for a model's file."""
    return b64encode(np.unique(row_hashes(inputs))[:MOST].astype("<u8").tobytes()).decode()


def seen(text: str, inputs: np.ndarray) -> np.ndarray:
    """How many of these rows were learned from, and of how many that is known."""
    known, hashes = np.frombuffer(b64decode(text), dtype="<u8"), row_hashes(inputs)
    looked = hashes <= known[-1] if len(known) == MOST else np.ones(len(hashes), dtype=bool)
    return np.array([np.isin(hashes[looked], known).sum(), looked.sum()])
