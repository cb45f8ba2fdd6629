"""The settings of a fit that are not parameters, and those that "auto" chooses by the size of the table.

They were found on the development half of the study; docs/estimators.md says how.
"""

from dataclasses import dataclass
from typing import Any

# Members for tables with fewer rows than this; above the last one there is a single network.
MEMBERS = ((10, 1), (5_000, 8), (20_000, 5), (100_000, 2))
# With fewer rows nothing can be held out.
FEWEST_TO_HOLD_OUT = 10
# So many times the rows of a large table pass a member in all, but not fewer than LEAST_EPOCHS times each.
MOST_EPOCHS, LEAST_EPOCHS, ROWS_PASSED = 100, 10, 1_000_000
FULL_BATCH_ITERATIONS = 60
STEPS_AN_EPOCH, SMALLEST_BATCH, LARGEST_BATCH = 8, 32, 256
LARGE_TABLE, BATCH_OF_LARGE = 65_536, 1024
# Tables with more inputs get no bins: they would be nine times as wide. Nor do networks as wide as their features.
BINS, MOST_INPUTS_WITH_BINS = 8, 128
# Scaled inputs are soft-clipped to ±CLIP.
CLIP: float | None = 3.0
# A single member holds out this share; training ends after PATIENCE epochs without a better held-out loss.
VALIDATION_FRACTION, PATIENCE = 0.1, 30
LABEL_SMOOTHING = 0.05
# The norm of the gradient at which "lbfgs" and "bfgs" end.
TOLERANCE_GRAD = 1e-5
# A training writes some twenty checkpoints, and at most 50 iterations are lost.
CHECKPOINTS, MOST_BETWEEN_CHECKPOINTS = 20, 50


@dataclass(frozen=True)
class Recipe:
    """The settings of one fit."""

    n_members: int
    max_iter: int
    batch_size: int
    n_bins: int
    holds_out: bool

    @property
    def checkpoint_every(self) -> int:
        """Iterations from a checkpoint to the next."""
        return min(MOST_BETWEEN_CHECKPOINTS, max(1, self.max_iter // CHECKPOINTS))


def resolve_recipe(estimator: Any, n: int, n_inputs: int) -> Recipe:
    """Return the settings for `n` different rows of `n_inputs` numbers."""
    batch = 1 << max(0, -(-n // STEPS_AN_EPOCH) - 1).bit_length()  # the power of 2 next above an eighth of the rows
    batch = BATCH_OF_LARGE if n >= LARGE_TABLE else min(LARGEST_BATCH, max(SMALLEST_BATCH, batch))
    epochs = min(MOST_EPOCHS, max(LEAST_EPOCHS, ROWS_PASSED // max(n, 1)))
    by_rule = {
        "n_members": next((count for rows, count in MEMBERS if n < rows), 1),
        "max_iter": epochs if estimator.optimizer == "adam" else FULL_BATCH_ITERATIONS,
        "batch_size": batch,
    }
    n_bins = BINS if n_inputs <= MOST_INPUTS_WITH_BINS and estimator.width is not None else 0
    given = {name: getattr(estimator, name) for name in by_rule}
    chosen = {name: by_rule[name] if value == "auto" else int(value) for name, value in given.items()}
    holds_out = n >= FEWEST_TO_HOLD_OUT if estimator.early_stopping == "auto" else bool(estimator.early_stopping)
    return Recipe(**chosen, n_bins=n_bins, holds_out=holds_out)
