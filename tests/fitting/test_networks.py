"""Circuits and bodies: spectra by definition, responses against Mittag-Leffler, fdeint, Fourier, and each other."""

import math
import re

import numpy as np
import pytest
import torch

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.fitting import Body, Circuit, Signal
from fracdnn.solver import linear_input

OMEGA = np.logspace(-3, 5, 33)
TIMES = torch.logspace(-6, 4, 41, dtype=torch.float64)
STEP = Signal.steps([0.0], [1.0])
SPECTRA = {
    "R1": ({"R1": 3.0}, lambda s: 3.0 + 0 * s),
    "C1": ({"C1": 2.0}, lambda s: 1 / (2 * s)),
    "L1": ({"L1": 0.1}, lambda s: 0.1 * s),
    "CPE1": ({"CPE1_Q": 0.3, "CPE1_order": 0.7}, lambda s: 1 / (0.3 * s**0.7)),
    "W1": ({"W1": 2.0}, lambda s: 2 * (1 - 1j) / np.sqrt(s.imag)),
    "Wo1": ({"Wo1_Z": 2.0, "Wo1_tau": 0.5}, lambda s: 2 / (np.sqrt(0.5 * s) * np.tanh(np.sqrt(0.5 * s)))),
    "Ws1": ({"Ws1_Z": 2.0, "Ws1_tau": 0.5}, lambda s: 2 * np.tanh(np.sqrt(0.5 * s)) / np.sqrt(0.5 * s)),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_an_element_has_its_impedance(name):
    parameters, exact = SPECTRA[name]
    np.testing.assert_allclose(Circuit(name).impedance(OMEGA, **parameters).numpy(), exact(1j * OMEGA), rtol=1e-12)


def test_parts_are_joined_as_the_string_says():
    circuit = Circuit(" R0 - p(R1 - W1, p(C1, R2)-R3) ")
    assert circuit.names == ("R0", "R1", "W1", "C1", "R2", "R3")
    numbers = {"R0": 1.0, "R1": 2.0, "W1": 3.0, "C1": 0.1, "R2": 4.0, "R3": 5.0}
    warburg = 3 * (1 - 1j) / np.sqrt(OMEGA)
    right = 1 / (1j * OMEGA * 0.1 + 1 / 4.0) + 5.0
    exact = 1 + 1 / (1 / (2 + warburg) + 1 / right)
    np.testing.assert_allclose(circuit.impedance(OMEGA, **numbers).numpy(), exact, rtol=1e-13)


@pytest.mark.parametrize("order", [0.3, 0.7, 0.95, 1.0])
def test_a_step_of_current_is_a_mittag_leffler_function(order):
    circuit = Circuit("R0-p(R1,CPE1)")
    voltage = circuit.voltage(TIMES, STEP, R0=1.0, R1=2.0, CPE1_Q=0.3, CPE1_order=order)
    exact = 1 + 2 * (1 - mittag_leffler(-(TIMES**order) / 0.6, order))
    assert ((voltage - exact) / exact).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("name", "parameters", "exact"),
    [
        ("C1", {"C1": 2.0}, lambda t: t / 2),
        ("W1", {"W1": 3.0}, lambda t: 3 * math.sqrt(2) * 2 * (t / math.pi).sqrt()),
        ("p(R1,L1)", {"R1": 2.0, "L1": 0.5}, lambda t: 2 * torch.exp(-4 * t)),
        # long after the start, and shortly after it
        ("Ws1", {"Ws1_Z": 2.0, "Ws1_tau": 1e-5}, lambda t: 2.0 + 0 * t),
        ("Ws1", {"Ws1_Z": 2.0, "Ws1_tau": 1e9}, lambda t: 4 * (t / 1e9 / math.pi).sqrt()),
    ],
)
def test_a_step_gives_what_is_known(name, parameters, exact):
    t = torch.logspace(-3, 3, 13, dtype=torch.float64)
    voltage = Circuit(name).voltage(t, STEP, **parameters)
    assert torch.allclose(voltage, exact(t), rtol=1e-11, atol=1e-12)


def test_a_ramp_through_an_inductor_is_a_step():
    voltage = Circuit("L1-R1").voltage([0.5, 1.5, 2.5], ([0.0, 1.0, 2.0], [0.0, 3.0, 3.0]), L1=0.1, R1=2.0)
    assert torch.allclose(voltage, torch.tensor([0.3 + 3.0, 6.0, 6.0], dtype=torch.float64), atol=1e-11)


