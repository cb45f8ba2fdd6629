"""How far off members are on rows that they were not trained on, and the intervals and sets that follow from it.

CV+ (Barber, Candès, Ramdas and Tibshirani 2021; for classes Romano, Sesia and Candès 2020): row i was held out of
member k(i), which was off by e_i. A new row x has the values f_k(i)(x) + e_i, one for each i, and their quantiles bound
it. If rows are exchangeable and members treat them alike, an interval of level 1 − a holds at least 1 − 2a of new
values, less a term that vanishes with the number of rows, and about 1 − a in practice; with one member it is
split-conformal, with 1 − a. Here members also stop early by the rows that they hold out, which no theorem covers and
which makes e_i slightly too small, while the mean of several members makes the prediction better than e_i says.

Errors are divided by a scale s_k(x), where that explains them: log s is linear in the network's features, by ridge
regression on log |e_i| of the other parts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fracdnn.estimators.shaping import quantiles
from fracdnn.training import Task

# Of more held-out rows so many quantiles of their scores are kept, which moves a level by 1 / 4,096 at most.
MOST_SCORES = 4096
# No scale is learned of more features, or of fewer rows for each part.
MOST_FEATURES, LEAST_ROWS = 1024, 10
# Penalties that are tried, in rows; at the last one there is no scale left.
_PENALTIES = (1.0, 10.0, 100.0, 1e3, math.inf)
_MOST_LOG = 3.0
_ROWS_AT_A_TIME = 256
# Factors of the logits that are tried, evenly in the logarithm; one far from 1 needs rows that speak for it.
_FACTORS = torch.linspace(-1.5, 1.5, 121, dtype=torch.float64)
_PENALTY, _COARSE = 1.0, 8


@dataclass(frozen=True, eq=False)
class Calibration:
    """Sorted scores [m, n_outputs] of the rows that each member held out, of `n` rows in all; for classes [m, 1].

    `slopes` [n_members, n_features + 1, n_outputs] give the logarithm of the scale, the last one its constant.
    """

    scores: list[torch.Tensor]
    n: int
    slopes: torch.Tensor | None = None

    @classmethod
    def of_document(cls, document: dict[str, Any] | None, n_members: int, n_features: int) -> "Calibration | None":
        """The inverse of `vars`; a ValueError unless it is one of such a model."""
        if document is None:
            return None
        found = cls(**document)
        shapes = {tuple(each.shape[1:]) for each in found.scores}
        finite = all(bool(torch.isfinite(each).all()) and len(each) for each in found.scores)
        if len(found.scores) != n_members or len(shapes) != 1 or not finite or not isinstance(found.n, int):
            raise ValueError("scores of other members than there are")
        if found.slopes is not None and found.slopes.shape[:2] != (n_members, n_features + 1):
            raise ValueError("a scale of other features than the network's")
        return found

    @classmethod
    def of(
        cls,
        scores: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        features: Sequence[torch.Tensor] | None = None,
    ) -> "Calibration | None":
        """Of scores [n_k, n_outputs] by member, each of which stands as often as its weight [n_k] says; None where some
        are not finite, or a member has none. With `features`, a scale of the scores is learned.
        """
        slopes = None if features is None else _learned_slopes(scores, features, weights)
        if slopes is not None and features is not None:
            scales = [_scales(slopes[k : k + 1], x)[0] for k, x in enumerate(features)]
            scores = [errors / scale for errors, scale in zip(scores, scales, strict=True)]
        if not all(len(each) and bool(torch.isfinite(each).all()) for each in scores):
            return None
        n, every = sum(map(len, scores)), torch.cat(list(weights))
        if n <= MOST_SCORES and bool((every == every[0]).all()):
            return cls([each.sort(0).values for each in scores], n, slopes)
        share = min(n, MOST_SCORES) / float(every.sum())
        counts = [max(1, round(share * float(weight.sum()))) for weight in weights]
        return cls([_thinned(*each) for each in zip(scores, weights, counts, strict=True)], n, slopes)

    def quantiles(self, x: torch.Tensor, outputs: torch.Tensor, shares: Sequence[float]) -> torch.Tensor:
        """Quantiles [n, n_outputs, n_shares] of the values for features x, of members' outputs [members, n, n_outputs];
        infinite where the held-out rows are too few. Those above one half are rounded up, those below down.
        """
        scales = _scales(self.slopes, x) if self.slopes is not None else torch.ones_like(outputs)
        parts = [slice(i, i + _ROWS_AT_A_TIME) for i in range(0, len(x), _ROWS_AT_A_TIME)]
        return torch.cat([self._quantiles(outputs[:, part], scales[:, part], shares) for part in parts])

    def _quantiles(self, outputs: torch.Tensor, scales: torch.Tensor, shares: Sequence[float]) -> torch.Tensor:
        several = zip(outputs, scales, self.scores, strict=True)
        values = torch.cat([output[:, None] + scale[:, None] * scores for output, scale, scores in several], dim=1)
        found = []
        for share in shares:
            rank = share * (self.n + 1)
            rank = math.ceil(rank - 1e-9) if share >= 0.5 else math.floor(rank + 1e-9)
            if 1 <= rank <= self.n:
                place = rank * values.shape[1] / self.n
                place = max(1, math.ceil(place - 1e-9) if share >= 0.5 else math.floor(place + 1e-9))
                found.append(values.kthvalue(place, dim=1).values)
            else:
                found.append(torch.full_like(outputs[0], math.inf if rank > self.n else -math.inf))
        return torch.stack(found, dim=-1)

    def shortage(self, interval: float) -> str:
        """What to say where the ends of the interval are infinite, else nothing."""
        least = math.ceil((1 - 1e-9) / (0.5 - interval / 2)) - 1
        lack = f"an interval of {interval:g} takes {least:,} held-out rows, got {self.n:,}: its ends are infinite"
        return "" if self.n >= least else f"{lack}; pass a smaller one, or train on more rows"

    def plausible(self, probabilities: torch.Tensor, coverage: float) -> torch.Tensor:
        """Which classes [n, n_classes] cannot be ruled out, by the members' probabilities [members, n, n_classes]."""
        worse = torch.zeros(probabilities.shape[1:], dtype=torch.float64)
        for each, scores in zip(probabilities, self.scores, strict=True):
            known = scores[:, 0].contiguous()
            worse += len(known) - torch.searchsorted(known, (1.0 - each).contiguous() - 1e-12)
        share = (1.0 + worse * self.n / sum(map(len, self.scores))) / (self.n + 1.0)
        found = share > 1.0 - coverage
        return found.scatter(1, probabilities.mean(0).argmax(1, keepdim=True), True)


