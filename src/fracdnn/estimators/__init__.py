"""scikit-learn estimators, and their model files."""

from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.regressor import FractionalRegressor

__all__ = ["FractionalClassifier", "FractionalRegressor"]
