"""The posterior: its log-density with gradient, for any sampler, and lmfit's emcee."""

import math
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, MissingExtraError
from fracdnn.extras import require
from fracdnn.fitting.measurements import data_sets
from fracdnn.fitting.misfit import Misfit
from fracdnn.fitting.start_values import start_parameters
from fracdnn.validation import check_count


class LogDensity:
    """log p(x | data) up to a constant, of the free parameters x [p] in the order of `names`, differentiable.

    With known sigma −χ²/2; else the size of the noise is integrated out under the prior 1/size: −n/2 ln χ², for one
    data set. The prior is uniform within the bounds; outside the density is 0, its logarithm −inf. Arguments as in
    `fracdnn.fit`.
    """

    def __init__(self, model: Any, parameters: Any, t: Any, data: Any, sigma: Any = None) -> None:
        require("lmfit")
        self._misfit = Misfit(data_sets(model, t, data, sigma), start_parameters(parameters))
        unknown = [each.noise for each in self._misfit.sets if each.noise != "known"]
        if unknown and len(self._misfit.sets) > 1:
            raise InvalidArgumentError(
                f"sigma must be known for each of several data sets, got {len(unknown)} without; pass numbers for each"
            )
        self.names, self._is_weighted = list(self._misfit.free), not unknown
        self.start = torch.tensor(self._misfit.best[1], dtype=torch.float64)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithm, 0-d."""
        inside = (x.detach() >= torch.tensor(self._misfit.lower)) & (x.detach() <= torch.tensor(self._misfit.upper))
        if not bool(inside.all()):
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
        import emcee  # noqa: F401
    except ImportError:
        raise MissingExtraError("emcee is missing: run pip install emcee", name="emcee") from None
    from lmfit import Minimizer

    misfit, generator = result.misfit, np.random.default_rng(random_state)
    # lmfit's own parameter for the size of the noise, where it is not known.
    start = misfit.start.copy()
    for name in misfit.free:
        start[name].set(value=result.values[name])
    centers = [result.values[name] for name in misfit.free]
    spreads = [result.errors[name] for name in misfit.free]
    if not result.absolute_sigma:
        noise = 0.5 * math.log(float(np.mean(misfit.residual(np.array(centers)) ** 2)))
        start.add("__lnsigma", value=noise, min=noise - 10, max=noise + 10)
        centers, spreads = [*centers, noise], [*spreads, 0.1]
    position = np.array(centers) + 0.5 * np.array(spreads) * generator.standard_normal((n_walkers, len(centers)))
    count = len(misfit.free)
    position[:, :count] = np.clip(position[:, :count], misfit.lower, misfit.upper)

    minimizer = Minimizer(lambda given: misfit.residual(misfit.point(given)), start, nan_policy="propagate")
    found = minimizer.emcee(
        steps=n_steps, nwalkers=n_walkers, burn=n_steps // 3, pos=position, is_weighted=result.absolute_sigma,
        seed=generator.integers(2**31), progress=False,
    )  # fmt: skip
    chain = found.chain.reshape(-1, found.chain.shape[-1])
    return {name: chain[:, found.var_names.index(name)] for name in misfit.free}
