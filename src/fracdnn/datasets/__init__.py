"""The paper's data, measurements to fit, and functions to learn."""

from fracdnn.datasets.measured import load_measured
from fracdnn.datasets.perfume import Perfume, load_perfume
from fracdnn.datasets.synthetic import make_level_set, make_peaks

__all__ = ["Perfume", "load_measured", "load_perfume", "make_level_set", "make_peaks"]
