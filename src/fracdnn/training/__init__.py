"""Objective, regularization, normalization and the loops that train a network."""

from fracdnn.training.adam import AdamTraining
from fracdnn.training.checkpoints import Checkpoints
from fracdnn.training.loops import FullBatchTraining, MiniBatchTraining, Training
from fracdnn.training.normalization import Standardization, normalize_batch
from fracdnn.training.objective import Objective, Regularization, backward
from fracdnn.training.progress import shown_progress
from fracdnn.training.records import History, Record
from fracdnn.training.run import EarlyStopping
from fracdnn.training.task import Task, accuracy

__all__ = [
    "AdamTraining",
    "Checkpoints",
    "EarlyStopping",
    "FullBatchTraining",
    "History",
    "MiniBatchTraining",
    "Objective",
    "Record",
    "Regularization",
    "Standardization",
    "Task",
    "Training",
    "accuracy",
    "backward",
    "normalize_batch",
    "shown_progress",
]