@pytest.mark.parametrize("times", [np.linspace(0, 3, 21), 3 * np.linspace(0, 1, 21) ** 2])
def test_sampled_currents_give_what_fdeint_gives(times):
    """Equal steps share their lags, others do not. In p(R1,CPE1-R2) Q D^α v = i with R1 (I − i) = v + R2 i."""
    current = np.sin(3 * times) + 0.2
    drive = linear_input(times, current)
    q, order, r1, r2 = 0.4, 0.6, 2.0, 0.5

    def branch(t, v):  # current through the constant-phase element
        return (r1 * drive(t) - v) / (r1 + r2)

    options = {"breakpoints": times[1:-1].tolist()}
    v = fdeint(lambda t, v: branch(t, v) / q, 0.0, times, order=order, rtol=1e-9, atol=1e-11, options=options)
    exact = v + r2 * branch(torch.tensor(times), v)
    numbers = {"R1": r1, "CPE1_Q": q, "CPE1_order": order, "R2": r2}
    voltage = Circuit("p(R1,CPE1-R2)").voltage(times, (times, current), **numbers)
    assert (voltage - exact).abs().max() < 1e-9


def test_a_sinus_settles_to_the_impedance():
    """V(t) for I = sin ωt tends to Im(Z(jω) e^{jωt}); transients of s^0.8 fall like t^−1.8."""
    circuit = Circuit("R0-p(R1,CPE1)-p(R2,CPE2)")
    numbers = {"R0": 1.0, "R1": 2.0, "CPE1_Q": 0.1, "CPE1_order": 0.8, "R2": 1.0, "CPE2_Q": 0.02, "CPE2_order": 0.9}
    omega, t = 7.0, torch.linspace(0, 40, 20001, dtype=torch.float64)
    late = t[-200:]
    voltage = circuit.voltage(late, (t, torch.sin(omega * t)), **numbers)
    exact = (circuit.impedance([omega], **numbers) * torch.exp(1j * omega * late)).imag
    assert (voltage - exact).abs().max() < 2e-4 * exact.abs().max()


def test_current_and_voltage_are_inverse():
    circuit = Circuit("R0-p(R1,CPE1)")
    numbers = {"R0": 1.0, "R1": 2.0, "CPE1_Q": 0.3, "CPE1_order": 0.7}
    t = torch.linspace(0, 4, 401, dtype=torch.float64)
    voltage = circuit.voltage(t, (t, torch.sin(t)), **numbers)
    assert (circuit.current(t, (t, voltage), **numbers) - torch.sin(t)).abs().max() < 1e-4


def test_a_pulse_is_two_steps():
    circuit, numbers = Circuit("p(R1,C1)"), {"R1": 2.0, "C1": 0.5}
    t = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    voltage = circuit.voltage(t, Signal.pulse(1.0, 2.0, 3.0), **numbers)
    up, down = (torch.where(t > start, 1 - torch.exp(-(t - start)), 0.0) for start in (1.0, 2.0))
    assert torch.allclose(voltage, 6 * (up - down), atol=1e-12)
    assert Signal.pulse(1.0, 2.0, 3.0)([0.5, 1.0, 2.0]).tolist() == [0.0, 3.0, 0.0]
    assert torch.allclose(Signal.samples([0.0, 1.0, 3.0], [1.0, 2.0, 0.0])([-1.0, 0.5, 2.0, 9.0]),
                          torch.tensor([0.0, 1.5, 1.0, 0.0], dtype=torch.float64))  # fmt: skip


def test_at_a_jump_the_value_after_it_counts():
    assert Circuit("R0-p(R1,CPE1)").voltage(
        [0.0], STEP, R0=1.5, R1=2.0, CPE1_Q=0.3, CPE1_order=0.5
    ).item() == pytest.approx(1.5, rel=1e-13)


