"""scikit-learn estimators."""

from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.regressor import FractionalRegressor

__all__ = ["FractionalClassifier", "FractionalRegressor"]
