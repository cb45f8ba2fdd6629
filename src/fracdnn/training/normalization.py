"""Zero mean and unit deviation: by training statistics, or by each batch's own as the paper does it."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Standardization:
    """(x − mean) / deviation for each feature; a feature without deviation is only centered."""

    mean: torch.Tensor
    deviation: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor, weight: torch.Tensor | None = None) -> "Standardization":
        """Return the statistics of rows, weighted where weights are given."""
        weight = torch.ones(len(x), dtype=x.dtype, device=x.device) if weight is None else weight
        share = (weight / weight.sum()).unsqueeze(-1)
        mean = (share * x).sum(0)
        # Squares of large numbers overflow, so they are divided by the largest distance first.
        largest = (x - mean).abs().amax(0).clamp(min=torch.finfo(x.dtype).tiny)
        variance = (share * ((x - mean) / largest) ** 2).sum(0)
        return cls(mean, _without_zeros(variance.sqrt() * largest, mean))

    @classmethod
    def of_document(cls, document: dict[str, torch.Tensor], n: int) -> "Standardization":
        """Invert `vars`; raise ValueError unless the document is for `n` features in float64."""
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


def normalize_batch(x: torch.Tensor, *, per_feature: bool = True) -> torch.Tensor:
    """Apply the paper's eq. (BN): scale a batch by its own mean and deviation, per feature or over all numbers.

    For reproduction only. As a predictor it is wrong: an answer depends on its neighbors in the batch.
    """
    dim = 0 if per_feature else tuple(range(x.dim()))
    mean = x.mean(dim, keepdim=True)
    deviation = x.std(dim, keepdim=True, correction=1 if len(x) > 1 else 0)
    return (x - mean) / _without_zeros(deviation, mean)


def _without_zeros(deviation: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    rounding = 10 * torch.finfo(deviation.dtype).eps * mean.abs()
    return torch.where(deviation > rounding, deviation, torch.ones_like(deviation))