def temperature_of(held_out: Sequence[tuple[torch.Tensor, ...]]) -> float:
    """By what to divide logits so that their probabilities have the least log-loss on samples held out of training.

    For each member these are outputs, labels and weights of samples it was not trained on. The tempered log-loss of a
    handful of samples says little, so that one sample's worth of (log T)² is added.
    """
    logits, target, weight = (torch.cat(parts) for parts in zip(*held_out, strict=True))
    n, weight = len(logits), weight.to(torch.float64)

    def losses(logs: torch.Tensor) -> torch.Tensor:
        several = (cross_entropy(logits * factor, target, reduction="none") for factor in logs.exp())
        return torch.stack([weight @ each for each in several]) / weight.sum() * n + _PENALTY * logs**2

    # First all over, then next to the best one.
    coarse = _FACTORS[::_COARSE]
    best = int(losses(coarse).argmin()) * _COARSE
    logs = _FACTORS[max(0, best - _COARSE) : best + _COARSE + 1]
    # Between them, where the parabola through the best one and its neighbors is lowest.
    found = losses(logs)
    place = int(found.argmin().clamp(1, len(logs) - 2))
    before, here, after = found[place - 1 : place + 2]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend if bend > 0 else torch.zeros(())
    return float(torch.exp(-logs[place] - shift.clamp(-1, 1) * (logs[1] - logs[0])))


def weight_of(task: Task) -> torch.Tensor:
    """Return the weight of each sample, 1 where none is given."""
    return torch.ones(task.n) if task.weight is None else task.weight.cpu()


def _learned_slopes(
    errors: Sequence[torch.Tensor], features: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """The `slopes` that predict log |e| of each part best from the other parts; None where none do, or rows are few."""
    n_features, n = features[0].shape[1] + 1, sum(map(len, errors))
    if len(errors) < 2 or n_features > MOST_FEATURES or n < LEAST_ROWS * len(errors):
        return None
    least = 1e-3 * torch.cat(list(errors)).abs().median(0).values.clamp(min=1e-12)
    logs = [each.abs().clamp(min=least).log() for each in errors]
    mean = torch.cat(logs).mean(0)
    designs = [torch.cat([each, torch.ones(len(each), 1)], 1).to(torch.float64) for each in features]
    grams = [(x.T * (w / w.mean())) @ x for x, w in zip(designs, weights, strict=True)]
    sides = [(x.T * (w / w.mean())) @ (y - mean) for x, w, y in zip(designs, weights, logs, strict=True)]
    gram, side, best = sum(grams), sum(sides), (math.inf, torch.zeros(0))
    for penalty in _PENALTIES:
        ridge = torch.eye(n_features, dtype=torch.float64) * min(penalty, 1e12)
        ridge[-1, -1] = 1e-6
        slopes = torch.stack(
            [torch.linalg.solve(gram - g + ridge, side - s) for g, s in zip(grams, sides, strict=True)]
        )
        missed = sum(float(((y - mean - x @ b) ** 2).sum()) for x, y, b in zip(designs, logs, slopes, strict=True))
        best = min(best, (missed, slopes), key=lambda each: each[0])
        flat = math.isinf(penalty) and best[1] is slopes
    return None if flat else best[1]


def _scales(slopes: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """[n_members, n, n_outputs]"""
    logs = features.to(torch.float64) @ slopes[:, :-1] + slopes[:, -1:]
    return logs.clamp(-_MOST_LOG, _MOST_LOG).exp()


def _thinned(scores: torch.Tensor, weight: torch.Tensor, count: int) -> torch.Tensor:
    """So many scores in the middle of equal shares of the weight, for each output."""
    shares, weights = (np.arange(count) + 0.5) / count, weight.to(torch.float64).numpy()
    return torch.from_numpy(np.column_stack([quantiles(column, weights, shares) for column in scores.numpy().T]))
