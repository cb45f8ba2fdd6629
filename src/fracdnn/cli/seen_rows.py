"""Which rows a model was trained on, as hashes in its file: what it scores on them says little of new rows."""

from base64 import b64decode, b64encode

import numpy as np

# Of more rows, those with the smallest hashes, which are as good as drawn at random.
MOST = 4096
# Below this share, rows may be alike by chance.
LEAST_SHARE = 0.2


def row_hashes(inputs: np.ndarray) -> np.ndarray:
    """64 bits for each row of a network's inputs (Steele, Lea and Flood 2014)."""
    bits, found = (np.ascontiguousarray(inputs) + 0.0).view(np.uint64), np.zeros(len(inputs), dtype=np.uint64)
    for column in bits.T:
        found = (found ^ column) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(31)
    return found


def as_text(inputs: np.ndarray) -> str:
    """Of the rows learned from, for a model's file."""
    return b64encode(np.unique(row_hashes(inputs))[:MOST].astype("<u8").tobytes()).decode()


def seen(text: str, inputs: np.ndarray) -> np.ndarray:
    """How many of these rows were learned from, and of how many that is known."""
    known, hashes = np.frombuffer(b64decode(text), dtype="<u8"), row_hashes(inputs)
    looked = hashes <= known[-1] if len(known) == MOST else np.ones(len(hashes), dtype=bool)
    return np.array([np.isin(hashes[looked], known).sum(), looked.sum()])
