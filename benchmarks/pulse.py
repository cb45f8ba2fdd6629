"""A pulse predicted from a spectrum: a circuit with constant-phase elements against models of resistors and capacitors.

`python -m benchmarks.pulse --out docs/results/pulse.json --picture docs/images/pulse.png`. The truth is a circuit with
two constant-phase elements, its spectrum has 0.5 % noise. Each model is fitted to the spectrum alone and predicts the
voltage of a pulse of current, which is compared with the exact one: the root mean square of the difference, in parts of
that of the voltage. Seed i is data set i.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import fracdnn
from fracdnn.fitting import Circuit, Signal
from fracdnn.report.figures import BLUE, GREEN, VERMILION, new_figure, save_figure
from records.keeping import Records, made_with

TRUTH = {"R0": 0.02, "R1": 0.03, "CPE1_Q": 2.0, "CPE1_order": 0.8, "R2": 0.05, "CPE2_Q": 60.0, "CPE2_order": 0.7}
MODELS = {
    "two CPEs": Circuit("R0-p(R1,CPE1)-p(R2,CPE2)"),
    "2 RC": Circuit("R0-p(R1,C1)-p(R2,C2)"),
    "3 RC": Circuit("R0-p(R1,C1)-p(R2,C2)-p(R3,C3)"),
}
NOISE, HEIGHT = 0.005, 1.0
OMEGA, TIMES, PULSE = 2 * np.pi * np.logspace(4, -2, 49), np.linspace(0.0, 60.0, 601), Signal.pulse(0.0, 20.0, HEIGHT)


def predicted(model: Circuit, seed: int) -> np.ndarray:
    """The voltage of the pulse by a model that was fitted to the spectrum of that seed."""
    exact = MODELS["two CPEs"].impedance(OMEGA, **TRUTH).numpy()
    data = exact * (1 + NOISE * (np.random.default_rng(seed).standard_normal((len(OMEGA), 2)) @ [1, 1j]))
    start = model.guess(OMEGA, data)
    options: dict[str, Any] = {"n_starts": 4, "random_state": seed, "intervals": False}
    result = fracdnn.fit(model.impedance, start, OMEGA, data, "modulus", **options)
    return model.voltage(TIMES, PULSE, **result.values).numpy()


def error_of(model: str, seed: int) -> float:
    """Root mean square of the difference to the exact voltage, in parts of the voltage's own."""
    exact = MODELS["two CPEs"].voltage(TIMES, PULSE, **TRUTH).numpy()
    return float(np.linalg.norm(predicted(MODELS[model], seed) - exact) / np.linalg.norm(exact))


def summarized(runs: list[dict[str, Any]]) -> list[str]:
    """For each model: the mean of errors over seeds and its 95 % interval by Student's t."""
    lines = []
    for model in MODELS:
        errors = 100 * np.array([run["error"] for run in runs if run["model"] == model])
        wide = stats.t.ppf(0.975, len(errors) - 1) * errors.std(ddof=1) / np.sqrt(len(errors))
        lines.append(f"{model}: {errors.mean():.3f} ± {wide:.3f} % of the voltage, {len(errors)} seeds")
    return lines


def picture(seed: int = 0) -> Any:
    """The pulse of the first seed, and what each prediction misses."""
    exact = MODELS["two CPEs"].voltage(TIMES, PULSE, **TRUTH).numpy()
    figure = new_figure(9, 3.2)
    left, right = figure.subplots(1, 2)
    left.plot(TIMES, 1e3 * exact, color="black", linewidth=3, alpha=0.3, label="exact")
    for (name, model), color in zip(MODELS.items(), (VERMILION, BLUE, GREEN), strict=True):
        voltage = predicted(model, seed)
        left.plot(TIMES, 1e3 * voltage, color=color, linewidth=1, label=name)
        right.plot(TIMES, 1e3 * (voltage - exact), color=color, label=name)
    left.set(xlabel="time, s", ylabel="voltage, mV", title="1 A for 20 s, predicted from the spectrum")
    right.set(xlabel="time, s", ylabel="error, mV", title="prediction minus exact")
    left.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    records, made = Records(options.out, ("model", "seed"), truth=TRUTH, noise=NOISE), made_with(("lmfit", "scipy"))
    for seed in range(options.count):
        for model in MODELS:
            if records.get({"model": model, "seed": seed}) is None:
                records.add({"model": model, "seed": seed, "error": error_of(model, seed), "made_with": made})
    print("\n".join(summarized(records.runs)))
    if options.picture is not None:
        save_figure(options.picture, picture())


if __name__ == "__main__":
    main()
