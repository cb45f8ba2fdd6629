"""An estimator fitted to samples that come in pieces, as they are too many for memory: one network, without bins.

On several processes each passes the same: all samples, of which it reads its part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fracdnn.estimators.classifier import class_weights
from fracdnn.estimators.recipe import resolve_recipe
from fracdnn.estimators.shaping import Shaping
from fracdnn.tables.encoder import Encoder
from fracdnn.training import Standardization, StreamedAdamTraining, StreamedTask, together
from fracdnn.training.samples import Chunk, Samples


def fit_streamed(
    estimator: Any,
    samples: Samples,
    standardization: Standardization,
    encoding: Encoder,
    *,
    validation: Samples | None = None,
    classes: Any = None,
    counts: Any = None,
    target_scale: Standardization | None = None,
) -> None:
    """Fit to features [n, n_features] in float64, which the `encoding` made of a table's columns.

    A classifier takes indices [n] of `classes`, which have `counts` samples; a regressor values [n, 1] in float64 and
    their `target_scale`.
    """
    estimator._check_parameters()
    weights = None
    if target_scale is None:
        estimator.classes_ = classes
        if estimator.class_weight is not None:
            found = class_weights(estimator.class_weight, classes, counts)
            if not found.all():
                raise ValueError(
                    f"class_weight must hold numbers above 0 for samples in pieces, got 0 for class "
                    f"{estimator.classes_[found.argmin()]!r}; leave its rows out of the table"
                )
            weights = torch.from_numpy(found / found.max())
    else:
        estimator.target_scale_, estimator._flat = target_scale, True
        estimator.target_limits_ = np.array([[-np.inf], [np.inf]])
    scales = [vars(scale).values() for scale in (standardization, target_scale) if scale is not None]
    together.check_same(
        parameters=estimator._parameters_text(), scaling=repr([part.tolist() for scale in scales for part in scale])
    )
    generator = torch.Generator().manual_seed(estimator._seed())
    estimator.standardization_ = standardization
    estimator._take_encoding(encoding)
    estimator.shaping_ = Shaping.of(np.empty((0, 0)), np.empty(0), 0, estimator.clip)
    n_features = len(standardization.mean)
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
