"""Whether probabilities can be trusted: how often predictions of some confidence are right."""

from dataclasses import dataclass

import numpy as np

BINS = 10


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions by their confidence, the probability of the predicted class, in equal bins (0, 0.1] … (0.9, 1].

    `counts` [bins] says how many there are, `confidence` the sum of their confidence, `hits` how many are right.
    """

    counts: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray

    @classmethod
    def of(cls, probabilities: np.ndarray, right: np.ndarray, bins: int = BINS) -> "Reliability":
        """Of probabilities [n, n_classes], the most probable class of which is `right` [n] or not."""
        confidence = probabilities.max(1)
        place = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], confidence)
        sums = (np.bincount(place, weights=each, minlength=bins) for each in (np.ones(len(place)), confidence, right))
        return cls(*sums)

    def merged(self, other: "Reliability") -> "Reliability":
        """Return the reliability of two sets of predictions together."""
        return Reliability(self.counts + other.counts, self.confidence + other.confidence, self.hits + other.hits)

    @property
    def error(self) -> float:
        """The expected calibration error (ECE): Σ n_b/n · |accuracy_b − mean confidence_b| over the bins b
        (Naeini, Cooper and Hauskrecht 2015); 0 without predictions.
        """
        return float(np.abs(self.hits - self.confidence).sum() / max(self.counts.sum(), 1.0))
