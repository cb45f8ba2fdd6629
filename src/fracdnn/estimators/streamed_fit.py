"""An estimator fitted to samples that come in pieces, as they are too many for memory: one network, without bins.

On several processes each passes the same: all samples, of which it reads its part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fracdnn.columns.encoding import Encoding
from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.estimator import FractionalEstimator
from fracdnn.estimators.recipe import resolve_recipe
from fracdnn.estimators.regressor import FractionalRegressor
from fracdnn.estimators.sample_checks import class_weights
from fracdnn.estimators.shaping import Shaping
from fracdnn.training import Standardization, StreamedAdamTraining, StreamedTask, together
from fracdnn.training.samples import Chunk, Samples


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
    estimator._check_parameters()
    estimator.classes_, weights = classes, None
    if estimator.class_weight is not None:
        found = class_weights(estimator.class_weight, classes, counts)
        if not found.all():
            raise ValueError(
                f"class_weight must hold numbers above 0 for samples in pieces, got 0 for class "
                f"{classes[found.argmin()]!r}; leave its rows out of the table"
            )
        weights = torch.from_numpy(found / found.max())
    _fit(estimator, samples, validation, standardization, weights, encoding)


def fit_regressor(
    estimator: FractionalRegressor,
    samples: Samples,
    target_scale: Standardization,
    standardization: Standardization,
    validation: Samples | None = None,
    encoding: Encoding | None = None,
) -> None:
    """Fit to features [n, n_features] and values [n, 1], both in float64; see `fit_classifier`."""
    estimator._check_parameters()
    estimator.target_scale_, estimator._flat = target_scale, True
    estimator.target_limits_ = np.array([[-np.inf], [np.inf]])
    _fit(estimator, samples, validation, standardization, None, encoding)


def _fit(
    estimator: FractionalEstimator,
    samples: Samples,
    validation: Samples | None,
    standardization: Standardization,
    weights: torch.Tensor | None,
    encoding: Encoding | None,
) -> None:
    n_features, scales = len(standardization.mean), [standardization, getattr(estimator, "target_scale_", None)]
    numbers = [part.tolist() for scale in scales if scale for part in vars(scale).values()]
    together.check_same(parameters=estimator._parameters_text(), scaling=repr(numbers))
    generator = torch.Generator().manual_seed(estimator._seed())
    estimator.standardization_ = standardization
    if encoding is None:
        estimator._take_numbers()
    else:
        estimator._take_encoding(encoding)
    estimator.shaping_ = Shaping.none(None if estimator.clip is None else float(estimator.clip))
    network = estimator._new_network(n_features, generator).to(estimator._dtype())
    objective = estimator._objective()
    recipe = resolve_recipe(estimator, sum(samples.sizes), n_features)
    recipe = replace(recipe, n_members=1, holds_out=validation is not None)
    task = StreamedTask(network, objective, _Scaled(samples, estimator, weights), generator)
    if validation is not None:
        held_out = _Scaled(validation, estimator, weights)
        task.validation = StreamedTask(network, objective.unsmoothed(), held_out, generator)
    estimator._train_tasks([task], recipe, StreamedAdamTraining)


@dataclass(frozen=True)
class _Scaled(Samples):
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
