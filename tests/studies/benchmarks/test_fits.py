"""The studies of fits, on tiny sizes: rivals on spectra, pulses from spectra, RheoJAX's Mittag-Leffler function."""

import json
import math

import numpy as np
import pytest
from scipy.special import erfcx

from benchmarks import pulse, rheojax, spectra
from records.pages import filled
from tests.test_readme import DOCS

pytest.importorskip("lmfit", reason="lmfit is not installed")


def test_sums_of_both_powers_are_smallest_where_they_are_minimized(monkeypatch):
    own = {name: spectra.PACKAGES[name] for name in ("fracdnn", "fracdnn, fourth powers")}
    monkeypatch.setattr(spectra, "PACKAGES", own | {"broken": lambda *_: 1 / 0})
    frequency = np.logspace(3, -1, 15)
    noise = np.random.default_rng(0).standard_normal((15, 2)) @ [1, 1j]
    circuit = spectra.Circuit("R0-p(R1,CPE1)-CPE2")
    truth = dict(zip(circuit.names, (1.0, 5.0, 0.01, 0.8, 0.5, 0.6), strict=True))
    data = circuit.impedance(2 * np.pi * frequency, **truth).numpy() + 0.1 * noise
    run = spectra.compared(circuit.description, 1, frequency, data)
    squares, fourth = run["fracdnn"], run["fracdnn, fourth powers"]
    assert squares["squares"] < fourth["squares"] < 0.1**2 * 30 * 2
    assert fourth["fourth_powers"] < squares["fourth_powers"]
    assert run["broken"] is None


def test_sums_are_counted_within_a_thousandth():
    def run(own, other):
        each = {"seconds": 1.0, "squares": own, "fourth_powers": own}
        rival = {"seconds": 3.0, "squares": other, "fourth_powers": other} if other else None
        return {"circuit": "c", **dict.fromkeys(spectra.PACKAGES, each), "impedance": rival}

    lines = spectra.summarized([run(1.0, 1.0005), run(1.0, 1.002), run(1.0, 0.9), run(1.0, None)])
    assert lines[0] == "c, squares against impedance: smaller 2, equal 1, of 4"
    assert lines[4] == "c, impedance: median 3.00 s, failed 1"


@pytest.mark.parametrize("name", ["impedance", "pyimpspec"])
def test_other_packages_find_the_parameters(name):
    pytest.importorskip(name, reason=f"{name} is not installed")
    circuit, frequency = spectra.Circuit("R0-p(R1,CPE1)-CPE2"), np.logspace(4, -2, 40)
    truth = (1.0, 5.0, 0.01, 0.8, 0.5, 0.6)
    omega = 2 * np.pi * frequency
    data = circuit.impedance(omega, **dict(zip(circuit.names, truth, strict=True))).numpy()
    np.testing.assert_allclose(spectra.PACKAGES[name](circuit, frequency, data), truth, rtol=0.02)


def test_a_pulse_is_predicted_from_a_spectrum(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pulse, "OMEGA", pulse.OMEGA[::3])
    errors = {name: pulse.error_of(name, 0) for name in ("two CPEs", "2 RC")}
    assert 0 < errors["two CPEs"] < 0.015 < 0.05 < errors["2 RC"]
    monkeypatch.setattr(pulse, "error_of", lambda model, seed: 0.01 + 0.02 * seed)
    monkeypatch.setattr("sys.argv", ["pulse", "--count", "2", "--out", str(tmp_path / "pulse.json")])
    pulse.main()
    assert "two CPEs: 2.000 ± 12.706 % of the voltage, 2 seeds" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "pulse.json").read_text(encoding="utf-8"))["runs"]) == 6


def test_the_page_shows_the_errors_of_rheojax():
    text = (DOCS / "calculus.md").read_text(encoding="utf-8")
    records = rheojax.records_in(DOCS / "results" / "rheojax.json")
    assert filled(text, "rheojax", lambda _: rheojax.rendered(records)) == text
    for run in records.runs:
        assert run["fracdnn"] < 1e-12 < 1e-4 < run["rheojax"]


def test_rheojax_is_right_where_one_of_its_parts_is():
    z = np.array([-30.0, -0.5])  # the expansion, the series but for 2e-6
    np.testing.assert_allclose(rheojax.by_rheojax(z, 0.5, 1.0), erfcx(-z), rtol=1e-5)
    for place in (-8.0, -1.0):
        assert math.isclose(rheojax.exact(place, 0.5, 1.0), erfcx(-place), rel_tol=1e-14)
