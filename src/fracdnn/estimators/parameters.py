"""An estimator's parameters, each declared once: its default, and what is allowed."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from fracdnn.exceptions import InvalidTypeError
from fracdnn.nn.operators import ACTIVATIONS, BIASES

# Parameters that say where and how to run, not what was learned.
LOCAL_PARAMETERS = ("device", "checkpoint", "resume", "verbose")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")

Estimator = TypeVar("Estimator")


def parameter(*, default: Any, allowed: Sequence[Any]) -> Any:
    """A parameter with its default and constraints, any of which a value must meet, as scikit-learn declares them."""
    return field(default=default, metadata={"allowed": list(allowed)})


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def with_parameters(kind: type[Estimator]) -> type[Estimator]:
    """Give the class a constructor that stores the parameters declared in its body and in those of its bases.

    A subclass may give a parameter of its base another default, `alpha: float = 1e-3`; what is allowed stays.
    """
    allowed = dict(getattr(kind, "_parameter_constraints", {}))
    for each in fields(dataclass(kw_only=True, eq=False, repr=False)(kind)):  # type: ignore[arg-type]
        allowed |= {each.name: each.metadata["allowed"]} if each.metadata else {}
        if each.name not in allowed:
            raise InvalidTypeError(
                f"{each.name} must be declared with what is allowed, got a default alone; "
                f"write {each.name} = parameter(default=…, allowed=[…])"
            )
    kind._parameter_constraints = allowed  # type: ignore[attr-defined]
    return kind


@with_parameters
class SharedParameters(BaseEstimator):
    """What classifier and regressor can be told.

    The network: `n_layers` layers of the given `width` (None: the number of features) behind an opening map, `order`
    (learned with `learn_order`), `step_size`, `activation` and `bias` as in `FractionalNetwork`.

    The training: `solver="adam"` runs `max_iter` epochs of mini-batches of `batch_size`, the `learning_rate` falling
    linearly to 0; "lbfgs" and "bfgs" run up to `max_iter` iterations on all samples, until the norm of the gradient is
    below `tolerance`. `alpha` is the decay of all matrices. `early_stopping` holds out `validation_fraction` of the
    samples and stops when their loss has not improved for `n_iter_no_change` epochs or iterations. `max_iter` is a
    budget, not a failure: `history_.status` says why a training ended, and only one that ended badly warns.
    `checkpoint` is a file to write every `checkpoint_every` epochs or iterations; with `resume`, a fit goes on from it
    and ends at the same bits. `verbose` shows a bar on standard error. `dtype` is what training computes in; fitted
    networks are float64. `device="auto"` is a GPU where there is one. How the defaults were found: docs/estimators.md.
    """

    n_layers: int = parameter(default=3, allowed=[COUNT])
    order: float = parameter(default=0.5, allowed=[Interval(Real, 0, 1, closed="right")])
    width: int | None = parameter(default=64, allowed=[None, COUNT])
    step_size: float = parameter(default=0.5, allowed=[POSITIVE])
    activation: str = parameter(default="gelu", allowed=[StrOptions(set(ACTIVATIONS))])
    bias: str = parameter(default="vector", allowed=[StrOptions(set(BIASES))])
    learn_order: bool = parameter(default=False, allowed=["boolean"])
    alpha: float = parameter(default=3e-3, allowed=[NOT_NEGATIVE])
    solver: str = parameter(default="adam", allowed=[StrOptions({"lbfgs", "bfgs", "adam"})])
    max_iter: int = parameter(default=60, allowed=[COUNT])
    tolerance: float = parameter(default=1e-5, allowed=[NOT_NEGATIVE])
    learning_rate: float = parameter(default=1e-2, allowed=[POSITIVE])
    batch_size: int = parameter(default=200, allowed=[COUNT])
    early_stopping: bool = parameter(default=False, allowed=["boolean"])
    validation_fraction: float = parameter(default=0.1, allowed=[Interval(Real, 0, 1, closed="neither")])
    n_iter_no_change: int = parameter(default=10, allowed=[COUNT])
    checkpoint: str | os.PathLike | None = parameter(default=None, allowed=[None, str, os.PathLike])
    checkpoint_every: int = parameter(default=50, allowed=[COUNT])
    resume: bool = parameter(default=False, allowed=["boolean"])
    verbose: bool = parameter(default=False, allowed=["verbose"])
    warm_start: bool = parameter(default=False, allowed=["boolean"])
    random_state: Any = parameter(default=None, allowed=["random_state"])
    device: str | torch.device = parameter(default="auto", allowed=[str, torch.device])
    dtype: str = parameter(default="float32", allowed=[StrOptions(set(DTYPES))])
