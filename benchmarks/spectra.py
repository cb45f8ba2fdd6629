"""`fracdnn.fit` against impedance.py and pyimpspec, on 130 measured spectra of a battery.

`python -m benchmarks.spectra --out docs/results/spectra.json` fits the same circuits from the same start values, those
of `Circuit.guess`, with bounds 0 < order ≤ 1 and all else positive. All points weigh the same: each package's weighting
by |Z| is another formula. What each found goes into one formula for the sum of squares. pyimpspec 5.1 minimizes the sum
of fourth powers instead, because it passes squares to a least-squares solver; so `fracdnn.fit` minimizes that, too, and
the two are compared by it. Packages take turns at going first; times are CPU seconds, without intervals.
"""

import argparse
import math
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fracdnn
from fracdnn.datasets import load_measured
from fracdnn.fitting import Circuit
from records.keeping import Records, made_with

# Our notation, and pyimpspec's: (RQ) is in parallel.
CIRCUITS = {"R0-p(R1,CPE1)-p(R2,C2)-CPE3": "R(RQ)(RC)Q", "R0-p(R1,CPE1)-CPE2": "R(RQ)Q"}
# Of CPU time for one fit; the fit then counts as failed.
_MOST_SECONDS = 30
# Sums of squares that differ by less are equal.
_CLOSE = 1.001
Values = Sequence[float]


def by_fracdnn(circuit: Circuit, frequency: np.ndarray, data: np.ndarray) -> Values:
    omega = 2 * np.pi * frequency
    result = fracdnn.fit(circuit.impedance, circuit.guess(omega, data), omega, data, intervals=False)
    return [result.values[name] for name in circuit.names]


def by_fourth_powers(circuit: Circuit, frequency: np.ndarray, data: np.ndarray) -> Values:
    """`fracdnn.fit` with pyimpspec's objective."""
    omega, target = 2 * np.pi * frequency, torch.tensor(data)

    def squares(omega: torch.Tensor, **parameters: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(circuit.impedance(omega, **parameters) - target) ** 2

    start = circuit.guess(omega, data)
    result = fracdnn.fit(squares, start, omega, np.zeros((len(omega), 2)), intervals=False)
    return [result.values[name] for name in circuit.names]


def by_impedance(circuit: Circuit, frequency: np.ndarray, data: np.ndarray) -> Values:
    from impedance.models.circuits import CustomCircuit

    model = CustomCircuit(circuit.description, initial_guess=_start(circuit, frequency, data))
    return list(model.fit(frequency, data).parameters_)


def by_pyimpspec(circuit: Circuit, frequency: np.ndarray, data: np.ndarray) -> Values:
    import pyimpspec

    model, start = pyimpspec.parse_cdc(CIRCUITS[circuit.description]), iter(_start(circuit, frequency, data))
    for element in model.get_elements():
        element.set_values(**{name: next(start) for name in element.get_values()})
    measured = pyimpspec.DataSet(frequencies=frequency, impedances=data)
    found = pyimpspec.fit_circuit(model, measured, method="least_squares", weight="unity", num_procs=1).circuit
    return [value for element in found.get_elements() for value in element.get_values().values()]


PACKAGES: dict[str, Callable[[Circuit, np.ndarray, np.ndarray], Values]] = {
    "fracdnn": by_fracdnn,
    "impedance": by_impedance,
    "pyimpspec": by_pyimpspec,
    "fracdnn, fourth powers": by_fourth_powers,
}
# A rival, the power of residuals that is summed, and which of our fits minimizes that.
PAIRS = (("impedance", "squares", "fracdnn"), ("pyimpspec", "squares", "fracdnn"),
         ("pyimpspec", "fourth_powers", "fracdnn, fourth powers"))  # fmt: skip


def _start(circuit: Circuit, frequency: np.ndarray, data: np.ndarray) -> list[float]:
    return [start for start, _, _ in circuit.guess(2 * np.pi * frequency, data).values()]


def compared(description: str, place: int, frequency: np.ndarray, data: np.ndarray) -> dict[str, Any]:
    """Sums and CPU seconds by package; None where a package raised an error or took too long."""
    circuit, names = Circuit(description), list(PACKAGES)
    run: dict[str, Any] = {"circuit": description, "spectrum": place}
    for name in names[place % len(names) :] + names[: place % len(names)]:
        began, run[name] = time.process_time(), None
        signal.signal(signal.SIGVTALRM, _too_long)
        signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = PACKAGES[name](circuit, frequency, data)
        except ImportError:
            raise
        except Exception as error:  # of any kind: a failure is a result
            print(f"{description}, spectrum {place}, {name}: {error!r:.100}")
        else:
            seconds = round(time.process_time() - began, 3)
            found = circuit.impedance(2 * np.pi * frequency, **dict(zip(circuit.names, values, strict=True))).numpy()
            parts = np.concatenate([(found - data).real, (found - data).imag])
            sums = (float(f"{np.sum(parts**power):.7g}") for power in (2, 4))
            run[name] = dict(zip(("squares", "fourth_powers", "seconds"), (*sums, seconds), strict=True))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return run


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"{_MOST_SECONDS} s of CPU time")


def summarized(runs: list[dict[str, Any]]) -> list[str]:
    """For each circuit: on how many spectra our sum is no larger than a rival's; and the medians of times."""
    lines = []
    for description in dict.fromkeys(run["circuit"] for run in runs):
        rows = [run for run in runs if run["circuit"] == description]
        for rival, power, own in PAIRS:
            sums = [[run[name][power] if run[name] else math.inf for name in (own, rival)] for run in rows]
            fewer, equal = (
                sum(_CLOSE * a < b for a, b in sums),
                sum(a <= _CLOSE * b and b <= _CLOSE * a for a, b in sums),
            )
            lines.append(f"{description}, {power} against {rival}: smaller {fewer}, equal {equal}, of {len(rows)}")
        for name in PACKAGES:
            seconds = [run[name]["seconds"] for run in rows if run[name]]
            middle = statistics.median(seconds or [math.inf])
            lines.append(f"{description}, {name}: median {middle:.2f} s, failed {len(rows) - len(seconds)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every n-th spectrum")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    frequency, spectra = load_measured("battery spectra")
    records = Records(options.out, ("circuit", "spectrum"), weighting="unity", start="Circuit.guess")
    made = made_with((*PACKAGES, "lmfit", "scipy"))
    for description in CIRCUITS:
        for place in range(0, len(spectra), options.every):
            if records.get({"circuit": description, "spectrum": place}) is None:
                run = compared(description, place, frequency, spectra[place])
                records.add({**run, "made_with": made})
    print("\n".join(summarized(records.runs)))


if __name__ == "__main__":
    main()