def test_derivatives_are_exact():
    circuit = Circuit("R0-p(R1,CPE1)-Wo1")
    numbers = torch.tensor([1.0, 2.0, 0.3, 0.7, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0, 3, 7, dtype=torch.float64)

    def voltage(x):
        return circuit.voltage(t, (t, torch.sin(t)), **dict(zip(circuit.names, x, strict=True)))

    def spectrum(x):
        return torch.view_as_real(circuit.impedance(OMEGA[::8], **dict(zip(circuit.names, x, strict=True))))

    assert torch.autograd.gradcheck(voltage, (numbers,))
    assert torch.autograd.gradcheck(spectrum, (numbers,), check_forward_ad=True)


ZENER, ZENER_NUMBERS = Body("p(E0,E1-S1)"), {"E0": 1.0, "E1": 2.0, "S1_V": 3.0, "S1_order": 0.6}


def test_a_zener_body_by_definition():
    s = 1j * OMEGA
    exact = 1 + 1 / (1 / 2 + 1 / (3 * s**0.6))
    np.testing.assert_allclose(ZENER.modulus(OMEGA, **ZENER_NUMBERS).numpy(), exact, rtol=1e-13)
    relaxation = 1 + 2 * mittag_leffler(-(TIMES**0.6) * 2 / 3, 0.6)
    assert ((ZENER.relaxation(TIMES, **ZENER_NUMBERS) - relaxation) / relaxation).abs().max() < 1e-12
    # J(s) = (1/3)(s^α + 2/3)/(s^α + 2/9)/s
    creep = 1 / 3 + (1 - 1 / 3) * (1 - mittag_leffler(-(TIMES**0.6) * 2 / 9, 0.6))
    assert ((ZENER.creep(TIMES, **ZENER_NUMBERS) - creep) / creep).abs().max() < 1e-12


def test_stress_and_strain_belong_together():
    t = torch.linspace(0, 4, 401, dtype=torch.float64)
    stress = ZENER.stress(t, (t, torch.sin(t)), **ZENER_NUMBERS)
    assert (ZENER.strain(t, (t, stress), **ZENER_NUMBERS) - torch.sin(t)).abs().max() < 1e-4
    after = t[1:]
    held = ZENER.stress(after, STEP, **ZENER_NUMBERS)
    assert torch.allclose(held, ZENER.relaxation(after, **ZENER_NUMBERS), rtol=1e-12)


def test_a_dashpot_and_a_springpot_follow_their_laws():
    t = torch.linspace(0.1, 3, 9, dtype=torch.float64)
    ramp = ([0.0, 5.0], [0.0, 10.0])
    assert torch.allclose(Body("D1").stress(t, ramp, D1=3.0), torch.full_like(t, 6.0))
    exact = 2 * 4 * t**0.7 / math.gamma(1.7)
    assert torch.allclose(Body("S1").stress(t, ramp, S1_V=4.0, S1_order=0.3), exact, rtol=1e-11)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("R0-X1", "description must consist of R (resistor), C (capacitor)"),
        ("R0-p(R1)", "description must read like 'R0-p(R1,CPE1)', got 'R0-p(R1)' with ')' at character 8; join"),
        ("R0-p(R1,C1", "with its end at character 11; join parts"),
        ("R0-", "with its end at character 4; join parts"),
        ("R0)", "with ')' at character 3; join parts"),
        ("R1-p(R1,C1)", "description must name each element once, got 'R1' in 'R1-p(R1,C1)' 2 times; number them"),
    ],
)
def test_strings_that_describe_no_circuit(text, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        Circuit(text)


def test_wrong_input_is_named():
    with pytest.raises(InvalidTypeError, match="description must be a string such as"):
        Circuit(3)
    with pytest.raises(InvalidArgumentError, match="omega must be real and positive, got -1; a spectrum is given at"):
        Circuit("R1").impedance([-1.0, 2.0], R1=1.0)
    with pytest.raises(InvalidArgumentError, match="t must be real and positive, got 0; relaxation starts after"):
        ZENER.relaxation([0.0], **ZENER_NUMBERS)
    with pytest.raises(InvalidArgumentError, match="t must be real and positive, got 0; creep starts after"):
        ZENER.creep([0.0], **ZENER_NUMBERS)
    with pytest.raises(InvalidArgumentError, match="parameters must hold R1, C1, got no C1; pass all"):
        Circuit("R1-C1").impedance([1.0], R1=1.0)
    with pytest.raises(InvalidArgumentError, match=r"current must be a Signal or a pair .* got float; pass Signal"):
        Circuit("R1").voltage([1.0], 3.0, R1=1.0)
    with pytest.raises(InvalidArgumentError, match=r"values must be one real number for each of the 2 times.*\(3,\)"):
        Signal.steps([0.0, 1.0], [1.0, 2.0, 3.0])


def test_spectra_that_no_circuit_has_are_refused():
    circuit, z = Circuit("R0-p(R1,C1)"), 1.0 - 2.0j / OMEGA
    with pytest.raises(InvalidArgumentError, match=r"data must have one value for each of the 33 freq.* shape \(32,\)"):
        circuit.guess(OMEGA, z[1:])
    with pytest.raises(
        InvalidArgumentError, match=r"negative imaginary parts.* got 33 positive ones of 33; change the sign"
    ):
        circuit.guess(OMEGA, z.conj())
    assert Circuit("R0-L1").guess(OMEGA, z.conj()).keys() == {"R0", "L1"}


def test_what_may_oscillate_is_refused_in_time_alone():
    circuit = Circuit("R0-p(L1-R1,C1)")
    numbers = {"R0": 1.0, "L1": 1.0, "R1": 0.1, "C1": 1.0}
    assert circuit.impedance([1.0], **numbers).isfinite().all()
    with pytest.raises(InvalidArgumentError, match="current must not drive an inductor together with a capacitor"):
        circuit.voltage([1.0], STEP, **numbers)
    with pytest.raises(InvalidArgumentError, match=r"voltage must not drive .* L1-C1 in L1-C1; solve its equations"):
        Circuit("L1-C1").current([1.0], STEP, **numbers)
    assert Circuit("L1-C1").voltage([1.0], STEP, **numbers).item() == pytest.approx(1.0)
