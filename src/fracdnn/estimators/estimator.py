"""What classifier and regressor share beside their training: validation, predictions, files."""

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from fracdnn.container import checked, read_document, write_document
from fracdnn.estimators.calibration import Calibration
from fracdnn.estimators.export import mean_of, write_program
from fracdnn.estimators.fitting import Fitting, as_tensor, heaviest
from fracdnn.estimators.model_file import network_document, network_of, parameters_document, parameters_of
from fracdnn.estimators.shaping import Shaping
from fracdnn.exceptions import FileContentError, InvalidArgumentError
from fracdnn.tables.encoder import Encoded, Encoder, row_from_0
from fracdnn.tables.frames import as_table
from fracdnn.training import History, Objective, Standardization, processes
from fracdnn.version import versions

# Predictions are made for this many rows at a time, so that memory stays bounded.
ROWS_AT_A_TIME = 16_384


class FractionalEstimator(Fitting):
    """A `FractionalNetwork` on standardized features, trained from a table; see the subclasses."""

    encoding_: Encoder
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    @property
    def n_iter_(self) -> int:
        return len(self.history_.records)

    @property
    def order_(self) -> float:
        return float(np.mean([float(network.order.detach()) for network in self.members_]))

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

    def states(self, X: Any) -> np.ndarray:
        """The flow of the samples through the layers of `network_`: Y_0 … Y_N, [n_layers + 1, n_samples, width]."""
        check_is_fitted(self)
        return self._run(X, partial(self.network_, trajectory=True), rows=1)

    def save(self, path: str | os.PathLike) -> Path:
        """Write the fitted model to one file, whole or not at all; `fracdnn.load` reads it. See `model_file`."""
        return write_document(path, "model", self._to_document())

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """A model that `save` wrote, ready to predict; its predictions are the same to the last bit."""
        document = read_document(path, "model")
        with checked(path, "model"):
            name = document["estimator"]
            if name == cls.__name__:
                return cls._from_document(document)
        raise FileContentError(f"{path} must hold a {cls.__name__}, got a {name!s:.40}; use fracdnn.load(path)")

    def export(self, path: str | os.PathLike) -> Path:
        """The fitted network with its scaling as ONNX (`.onnx`) or a torch.export program (`.pt2`), for other programs.

        It takes features [n, n_features] of the type `dtype`, computes in float64, and gives what `predict_proba` or a
        regressor's `predict` ([n, n_outputs]) gives. Of a table with categories or missing cells, ONNX takes the
        columns as they are, an input [n, 1] for each: float64 with NaN, or text with "" for a missing cell. Dates are
        refused.
        """
        check_is_fitted(self)
        return write_program(path, self)

    @abstractmethod
    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        """Outputs of the network, float64, as the user wants them; must be traceable."""

    def _to_document(self) -> dict[str, Any]:
        """All that a fitted estimator needs to predict, in plain values and tensors; see `model_file`."""
        check_is_fitted(self)
        return {
            "estimator": type(self).__name__,
            "parameters": parameters_document(self.get_params(deep=False)),
            "network": network_document(self.network_),
            "members": [network_document(member) for member in self.members_[1:]],
            "temperature": self.temperature_,
            "calibration": None if self.calibration_ is None else vars(self.calibration_),
            "standardization": vars(self.standardization_),
            "shaping": vars(self.shaping_),
            "encoding": self.encoding_.state(),
            "features": self._features(),
            "history": self.history_.to_dict(),
            "loss": self.loss_,
            "smoothing": self._smoothing,
            "versions": versions(),
        }

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        """The inverse of `_to_document`; an error of some kind where the document is inconsistent."""
        estimator = cls(**parameters_of(document["parameters"]))
        estimator._check_parameters()
        networks = [network_of(each) for each in (document["network"], *document["members"])]
        estimator.members_ = [network.to(estimator._device()) for network in networks]
        encoding = Encoder.from_state(document["encoding"])
        estimator._take_encoding(encoding, named=document["features"]["names"] is not None)
        n_inputs, n_features = len(encoding.feature_names), networks[0].architecture.n_features
        estimator.standardization_ = Standardization.of_document(document["standardization"], n_inputs)
        estimator.shaping_ = Shaping.of_document(document["shaping"], n_inputs)
        estimator.calibration_ = Calibration.of_document(document.get("calibration"), len(networks), n_features)
        estimator.temperature_ = temperature = document["temperature"]
        estimator.history_ = History.from_dict(document["history"])
        estimator.loss_ = float(document["loss"])
        estimator._smoothing = Objective(label_smoothing=float(document["smoothing"])).label_smoothing
        if (
            any(vars(network.architecture) != vars(networks[0].architecture) for network in networks)
            or estimator._features() != document["features"]
            or n_features != n_inputs + estimator.shaping_.n_added
            or not (temperature is None or (isinstance(temperature, float) and 0 < temperature < float("inf")))
        ):
            raise ValueError("members, a temperature or other features than the network's")
        return estimator

    def _answers(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._run(X, lambda x: mean_of(map(self._answer, self._outputs(x))))

    def _outputs(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [network(x).to("cpu", torch.float64) for network in self.members_]

    def _held_out_scores(self, level: Any, name: str) -> Calibration:
        """What intervals and sets are made of, with their level checked."""
        check_is_fitted(self)
        if not (isinstance(level, Real) and 0 < float(level) < 1):
            raise InvalidArgumentError(f"{name} must hold numbers between 0 and 1, got {level!r}; such as 0.9")
        if self.calibration_ is None:
            raise InvalidArgumentError(
                f"{name} must go with a model that held samples out in fit, got one that did not; fit it to 10 samples "
                f"or more with early_stopping=True, all at once"
            )
        return self.calibration_

    @torch.no_grad()
    def _run(self, X: Any, function: Callable[[torch.Tensor], torch.Tensor], rows: int = 0) -> np.ndarray:
        """The function of standardized samples, a part of them at a time; `rows` is their axis in what it gives."""
        table, _ = checked_table(self, as_numpy(X), reset=False)
        unseen = self.encoding_.unseen(table) if hasattr(table, "iter_columns") else getattr(table, "unseen", {})
        for note in self.encoding_.unseen_notes(unseen):
            warnings.warn(note, stacklevel=5)
        parts = (slice(i, i + ROWS_AT_A_TIME) for i in range(0, table.shape[0], ROWS_AT_A_TIME))
        pieces = (as_tensor(inputs_of(self.encoding_, table, part)) for part in parts)
        return torch.cat([function(self._standardised(piece)).cpu() for piece in pieces], dim=rows).numpy()

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, check: Any = None, *, new: bool, **options: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The network's inputs, of which those of a new fit say what they are, with y and a weight for each sample.

        Of several processes, one may have no samples, and all must be set alike.
        """
        X, y = as_numpy(X), as_numpy(y)
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
        if len(shape) == 2 and shape[1] > 1 and not options.get("multi_output"):
            raise ValueError(
                f"y must hold one label for each sample, got shape {tuple(shape)}; FractionalRegressor takes "
                f"several outputs, and sklearn.multioutput.MultiOutputClassifier makes one classifier for each label"
            )
        table, y = checked_table(self, X, y, reset=new, **options)
        if check is not None:
            check(y)
        weight = checked_weights(sample_weight, table.shape[0])
        table = table.toarray() if issparse(table) else table
        if new and not isinstance(table, Encoded):
            heaviest(weight)
            names = self._features()["names"] or [f"x{j}" for j in range(self.n_features_in_)]
            # Rank 0 learns the columns from its rows and tells the others.
            learned = Encoder.fit(table, weight, names=names) if processes.is_first() else None
            self.encoding_ = processes.from_first(learned)
            for note in self.encoding_.notes() if processes.is_first() else ():
                warnings.warn(note.removeprefix("warning: "), stacklevel=4)
        return inputs_of(self.encoding_, table), y, weight

    def _features(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {"n": self.n_features_in_, "names": None if names is None else [str(name) for name in names]}

    def _take_encoding(self, encoding: Encoder, *, named: bool = True) -> None:
        """Features are what this makes of columns, whose names X had or not."""
        self.encoding_, self.n_features_in_ = encoding, len(encoding.columns)
        self.__dict__.pop("feature_names_in_", None)
        if named:
            self.feature_names_in_ = np.array(encoding.names, dtype=object)


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def checked_table(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any
) -> tuple[Any, np.ndarray]:
    """X, and y where it is given, as scikit-learn wants them; cells may be missing, and numbers must be finite.

    X becomes an array or sparse matrix of numbers, a Polars frame, or stays `Encoded`.
    """
    options = {"dtype": np.float64, "accept_sparse": "csr", "ensure_all_finite": "allow-nan", **options}
    alone, given, X = isinstance(y, str), X, as_table(X)
    if isinstance(X, Encoded):
        if reset:
            estimator._take_encoding(X.encoding)
        elif X.encoding != estimator.encoding_:
            raise InvalidArgumentError("X must be encoded as in fit, got another encoding; pass the table itself")
    elif hasattr(X, "iter_columns"):
        validate_data(estimator, given, reset=reset, skip_check_array=True)  # names and number of columns
    else:
        found = validate_data(estimator, X, y, reset=reset, **options)
        return (found, y) if alone else found
    rows = np.zeros((len(X), 1))  # for scikit-learn's messages on their number
    if alone:
        check_array(rows, estimator=estimator, input_name="X", **options)
        return X, y
    return X, check_X_y(rows, y, estimator=estimator, **options)[1]


def inputs_of(encoding: Encoder, table: Any, rows: slice = slice(None)) -> np.ndarray:
    """The network's inputs for some rows of what `checked_table` gives."""
    if isinstance(table, Encoded):
        return table.inputs[rows]
    part = table[rows].toarray() if issparse(table) else table[rows]
    return encoding.transform(part, lambda row: row_from_0((rows.start or 0) + row))


def checked_weights(given: Any, n: int) -> np.ndarray:
    """A weight for each of n samples, float64, from one for each, one for all, or None, which is 1."""
    given = as_numpy(given)
    if given is None or isinstance(given, Real):
        given = np.full(n, 1.0 if given is None else given)
    weight = check_array(given, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
    if weight.shape != (n,) or (weight < 0).any():
        got = f"shape {weight.shape}" if weight.shape != (n,) else f"{weight.min()}"
        raise ValueError(
            f"sample_weight must hold a number for each of the {n} samples, none negative, got {got}; "
            f"pass an array of shape ({n},)"
        )
    return weight
