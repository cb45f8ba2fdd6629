"""The plane in which the answer of a network changes most.

The outputs are W Y_N, so that the answer depends on the last state only through them: what they do not hold no reader
needs to see. For outputs less their mean Z = U diag(s) Vᵀ (for classes also less the mean over classes, which a softmax
does not notice), the first directions are Wᵀ v_1 and Wᵀ v_2, and s_1² and s_2² of Σ s² is the share they show: all of
it for up to three classes. For earlier states the same plane shows what the answer would be, did the layers end there.
Where the outputs have one direction alone, the second axis is the greatest spread that does not go with the answer.
"""

from dataclasses import dataclass

import numpy as np

# Below this share of the greatest, a direction holds rounding errors.
_NOTHING = 1e-9


@dataclass(frozen=True)
class Plane:
    """Two directions [2, width], and the shares of the spread of the answers that they show."""

    directions: np.ndarray
    shares: np.ndarray

    def places(self, states: np.ndarray) -> np.ndarray:
        """[..., width] → [..., 2]."""
        return states @ self.directions.T


def answer_plane(last: np.ndarray, W: np.ndarray, *, classifies: bool) -> Plane:
    """Of last states [n, width] and outputs' weights W [n_outputs, width]."""
    weights = W - W.mean(axis=0) if classifies else W
    centred = last - last.mean(axis=0)
    _, sizes, turned = np.linalg.svd(centred @ weights.T, full_matrices=False)
    spread = sizes**2
    rank = int((spread > _NOTHING * spread.max(initial=0.0)).sum()) if spread.any() else 0
    found = [_signed(turned[k] @ weights) for k in range(min(2, rank))]
    shares = [float(spread[k] / spread.sum()) for k in range(min(2, rank))]
    while len(found) < 2:
        found.append(_widest(centred, centred @ np.array(found).reshape(-1, centred.shape[1]).T))
        shares.append(0.0)
    return Plane(np.array(found), np.array(shares))


def _widest(centred: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The direction, of length 1, in which the states spread most without going with the `others` [n, k]."""
    together = centred.T @ others
    basis = np.linalg.qr(together)[0] if together.any() else np.zeros((centred.shape[1], 0))
    across = centred - centred @ basis @ basis.T
    return _signed(np.linalg.svd(across, full_matrices=False)[2][0])


def _signed(direction: np.ndarray) -> np.ndarray:
    """The largest part positive, so that a report is the same each time."""
    sign = np.sign(direction[np.abs(direction).argmax()])
    return direction * (sign or 1.0)


def nearest_share(places: np.ndarray, labels: np.ndarray) -> float:
    """The share of places [n, 2] whose nearest centre of a class is that of their own."""
    names = np.unique(labels)
    centres = np.stack([places[labels == name].mean(axis=0) for name in names])
    nearest = ((places[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return float((names[nearest] == labels).mean())
