"""The posterior: its log-density with gradient, for any sampler, and draws by emcee."""

import math
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, MissingExtraError
from fracdnn.fitting.misfit import Misfit
from fracdnn.validation import check_count


class LogDensity:
    """log p(x | data) up to a constant, of the free parameters x [p] in the order of `names`, differentiable.

    With known sigma −χ²/2; else the size of the noise is integrated out under the prior 1/size: −n/2 ln χ², for one
    data set. The prior is uniform within the bounds; outside the density is 0, its logarithm −inf. Arguments as in
    `fracdnn.fit`.
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

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithm, 0-d."""
        if not self._misfit.allows(x.detach().numpy()):
            return x.sum() * 0.0 - math.inf
        residual = self._misfit.weighted(x)
        size = residual @ residual
        return -0.5 * size if self._is_weighted else -0.5 * len(residual) * torch.log(size)

    def value_and_gradient(self, x: Any) -> tuple[float, np.ndarray]:
        """As numbers of NumPy."""
        point = torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)
        value = self(point)
        return float(value.detach()), torch.autograd.grad(value, point)[0].numpy()


def sampled(result: Any, n_steps: int, n_walkers: int, random_state: int | None) -> dict[str, np.ndarray]:
    """See `FitResult.sample`."""
    if result.misfit is None:
        raise InvalidArgumentError("sample must be called on a result of fit, got one from a file; fit again")
    if result.loss != "linear":
        raise InvalidArgumentError(f"loss must be 'linear' for a posterior, got {result.loss!r}; fit with that")
    check_count(n_steps, "n_steps", minimum=3)
    check_count(n_walkers, "n_walkers", minimum=2 * len(result.free) + 2)
    try:
        from emcee import EnsembleSampler
    except ImportError:
        raise MissingExtraError("emcee is missing: run pip install emcee", name="emcee") from None
    misfit, generator = result.misfit, np.random.default_rng(random_state)

    def log_density(x: np.ndarray) -> float:
        if not misfit.allows(x):
            return -math.inf
        size = float(np.sum(misfit.residual(x) ** 2))  # NaN where there is no model
        value = -0.5 * size if result.absolute_sigma else -0.5 * misfit.n_numbers * math.log(max(size, 1e-300))
        return value if math.isfinite(value) else -math.inf

    spread = 0.5 * generator.standard_normal((n_walkers, len(result.free)))
    centers, errors = (np.array([values[name] for name in result.free]) for values in (result.values, result.errors))
    position = np.clip(centers + spread * errors, misfit.lower, misfit.upper)
    sampler = EnsembleSampler(n_walkers, len(result.free), log_density)
    sampler.random_state = np.random.RandomState(generator.integers(2**31)).get_state()
    sampler.run_mcmc(position, n_steps)
    chain = sampler.get_chain(discard=n_steps // 3, flat=True)
    return dict(zip(result.free, chain.T, strict=True))
