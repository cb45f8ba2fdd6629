"""The paper's data, and functions to learn."""

from fracdnn.datasets.perfume import Perfume, load_perfume
from fracdnn.datasets.synthetic import make_level_set, make_peaks

__all__ = ["Perfume", "load_perfume", "make_level_set", "make_peaks"]
