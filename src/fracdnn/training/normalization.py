"""Zero mean and unit deviation: by training statistics, or by each batch's own as the paper does it."""

from dataclasses import dataclass

import torch

from fracdnn.training import together


@dataclass(frozen=True, eq=False)
class Standardization:
    """(x − mean) / deviation, by feature; a feature without deviation is only centered."""

    mean: torch.Tensor
    deviation: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor, weight: torch.Tensor | None = None) -> "Standardization":
        """The statistics of rows, weighted where weights are given."""
        weight = torch.ones(len(x), dtype=x.dtype, device=x.device) if weight is None else weight
        share = (weight / weight.sum()).unsqueeze(-1)
        mean = (share * x).sum(0)
        # By the largest distance first: squares of large numbers overflow.
        largest = (x - mean).abs().amax(0).clamp(min=torch.finfo(x.dtype).tiny)
        variance = (share * ((x - mean) / largest) ** 2).sum(0)
        return cls.of_moments(mean, variance.sqrt() * largest)

    @classmethod
    def of_moments(cls, mean: torch.Tensor, deviation: torch.Tensor) -> "Standardization":
        """Where these are known."""
        return cls(mean, _without_zeros(deviation, mean))

    @classmethod
    def of_document(cls, document: dict[str, torch.Tensor], n: int) -> "Standardization":
        """The inverse of `vars`; a ValueError unless it is one of so many features, in float64."""
        found = cls(**document)
        for part in (found.mean, found.deviation):
            if part.shape != (n,) or part.dtype != torch.float64:
                raise ValueError(f"a scaling of shape {tuple(part.shape)} and {part.dtype} for {n} numbers")
        if not bool(torch.isfinite(found.mean).all()) or not bool((found.deviation > 0).all()):
            raise ValueError("a scaling by numbers that are not finite, or not above 0")
        return found

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.deviation

    def undo(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.deviation + self.mean


def normalize_batch(x: torch.Tensor, *, per_feature: bool = True, shared: bool = False) -> torch.Tensor:
    """The paper's eq. (BN): a batch by its own mean and standard deviation, for each feature or over all numbers.

    For reproduction only. As a predictor it is wrong: an answer depends on its neighbors in the batch. `shared` takes
    the rows of all processes for one batch.
    """
    dim = 0 if per_feature else tuple(range(x.dim()))
    if not shared or together.is_alone():
        mean = x.mean(dim, keepdim=True)
        deviation = x.std(dim, keepdim=True, correction=1 if len(x) > 1 else 0)
    else:
        what = "the means and deviations of a mini-batch"
        n = float(together.total(torch.tensor(float(len(x) if per_feature else x.numel())), what))
        mean = together.total(x.sum(dim, keepdim=True), what) / n
        squares = together.total((x - mean).square().sum(dim, keepdim=True), what)
        deviation = (squares / max(n - 1, 1)).sqrt()
    return (x - mean) / _without_zeros(deviation, mean)


def _without_zeros(deviation: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    rounding = 10 * torch.finfo(deviation.dtype).eps * mean.abs()
    return torch.where(deviation > rounding, deviation, torch.ones_like(deviation))
