"""Fit models to measurements with uncertainty; circuits and viscoelastic bodies in frequency and time."""

from fracdnn.fitting.bodies import Body, Circuit
from fracdnn.fitting.fit import fit
from fracdnn.fitting.fit_result import FitResult
from fracdnn.fitting.laplace import Signal
from fracdnn.fitting.misfit import LogDensity

__all__ = ["Body", "Circuit", "FitResult", "LogDensity", "Signal", "fit"]
