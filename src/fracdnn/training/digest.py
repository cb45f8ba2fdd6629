"""A number for samples that tells whether they are the same, whichever process holds which."""

import numpy as np
import torch

from fracdnn.training import together

_ROWS_AT_A_TIME = 65_536
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def digest(parts: list[torch.Tensor], places: torch.Tensor | None) -> str:
    """The sum of a hash of each row of all parts together, and of its place; without places the order is free."""
    total, n = np.uint64(0), len(parts[0])
    with np.errstate(over="ignore"):
        for begin in range(0, n, _ROWS_AT_A_TIME):
            rows = slice(begin, begin + _ROWS_AT_A_TIME)
            words = np.hstack([_words(part[rows]) for part in parts])
            hashes = _mixed(words + _GOLDEN * np.arange(1, words.shape[1] + 1, dtype=np.uint64)).sum(1)
            if places is not None:
                hashes += _mixed(places[rows].numpy().astype(np.uint64) + _GOLDEN)
            total += _mixed(hashes).sum()
    here = torch.from_numpy(np.array([total, n], dtype=np.uint64).view(np.int64))
    sums = together.total(here, "the digest of the data")
    kinds = [f"{part.dtype} {tuple(part.shape[1:])}" for part in parts]
    return f"{int(sums[1])} rows of {', '.join(kinds)}: {int(sums[0]) % 2**64:016x}"


def _words(part: torch.Tensor) -> np.ndarray:
    """The bytes of each row as whole numbers of 64 bits, filled up with zeros."""
    values = part.detach().cpu().contiguous().numpy()
    octets = values.reshape(len(values), -1).view(np.uint8)
    return np.ascontiguousarray(np.pad(octets, ((0, 0), (0, -octets.shape[1] % 8)))).view(np.uint64)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Each number scattered (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
