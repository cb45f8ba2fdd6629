"""scikit-learn estimators, and their model files."""

from fracdnn.extras import require

require("sklearn")

from fracdnn.estimators.classifier import FractionalClassifier  # noqa: E402
from fracdnn.estimators.fitting import raise_interrupts  # noqa: E402
from fracdnn.estimators.regressor import FractionalRegressor  # noqa: E402
from fracdnn.estimators.table_model import TableModel, load  # noqa: E402

__all__ = ["FractionalClassifier", "FractionalRegressor", "TableModel", "load", "raise_interrupts"]
