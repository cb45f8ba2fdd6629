"""An estimator's parameters, each declared once: its default, what is allowed, and what it means."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from fracdnn.exceptions import InvalidTypeError
from fracdnn.nn.operators import ACTIVATIONS, BIASES, STENCILS
from fracdnn.training.regularization import LAPLACIANS

# Parameters that say where and how to run, not what was learned.
LOCAL_PARAMETERS = ("device", "checkpoint", "resume", "verbose")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
AUTO = StrOptions({"auto"})
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")

Estimator = TypeVar("Estimator")


def parameter(*, default: Any, allowed: Sequence[Any], meaning: str) -> Any:
    """A parameter with its default and constraints, any of which a value must meet, as scikit-learn declares them.

    `meaning` is its line in the class's docstring; see `documentation`.
    """
    return field(default=default, metadata={"allowed": list(allowed), "meaning": meaning})


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def with_parameters(kind: type[Estimator]) -> type[Estimator]:
    """Give the class a constructor that stores the parameters declared in its body and in those of its bases.

    A subclass may give a parameter of its base another default, `alpha: float = 1e-3`; what is allowed and meant stays.
    """
    allowed = dict(getattr(kind, "_parameter_constraints", {}))
    meanings = dict(getattr(kind, "_parameter_meanings", {}))
    for each in fields(dataclass(kw_only=True, eq=False, repr=False)(kind)):  # type: ignore[arg-type]
        if each.metadata:
            allowed[each.name], meanings[each.name] = each.metadata["allowed"], each.metadata["meaning"]
        if each.name not in allowed:
            raise InvalidTypeError(
                f"{each.name} must be declared with what is allowed, got a default alone; "
                f"write {each.name} = parameter(default=…, allowed=[…], meaning=…)"
            )
    kind._parameter_constraints = allowed  # type: ignore[attr-defined]
    kind._parameter_meanings = meanings  # type: ignore[attr-defined]
    return kind


@with_parameters
class SharedParameters(BaseEstimator):
    """What classifier and regressor can be told. How the defaults were found: docs/estimators.md."""

    n_layers: int = parameter(default=3, allowed=[COUNT], meaning="Layers, behind an opening map.")
    order: float = parameter(
        default=0.5,
        allowed=[Interval(Real, 0, 1, closed="right")],
        meaning="Order of the fractional derivative, in (0, 1]; 1 is a network without memory.",
    )
    width: int | None = parameter(
        default=64, allowed=[None, COUNT], meaning="Width of a layer; None is the number of features."
    )
    step_size: float = parameter(default=0.5, allowed=[POSITIVE], meaning="Time from a layer to the next.")
    activation: str = parameter(
        default="silu",
        allowed=[StrOptions(set(ACTIVATIONS))],
        meaning="Nonlinearity of the opening map and the layers.",
    )
    bias: str = parameter(
        default="vector",
        allowed=[StrOptions(set(BIASES))],
        meaning="Bias of a layer: a number, a number for each unit, or none.",
    )
    operator: str = parameter(
        default="dense",
        allowed=[StrOptions({"dense", *STENCILS})],
        meaning="What K of a layer is: any matrix, or a stencil of nine or five points on units that form a grid.",
    )
    grid_shape: tuple[int, int] | None = parameter(
        default=None,
        allowed=[None, tuple, list],
        meaning="Rows and columns of that grid, whose product is the width; the units are its cells, row by row.",
    )
    learn_order: bool = parameter(default=False, allowed=["boolean"], meaning="Learn the order too, from `order` on.")
    n_members: int | str = parameter(
        default="auto",
        allowed=[COUNT, AUTO],
        meaning="Networks whose answers are averaged, each trained without another part of the samples; "
        '"auto" is 8 below 5,000 rows, 5 below 20,000, 2 below 100,000, then 1.',
    )
    clip: float | None = parameter(
        default=3.0,
        allowed=[None, POSITIVE],
        meaning="Scaled features are bent smoothly so that they stay below this; None leaves them as they are.",
    )
    n_bins: int | str = parameter(
        default="auto",
        allowed=[Interval(Integral, 0, None, closed="left"), AUTO],
        meaning="Bins between quantiles in which the network sees each number a second time; "
        '"auto" is 8, or 0 for more than 128 features and for `width=None`.',
    )
    alpha: float = parameter(default=3e-4, allowed=[NOT_NEGATIVE], meaning="Decay of all matrices.")
    alpha_output: float | None = parameter(
        default=None,
        allowed=[None, NOT_NEGATIVE],
        meaning="That of the output map W (the paper's ξ_W); None is `alpha`.",
    )
    alpha_smooth: float = parameter(
        default=0.0,
        allowed=[NOT_NEGATIVE],
        meaning="Weight of the squared Laplacian of K (the paper's ξ_K), the mean over the layers.",
    )
    alpha_bias: float = parameter(
        default=0.0,
        allowed=[NOT_NEGATIVE],
        meaning="Decay of the layers' biases (the paper's ξ_b), the mean over the layers.",
    )
    laplacian: str = parameter(
        default="time",
        allowed=[StrOptions(set(LAPLACIANS))],
        meaning="What `alpha_smooth` smooths: the change of K from layer to layer, or over its rows and columns.",
    )
    solver: str = parameter(
        default="adam",
        allowed=[StrOptions({"lbfgs", "bfgs", "adam", "paper"})],
        meaning='Mini-batches with "adam", all samples at once with "lbfgs" and "bfgs"; "paper" is its Alg. 3, '
        "`max_iter` iterations of BFGS on each of `n_batches` random halves of the samples.",
    )
    n_batches: int = parameter(
        default=10, allowed=[COUNT], meaning='Halves of the samples that "paper" draws one after the other, its m1.'
    )
    max_iter: int | str = parameter(
        default="auto",
        allowed=[COUNT, AUTO],
        meaning='Epochs of "adam", else most iterations, for each member; reaching it is no failure. "auto" is 100 up '
        'to 10,000 rows, then 1,000,000 / rows, at least 10; 60 for "lbfgs" and "bfgs"; 15 for "paper", where it is '
        "its m2, for each half.",
    )
    max_time: float | None = parameter(
        default=None,
        allowed=[None, POSITIVE],
        meaning="Seconds after which the epoch or iteration under way is the last, with a warning; anew when resumed.",
    )
    tol: float = parameter(
        default=1e-5,
        allowed=[NOT_NEGATIVE],
        meaning='Norm of the gradient at which "lbfgs" and "bfgs" end, and "paper" leaves a half.',
    )
    learning_rate_init: float = parameter(
        default=1e-2,
        allowed=[POSITIVE],
        meaning='Step of "adam" at first; it falls linearly to 0 at the end of `max_iter` epochs.',
    )
    batch_size: int | str = parameter(
        default="auto",
        allowed=[COUNT, AUTO],
        meaning='Samples in a mini-batch of "adam"; "auto" is an eighth of them as a power of 2 from 32 to 256, and '
        "1,024 from 65,536 rows on.",
    )
    early_stopping: bool | str = parameter(
        default="auto",
        allowed=["boolean", AUTO],
        meaning="Stop when the loss of held-out samples no longer improves, and keep the best network; each of several "
        'members holds out a part of its own. "auto" does so from 10 rows on.',
    )
    validation_fraction: float = parameter(
        default=0.1,
        allowed=[Interval(Real, 0, 1, closed="neither")],
        meaning="Share of the samples that `early_stopping` holds out where there is one member.",
    )
    calibrate: bool = parameter(
        default=True,
        allowed=["boolean"],
        meaning="Divide a classifier's logits by a temperature that suits the samples `early_stopping` held out.",
    )
    n_iter_no_change: int = parameter(
        default=30, allowed=[COUNT], meaning="Epochs or iterations without improvement before `early_stopping` stops."
    )
    checkpoint: str | os.PathLike | None = parameter(
        default=None, allowed=[None, str, os.PathLike], meaning="File that the state of the training is written to."
    )
    checkpoint_every: int = parameter(
        default=50, allowed=[COUNT], meaning="Epochs or iterations from a checkpoint to the next."
    )
    resume: bool = parameter(
        default=False,
        allowed=["boolean"],
        meaning="Go on from `checkpoint` if it exists; the fit ends at the same bits as one that was not cut.",
    )
    verbose: bool = parameter(default=False, allowed=["verbose"], meaning="Show a bar on standard error.")
    warm_start: bool = parameter(
        default=False,
        allowed=["boolean"],
        meaning="Let `fit` go on from the networks of the fit before; a larger `n_members` adds new ones.",
    )
    random_state: int | np.random.RandomState | None = parameter(
        default=None,
        allowed=["random_state"],
        meaning="Seed of the first weights, of shuffling and of what is held out.",
    )
    device: str | torch.device = parameter(
        default="auto", allowed=[str, torch.device], meaning='Where to compute; "auto" is a GPU where there is one.'
    )
    dtype: str = parameter(
        default="float32",
        allowed=[StrOptions(set(DTYPES))],
        meaning="What training computes in; fitted networks are float64.",
    )
