"""The posterior: its log-density with gradient, for any sampler."""

import math
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.fitting.misfit import Misfit


class LogDensity:
    """log p(x | data) up to a constant, of the free parameters x [p] in the order of `names`, differentiable.

    With known sigma −χ²/2; else the size of the noise is integrated out under the prior 1/size: −n/2 ln χ², for one
    data set. The prior is uniform within the bounds; outside, and where the model is not finite, the logarithm is −inf.
    Arguments as in `fracdnn.fit`.
    """

    def __init__(self, model: Any, parameters: Any, t: Any, data: Any, sigma: Any = None) -> None:
        self._misfit = Misfit(model, parameters, t, data, sigma)
        unknown = [each.noise for each in self._misfit.sets if each.noise != "known"]
        if unknown and len(self._misfit.sets) > 1:
            raise InvalidArgumentError(
                f"sigma must be known for each of several data sets, got {len(unknown)} without; pass numbers for each"
            )
        self.names, self._is_weighted = list(self._misfit.free), not unknown
        self.start = torch.tensor(self._misfit.best[1], dtype=torch.float64)

    def __call__(self, x: Any) -> torch.Tensor:
        x, misfit = torch.as_tensor(x, dtype=torch.float64), self._misfit
        place = x.detach().numpy()
        if not ((misfit.lower <= place) & (place <= misfit.upper)).all():
            return x.sum() * 0.0 - math.inf
        residual = misfit.weighted(x)
        size = residual @ residual
        value = -0.5 * size if self._is_weighted else -0.5 * len(residual) * torch.log(size)
        return torch.where(value.isnan(), -math.inf, value)

    def value_and_gradient(self, x: Any) -> tuple[float, np.ndarray]:
        """As numbers of NumPy."""
        point = torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)
        value = self(point)
        return float(value.detach()), torch.autograd.grad(value, point)[0].numpy()
