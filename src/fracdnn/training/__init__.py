"""Objective, regularisation, normalisation and the loops that train a network."""

from fracdnn.training.history import History, Record
from fracdnn.training.loops import AdamTraining, FullBatchTraining, MiniBatchTraining, Task, Training
from fracdnn.training.normalization import Standardization, normalize_batch
from fracdnn.training.objective import Objective, Regularization

__all__ = [
    "AdamTraining",
    "FullBatchTraining",
    "History",
    "MiniBatchTraining",
    "Objective",
    "Record",
    "Regularization",
    "Standardization",
    "Task",
    "Training",
    "normalize_batch",
]
