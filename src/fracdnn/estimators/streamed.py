"""An estimator fitted to samples that come in pieces, as they are too many for memory: one network, without bins.

On several processes each passes the same: all samples, of which it reads its part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from fracdnn.columns.encoding import Encoding
from fracdnn.estimators.base import FractionalEstimator
from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.recipe import settled
from fracdnn.estimators.regressor import FractionalRegressor
from fracdnn.estimators.shaping import Shaping
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.training import (
    AdamTraining,
    Objective,
    Standardization,
    StreamedAdamTraining,
    StreamedTask,
    Training,
)
from fracdnn.training.samples import Chunk, Samples
from fracdnn.training.together import ranks_here


def fit_classifier(
    estimator: FractionalClassifier,
    samples: Samples,
    classes: np.ndarray,
    counts: np.ndarray,
    standardization: Standardization,
    validation: Samples | None = None,
    encoding: Encoding | None = None,
) -> None:
    """Fit to features [n, n_features] in float64 and indices [n] of `classes`, which have `counts` samples.

    The `encoding` is what made features of a table's columns.
    """
    estimator._validate_params()
    estimator.classes_ = classes
    weights = _class_weights(estimator, counts)
    _fit(estimator, samples, validation, len(classes), "cross_entropy", standardization, weights, encoding)


def fit_regressor(
    estimator: FractionalRegressor,
    samples: Samples,
    target_scale: Standardization,
    standardization: Standardization,
    validation: Samples | None = None,
    encoding: Encoding | None = None,
) -> None:
    """Fit to features [n, n_features] and values [n, 1], both in float64; see `fit_classifier`."""
    estimator._validate_params()
    estimator.target_scale_, estimator._flat = target_scale, True
    estimator.target_limits_ = np.array([[-np.inf], [np.inf]])
    _fit(estimator, samples, validation, 1, "squared_error", standardization, None, encoding)


def _fit(
    estimator: FractionalEstimator,
    samples: Samples,
    validation: Samples | None,
    n_outputs: int,
    loss: str,
    standardization: Standardization,
    weights: torch.Tensor | None,
    encoding: Encoding | None,
) -> None:
    if estimator.solver == "paper":
        raise InvalidArgumentError(
            "solver must be one of 'adam', 'lbfgs', 'bfgs' for samples in pieces, got 'paper'; it draws halves of all "
            "samples, so pass another, or samples that fit into memory"
        )
    n_features, ranks = len(standardization.mean), ranks_here()
    scales = [standardization, *([estimator.target_scale_] if isinstance(estimator, FractionalRegressor) else [])]
    numbers = [part.tolist() for scale in scales for part in vars(scale).values()]
    ranks.check_same(parameters=estimator._parameters_text(), scaling=repr(numbers))
    generator = torch.Generator().manual_seed(estimator._seed(ranks))
    estimator.n_features_in_, estimator.standardization_ = n_features, standardization
    if encoding is None:
        estimator._take_numbers()
    else:
        estimator._take_encoding(encoding)
    estimator.shaping_ = Shaping.none(None if estimator.clip is None else float(estimator.clip))
    network = estimator._new_network(n_features, n_outputs, generator).to(estimator._dtype())
    estimator._smoothing = estimator._label_smoothing()
    objective = estimator._objective(loss)

    def task(part: Samples, objective: Objective, held_out: StreamedTask | None = None) -> StreamedTask:
        scaled = _Scaled(part, estimator, weights)
        return StreamedTask(network, objective, scaled, generator, validation=held_out, ranks=ranks)

    recipe = settled(estimator, sum(samples.sizes), n_features)
    recipe = replace(recipe, n_members=1, holds_out=validation is not None)

    def training(member: int, max_time: float | None) -> Training:
        found = estimator._of_member(recipe, member, max_time)
        if not isinstance(found, AdamTraining):
            return found
        return StreamedAdamTraining(**{each.name: getattr(found, each.name) for each in fields(found)})

    held_out = None if validation is None else task(validation, objective.unsmoothed())
    estimator._train_tasks([task(samples, objective, held_out)], training, recipe.iterations)


@dataclass(frozen=True)
class _Scaled(Samples):
    """Samples as the network takes them."""

    source: Samples
    estimator: Any
    weights: torch.Tensor | None

    @property
    def sizes(self) -> Sequence[int]:
        return self.source.sizes

    def digest(self) -> str:
        return self.source.digest()

    def read(self, piece: int) -> Iterator[Chunk]:
        estimator = self.estimator
        dtype, device = estimator._dtype(), estimator._device()
        for x, target, _ in self.source.read(piece):
            weight = None if self.weights is None else self.weights[target].to(device, dtype)
            if target.is_floating_point():
                target = estimator.target_scale_(target).to(dtype)
            yield estimator._standardised(x).to(dtype), target.to(device), weight


def _class_weights(estimator: FractionalClassifier, counts: np.ndarray) -> torch.Tensor | None:
    """A weight for each class, or None; as `fit` has them, up to a common factor."""
    given = estimator._checked_class_weight()
    if given is None:
        return None
    classes = estimator.classes_
    found = counts.sum() / (len(classes) * counts) if given == "balanced" else [given.get(c, 1.0) for c in classes]
    weights = torch.as_tensor(np.array(found, dtype=np.float64))
    if not bool((weights > 0).all()):
        name = classes[int((weights <= 0).to(torch.int64).argmax())]
        raise ValueError(
            f"class_weight must hold numbers above 0 for samples in pieces, got 0 for class {name!r}; "
            f"leave its rows out of the table"
        )
    return weights / weights.max()
