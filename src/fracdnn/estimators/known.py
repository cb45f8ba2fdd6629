"""The estimators that a model file may hold: reading one builds no other class."""

from typing import Any

from fracdnn.estimators.base import FractionalEstimator
from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.regressor import FractionalRegressor

ESTIMATORS: dict[str, type[FractionalEstimator]] = {
    kind.__name__: kind for kind in (FractionalClassifier, FractionalRegressor)
}


def estimator_of(document: dict[str, Any]) -> FractionalEstimator:
    """The fitted estimator whose `_to_document` wrote the document."""
    return ESTIMATORS[document["estimator"]]._from_document(document)
