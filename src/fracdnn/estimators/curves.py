"""How a fit went, by the names that scikit-learn's MLP has for it; all of it is in `history_`."""

from fracdnn.training import History


class Curves:
    """What a fitted estimator's records say."""

    history_: History
    loss_: float

    @property
    def loss_curve_(self) -> list[float]:
        return self.history_.column("loss")

    @property
    def validation_scores_(self) -> list[float] | None:
        # A score is better where it is higher, as all of scikit-learn's are.
        losses = [loss for loss in self.history_.column("validation_score") if loss is not None]
        return [-loss for loss in losses] or None

    @property
    def best_loss_(self) -> float | None:
        return None if self.validation_scores_ else min(self.loss_curve_, default=self.loss_)

    @property
    def best_validation_score_(self) -> float | None:
        scores = self.validation_scores_
        return max(scores) if scores else None
