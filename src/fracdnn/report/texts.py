"""Numbers for readers: grouped digits and raised exponents."""

import re

import numpy as np

# Scores as people read them.
SCORES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "log_loss": "log-loss"}
SCORES |= {"ECE": "expected calibration error (ECE)", "R2": "R2", "RMSE": "RMSE", "MAE": "MAE"}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NUMBER = re.compile(r"[−+±]?\d[\d.,]*%?(×10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?( ?[–±/] ?\d[\d.,]*%?)?")


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with so many significant digits: 0.7394, 142,900, 1.056×10⁷; a dash if it is not finite."""
    if value is None or not np.isfinite(value):
        return "–"
    rounded = float(f"{value:.{digits - 1}e}")
    size = abs(rounded)
    sign = "−" if rounded < 0 else ""
    if size and not 1e-4 <= size < 1e7:
        mantissa, power = f"{size:.{digits - 1}e}".split("e")
        return f"{sign}{_trimmed(mantissa)}×10{str(int(power)).translate(_RAISED)}"
    exponent = int(np.floor(np.log10(size))) if size else 0
    return sign + _trimmed(f"{size:,.{max(0, digits - 1 - exponent)}f}")


def share(value: float) -> str:
    """Return a share in percent: 100.0% only for all of it, 0.0% only for nothing."""
    text = f"{value:.1%}"
    if (text == "100.0%" and value < 1) or (text == "0.0%" and value > 0):
        return f"{value:.3%}" if 1e-5 <= value <= 1 - 1e-5 else ("over 99.99%" if value > 0.5 else "under 0.01%")
    return text


def short(name: object, length: int = 24) -> str:
    """Return a name in one line, cut if it is long."""
    text = " ".join(str(name).split())
    return text if len(text) <= length else text[: length - 1] + "…"


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
