"""The columns of X and the inputs of the network, as an estimator keeps them."""

import warnings
from typing import Any

import numpy as np

from fracdnn.estimators.cells import Cells
from fracdnn.estimators.encoding import Encoding
from fracdnn.estimators.shaping import Shaping
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Standardization
from fracdnn.training.together import Ranks


class Inputs:
    """What a fit learned of the columns of X: names, encoding, scaling."""

    network_: FractionalNetwork
    encoding_: Encoding
    standardization_: Standardization
    shaping_: Shaping
    n_features_in_: int
    feature_names_in_: np.ndarray

    def _encoded(self, cells: Cells, weight: np.ndarray, ranks: Ranks, *, new: bool) -> np.ndarray:
        """The network's inputs; of a new fit these samples say which."""
        if new:
            self.encoding_ = Encoding.of(cells, weight, self._column_names(), ranks)
            if self.encoding_.left_out and ranks.is_first:
                names = ", ".join(map(repr, self.encoding_.left_out))
                warnings.warn(f"all cells of X are missing in {names}, left out of the model", stacklevel=4)
        with ranks.together("encoding the samples"):
            return self.encoding_(cells)

    def _column_names(self) -> list[str]:
        """As scikit-learn names them where X has no names."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _take_numbers(self) -> None:
        """Features are numbers of which no more is known than their means, which fill holes."""
        self.encoding_ = Encoding.of_numbers(self.standardization_.mean.tolist(), self._column_names())

    def _features_document(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            "standardization": vars(self.standardization_),
            "shaping": vars(self.shaping_),
            "encoding": self.encoding_.to_document(),
            "features": {"n": self.n_features_in_, "names": None if names is None else [str(name) for name in names]},
        }

    def _take_features(self, document: dict[str, Any]) -> None:
        n, names = document["features"]["n"], document["features"]["names"]
        columns, shaping = document.get("encoding"), document.get("shaping")
        n_inputs = len(document["standardization"]["mean"])
        self.shaping_ = Shaping.none() if shaping is None else Shaping.of_document(shaping, n_inputs)
        if self.network_.architecture.n_features != n_inputs + self.shaping_.n_added:
            raise ValueError("other features than the network's")
        self.standardization_ = Standardization.of_document(document["standardization"], n_inputs)
        if n != (n_inputs if columns is None else len(columns)):
            raise ValueError("other features than the network's")
        self.n_features_in_ = n
        if names is not None:
            if not isinstance(names, list) or len(names) != n or not all(isinstance(name, str) for name in names):
                raise ValueError("names of other features than the network's")
            self.feature_names_in_ = np.array(names, dtype=object)
        if columns is None:  # a file of an earlier version
            self._take_numbers()
        else:
            self.encoding_ = Encoding.of_document(columns, self._column_names())
        if len(self.encoding_.feature_names) != n_inputs:
            raise ValueError("columns of other inputs than the network's")
