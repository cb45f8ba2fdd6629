"""`fracdnn.fit`: estimates, errors and intervals against hand computations and lmfit; data sets, losses, bad input."""

import json
import math
import re
import signal

import lmfit
import numpy as np
import pytest
import torch
from scipy.optimize import curve_fit

import fracdnn
from fracdnn import fdeint
from fracdnn.exceptions import FileContentError, InvalidArgumentError, InvalidTypeError
from fracdnn.fitting import Circuit, FitResult, LogDensity, Signal
from fracdnn.fitting.misfit import Misfit, backward, forward

T = np.linspace(0.1, 6, 40)
NOISE = np.random.default_rng(0).standard_normal((4, 40))


def decay(t, rate, size):
    return size * torch.exp(-rate * t)


DATA = 2 * np.exp(-0.7 * T) + 0.02 * NOISE[0]
START = {"rate": (0.3, 0.0, 5.0), "size": 1.0}


def test_values_and_errors_are_those_of_a_hand_computation():
    result = fracdnn.fit(decay, START, T, DATA)
    rate, size = result.values["rate"], result.values["size"]
    jacobian = np.stack([-size * T * np.exp(-rate * T), np.exp(-rate * T)], 1)
    residual = DATA - size * np.exp(-rate * T)
    assert np.abs(jacobian.T @ residual).max() < 1e-9  # a minimum
    covariance = np.linalg.inv(jacobian.T @ jacobian) * (residual @ residual) / 38
    np.testing.assert_allclose(result.covariance, covariance, rtol=1e-9)
    assert result.errors["rate"] == pytest.approx(math.sqrt(covariance[0, 0]), rel=1e-9)
    expected = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert result.correlation[0, 1] == pytest.approx(expected, rel=1e-9)
    band = np.sqrt(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian))
    np.testing.assert_allclose(result.sets[0].band, band, rtol=1e-9)
    np.testing.assert_allclose(result.residuals[0], residual, atol=1e-12)
    assert result.chi2 == pytest.approx(residual @ residual)
    assert result.converged
    assert result.warnings == []


def test_known_sigma_is_taken_as_it_is():
    sigma = 0.01 + 0.01 * np.arange(40) / 40
    data = 2 * np.exp(-0.7 * T) + sigma * NOISE[0]
    for absolute in (True, False):
        result = fracdnn.fit(decay, START, T, data, sigma, absolute_sigma=absolute, intervals=False)
        values, covariance = curve_fit(
            lambda t, rate, size: size * np.exp(-rate * t), T, data, (0.3, 1.0), sigma, absolute, xtol=1e-12
        )
        np.testing.assert_allclose(list(result.values.values()), values, rtol=1e-6)
        np.testing.assert_allclose(result.covariance, covariance, rtol=1e-4)
    absolute = fracdnn.fit(decay, START, T, data, sigma)
    assert absolute.aic == pytest.approx(absolute.chi2 + 4)
    assert absolute.bic == pytest.approx(absolute.chi2 + 2 * math.log(40))


def test_intervals_are_those_of_lmfit():
    data = 2 * np.exp(-0.7 * T) + 0.3 * NOISE[1]  # enough noise for intervals that are not symmetric
    result = fracdnn.fit(decay, START, T, data)
    parameters = lmfit.create_params(rate=0.5, size=1.0)
    minimizer = lmfit.Minimizer(lambda p: p["size"] * np.exp(-p["rate"] * T) - data, parameters)
    theirs = minimizer.minimize()
    expected = lmfit.conf_interval(minimizer, theirs, sigmas=[0.95])
    for name, ((_, low), _, (_, high)) in expected.items():
        np.testing.assert_allclose(result.intervals[name], (low, high), rtol=2e-3)
    low, high = result.intervals["rate"]
    assert (high - result.values["rate"]) > 1.05 * (result.values["rate"] - low)
    assert result.aic == pytest.approx(theirs.aic, rel=1e-6)
    assert result.bic == pytest.approx(theirs.bic, rel=1e-6)


def test_with_sigma_an_interval_ends_where_chi2_has_grown_by_384():
    result = fracdnn.fit(decay, START, T, DATA, 0.02)

    def chi2(rate):  # with the best size for that rate
        shape = np.exp(-rate * T)
        return np.sum((DATA - shape * (shape @ DATA) / (shape @ shape)) ** 2) / 0.02**2

    for end in result.intervals["rate"]:
        assert chi2(end) - chi2(result.values["rate"]) == pytest.approx(3.8415, rel=5e-3)


def test_an_equation_of_fdeint_is_fitted():
    def relaxation(t, order, rate):
        return fdeint(lambda s, u: -rate * u, 1.0, torch.cat([torch.zeros(1).to(t), t]), order=order, n_steps=60)[1:]

    t = np.linspace(0.2, 4, 15)
    truth = relaxation(torch.tensor(t), torch.tensor(0.7), torch.tensor(1.2)).numpy()
    result = fracdnn.fit(relaxation, {"order": (0.9, 0.05, 1.0), "rate": 0.5}, t, truth, intervals=False)
    assert result.values == pytest.approx({"order": 0.7, "rate": 1.2}, rel=1e-6)


def by_steps(t, rate):
    """A model that looks at its values, which vmap cannot."""
    return torch.stack([torch.exp(-rate * each) if float(rate.detach()) > 0 else 0 * rate for each in t])


class Reverse(torch.autograd.Function):
    """An operation that has only a backward pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.exp(ctx.saved_tensors[0])


def test_a_derivative_of_0_that_is_true_is_no_failure():
    result = fracdnn.fit(
        lambda t, root: 1 + root**2 * t, {"root": (0.0, 0.0, 5.0)}, T, 1 + 0.01 * DATA, intervals=False
    )
    assert result.values["root"] < 0.1


def test_both_directions_give_the_same_derivatives():
    """A solver's long chain of operations goes backward, a formula forward."""

    def relaxation(t, order, rate):
        return fdeint(lambda s, u: -rate * u, 1.0, torch.cat([torch.zeros(1).to(t), t]), order=order)[1:]

    x = np.array([0.8, 0.6])
    misfit = Misfit(relaxation, {"order": 0.8, "rate": 0.6}, T[:12], DATA[:12], None)
    assert misfit.ways[0] is backward
    expected = misfit.jacobian(x)
    misfit.ways = misfit.ways[1:]
    np.testing.assert_allclose(misfit.jacobian(x), expected, rtol=1e-9, atol=1e-12)
    formula = Misfit(decay, START, T, DATA, None)
    assert formula.ways[0] is forward


@pytest.mark.parametrize("model", [by_steps, lambda t, rate: Reverse.apply(-rate * t)], ids=["no vmap", "reverse"])
def test_models_that_forward_derivatives_cannot_take_are_fitted_too(model):
    result = fracdnn.fit(model, {"rate": 0.3}, T, DATA / 2)
    expected = fracdnn.fit(lambda t, rate: torch.exp(-rate * t), {"rate": 0.3}, T, DATA / 2)
    assert result.values == pytest.approx(expected.values, rel=1e-8)
    assert result.errors == pytest.approx(expected.errors, rel=1e-8)


def test_expressions_and_fixed_parameters():
    start = {"rate": 0.3, "size": "2 * sqrt(half) ** 2 * one", "half": 0.8, "one": {"value": 1.0, "vary": False}}
    result = fracdnn.fit(lambda t, rate, size: decay(t, rate, size), start, T, DATA)
    plain = fracdnn.fit(decay, START, T, DATA)
    assert result.free == ["rate", "half"]
    assert result.values["size"] == pytest.approx(plain.values["size"], rel=1e-7)
    assert result.errors["size"] == pytest.approx(plain.errors["size"], rel=1e-6)
    assert result.errors["one"] == 0
    assert "from others" in result.summary()
    assert "fixed" in result.summary()


def test_defaults_of_a_model_may_be_fitted_or_not():
    def model(t, rate, size=2.0):
        return decay(t, rate, size)

    assert fracdnn.fit(model, {"rate": 0.3}, T, DATA, intervals=False).free == ["rate"]
    found = fracdnn.fit(model, START, T, DATA, intervals=False)
    assert found.values == pytest.approx(fracdnn.fit(decay, START, T, DATA, intervals=False).values)


def test_a_robust_fit_knows_what_data_do_not_say():
    start = {"rate": 0.5, "idle": 1.0}
    result = fracdnn.fit(lambda t, rate, **other: 2 * torch.exp(-rate * t), start, T, DATA, loss="huber")
    assert result.errors["idle"] == math.inf
    assert 0 < result.errors["rate"] < 0.05


def test_data_sets_share_parameters_by_name():
    models = [lambda t, rate, first: decay(t, rate, first), lambda t, rate, second: decay(t, rate, second)]
    data = [DATA, 500 * np.exp(-0.7 * T) + 20 * NOISE[1]]
    start = {"rate": 0.3, "first": 1.0, "second": 100.0}
    # The noise of each set, though one is 1,000 times the other, as fits of each by itself say.
    alone = [fracdnn.fit(decay, {"rate": 0.3, "size": size}, T, each, intervals=False)
             for each, size in zip(data, (1.0, 100.0), strict=True)]  # fmt: skip
    levels = [math.sqrt(each.reduced_chi2) for each in alone]
    known = fracdnn.fit(models, start, [T, T], data, levels)
    found = fracdnn.fit(models, start, [T, T], data)
    assert known.values == pytest.approx({"rate": 0.7, "first": 2.0, "second": 500.0}, rel=0.05)
    for name in start:
        assert abs(found.values[name] - known.values[name]) < 0.05 * known.errors[name]
        assert found.errors[name] == pytest.approx(known.errors[name], rel=0.03)
    assert [float(each.sigma[0]) for each in found.sets] == pytest.approx(levels, rel=0.03)
    one_model = fracdnn.fit(decay, START, [T, T], [DATA, DATA], [0.02, 0.02], intervals=False)
    assert one_model.errors["rate"] == pytest.approx(
        fracdnn.fit(decay, START, T, DATA, 0.02, intervals=False).errors["rate"] / math.sqrt(2), rel=1e-6
    )


def test_relative_and_known_noise_of_several_sets_are_weighed():
    """A set with sigma "modulus" counts by the noise that it has, not as if it were 100 %."""
    circuit, omega = Circuit("R0-p(R1,C1)"), np.logspace(-1, 3, 30)
    truth = {"R0": 5.0, "R1": 30.0, "C1": 0.02}
    z = circuit.impedance(omega, **truth).numpy()
    z = z * (1 + 0.01 * (np.random.default_rng(0).standard_normal((30, 2)) @ [1, 1j]))
    data = decay(torch.tensor(T), 0.5, truth["R1"]).numpy() + 0.02 * NOISE[0]

    def second(t, rate, R1):
        return decay(t, rate, R1)

    start = circuit.guess(omega, z) | {"rate": 1.0}
    models, t = [circuit.impedance, second], [omega, T]
    expected = fracdnn.fit(models, start, t, [z, data], [0.01 * np.abs(z), 0.02], intervals=False)
    found = fracdnn.fit(models, start, t, [z, data], ["modulus", 0.02], intervals=False)
    for name in start:
        assert abs(found.values[name] - expected.values[name]) < 0.2 * expected.errors[name]
        assert found.errors[name] == pytest.approx(expected.errors[name], rel=0.2)
    assert np.mean(found.sets[0].sigma / np.abs(z)) == pytest.approx(0.01, rel=0.2)
    np.testing.assert_allclose(found.sets[1].sigma, 0.02)
    worse = fracdnn.fit(models, start | {"rate": {"value": 0.55, "vary": False}}, t, [z, data], ["modulus", 0.02],
                        intervals=False)  # fmt: skip
    assert worse.aic > found.aic + 100


def test_intervals_by_standard_errors_end_at_bounds():
    result = fracdnn.fit(decay, {"rate": (0.7, 0.0, 0.705), "size": 1.0}, T, DATA, intervals=False)
    assert result.intervals["rate"][0] > 0.6
    assert result.intervals["rate"][1] == 0.705


def test_a_robust_loss_bears_outliers():
    data = DATA.copy()
    data[::9] += 1.0
    plain = fracdnn.fit(decay, START, T, data)
    for loss in ("soft_l1", "huber", "cauchy"):
        robust = fracdnn.fit(decay, START, T, data, loss=loss)
        assert abs(robust.values["rate"] - 0.7) < 0.3 * abs(plain.values["rate"] - 0.7)
        low, high = robust.intervals["rate"]
        assert high - low == pytest.approx(3.92 * robust.errors["rate"])


def test_errors_of_a_robust_fit_are_those_of_many_data_sets():
    generator, values, errors = np.random.default_rng(1), [], []
    for _ in range(40):
        noise = generator.standard_t(3, 40)
        result = fracdnn.fit(decay, START, T, 2 * np.exp(-0.7 * T) + 0.05 * noise, loss="huber")
        values.append(result.values["rate"])
        errors.append(result.errors["rate"])
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.3)


def test_complex_data_and_further_starts():
    circuit = Circuit("R0-p(R1,CPE1)-p(R2,CPE2)")
    truth = {"R0": 5.0, "R1": 30.0, "CPE1_Q": 1e-5, "CPE1_order": 0.9, "R2": 60.0, "CPE2_Q": 2e-3, "CPE2_order": 0.8}
    omega = 2 * np.pi * np.logspace(-2, 5, 60)
    z = circuit.impedance(omega, **truth).numpy()
    data = z + 0.003 * np.abs(z) * (np.random.default_rng(2).standard_normal((2, 60)).T @ [1, 1j])
    start = circuit.guess(omega, data)
    result = fracdnn.fit(circuit.impedance, start, omega, data, "modulus", n_starts=4, random_state=0)
    assert result.n_data == 120
    assert math.sqrt(result.reduced_chi2) == pytest.approx(0.003, rel=0.2)
    swapped = {name: name.translate(str.maketrans("12", "21")) for name in truth}
    names = swapped if result.values["R1"] > 45 else {name: name for name in truth}
    for name, value in truth.items():  # the two parallel parts may change places
        low, high = result.intervals[names[name]]
        assert low - (high - low) < value < high + (high - low)
    assert 1 <= result.n_starts[0] <= result.n_starts[1] == 4
    assert not result.absolute_sigma
    again = fracdnn.fit(circuit.impedance, start, omega, data, "modulus", n_starts=4, random_state=0)
    assert again.values == result.values


def test_a_spectrum_and_a_pulse_share_parameters():
    circuit, pulse = Circuit("R0-p(R1,CPE1)"), Signal.pulse(0.0, 5.0, 0.1)
    truth = {"R0": 5.0, "R1": 30.0, "CPE1_Q": 0.02, "CPE1_order": 0.8}
    omega, t = np.logspace(1, 4, 20), np.linspace(0.1, 20, 50)  # the spectrum ends before R1 is seen
    z = circuit.impedance(omega, **truth).numpy()
    generator = np.random.default_rng(3)
    spectrum = z + 0.02 * (generator.standard_normal((20, 2)) @ [1, 1j])
    voltage = circuit.voltage(t, pulse, **truth).numpy() + 0.01 * generator.standard_normal(50)

    def transient(t, **parameters):
        return circuit.voltage(t, pulse, **parameters)

    start = circuit.guess(omega, spectrum)
    alone = fracdnn.fit(circuit.impedance, start, omega, spectrum, 0.02)
    pulses = fracdnn.fit(transient, start, t, voltage, 0.01, n_starts=4, random_state=0)
    both = fracdnn.fit([circuit.impedance, transient], start, [omega, t], [spectrum, voltage], [0.02, 0.01])
    for name, value in truth.items():
        assert abs(both.values[name] - value) < 3.5 * both.errors[name]
        assert both.errors[name] < 1.01 * min(alone.errors[name], pulses.errors[name])
    assert both.errors["R1"] < 0.2 * alone.errors["R1"]


@pytest.mark.parametrize("share", [0.2, 0.9])  # of the calls: within the fit, within the profiles
def test_ctrl_c_keeps_the_best(share):
    """A real SIGINT."""
    calls, interrupted_at = [], math.inf

    def model(t, rate, size):
        calls.append(rate)
        if len(calls) == interrupted_at:
            signal.raise_signal(signal.SIGINT)
        return decay(t, rate, size)

    whole = fracdnn.fit(model, START, T, DATA)
    interrupted_at = int(share * len(calls))
    calls.clear()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        result = fracdnn.fit(model, START, T, DATA)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(calls) < interrupted_at + 5  # what the result needs
    assert result.interrupted
    assert result.warnings[0] == "the fit was interrupted; this is the best so far"
    assert result.chi2 < np.sum((DATA - np.exp(-0.3 * T)) ** 2)
    if share > 0.5:
        assert result.chi2 == pytest.approx(whole.chi2)
        assert result.profiles == {}


def test_progress_is_one_line_on_standard_error(capsys):
    fracdnn.fit(decay, START, T, DATA, verbose=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(r"\rstart 1 of 1: \d+ evaluations, residual \d", shown.err)
    assert "\rinterval of size: " in shown.err
    assert shown.err.count("\n") == 1


def test_a_file_holds_all_numbers(tmp_path):
    circuit = Circuit("R0-C1")
    omega = np.logspace(0, 2, 9)
    data = circuit.impedance(omega, R0=2.0, C1=0.1).numpy() + 0.01 * NOISE[0, :9]
    result = fracdnn.fit(circuit.impedance, {"R0": 1.0, "C1": (0.2, 0.0, None)}, omega, data)
    loaded = FitResult.load(result.save(tmp_path / "fit.json"))
    assert loaded.summary() == result.summary()
    assert loaded.intervals == result.intervals
    np.testing.assert_array_equal(loaded.sets[0].data, result.sets[0].data)
    np.testing.assert_array_equal(loaded.covariance, result.covariance)
    assert loaded.bounds == result.bounds
    assert len(loaded.plot().axes) == len(result.plot().axes)
    unknown = fracdnn.fit(lambda t, a, b: a * b * torch.exp(-t), {"a": 1.0, "b": (1.0, 0.0, None)}, T, DATA)
    path = unknown.save(tmp_path / "unknown.json")
    json.loads(path.read_text(), parse_constant=pytest.fail)  # Infinity and NaN are no JSON
    loaded = FitResult.load(path)
    assert loaded.intervals == unknown.intervals == {"a": (-math.inf, math.inf), "b": (0.0, math.inf)}
    assert loaded.bounds == unknown.bounds
    np.testing.assert_array_equal(loaded.covariance, unknown.covariance)
    for text in ("{", "{}", '{"format": "fracdnn fit 0"}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileContentError, match=r"bad\.json is no fit of this version; write it by FitResult\.save"):
            FitResult.load(tmp_path / "bad.json")


def test_the_figure_shows_data_fit_band_residuals_and_profiles():
    result = fracdnn.fit(decay, START, T, DATA)
    data, residuals, rate, size, *empty = result.plot().axes
    assert [text.get_text() for text in data.get_legend().get_texts()] == ["data", "fit", "95 %"]
    np.testing.assert_allclose(residuals.lines[0].get_ydata()[:, 0] if residuals.lines[0].get_ydata().ndim > 1
                               else residuals.lines[0].get_ydata(), result.residuals[0])  # fmt: skip
    assert (rate.get_xlabel(), size.get_xlabel(), len(empty)) == ("rate", "size", 2)
    assert data.get_xscale() == "linear"
    early = fracdnn.fit(decay, START, np.logspace(-2, 1, 40), 2 + 0.1 * NOISE[0], intervals=False)
    assert early.plot().axes[0].get_xscale() == "log"


def test_the_summary_is_a_table():
    lines = fracdnn.fit(decay, START, T, DATA).summary().splitlines()
    assert lines[0].split("  ")[0] == "parameter"
    assert re.fullmatch(r"rate +0\.\d+ +0\.00\d+ +0\.6\d+ … 0\.7\d+", lines[2])
    assert re.match(r"40 numbers, 2 free parameters; chi2 0\.0\d+, reduced 0\.000\d+; AIC -\d+\.\d\d, BIC", lines[5])


def test_the_log_density_of_relative_errors_has_the_size_of_the_noise_integrated_out():
    relative = LogDensity(decay, START, T, DATA, "modulus")
    by_hand = LogDensity(decay, START, T, DATA, np.abs(DATA))
    one, other = torch.tensor([0.6, 1.9], dtype=torch.float64), torch.tensor([0.7, 2.0], dtype=torch.float64)
    ratio = by_hand(one) / by_hand(other)  # of sums of squares
    assert (relative(one) - relative(other)).item() == pytest.approx(-20 * math.log(ratio))


def test_the_log_density_has_its_gradient():
    for sigma in (None, 0.02):
        density = LogDensity(decay, START, T, DATA, sigma)
        assert density.names == ["rate", "size"]
        residual = DATA - 1.9 * np.exp(-0.6 * T)
        expected = -20 * math.log(residual @ residual) if sigma is None else -0.5 * residual @ residual / sigma**2
        there, here = density.value_and_gradient([0.6, 1.9])[0], density.value_and_gradient([0.7, 2.0])[0]
        second = DATA - 2 * np.exp(-0.7 * T)
        other = -20 * math.log(second @ second) if sigma is None else -0.5 * second @ second / sigma**2
        assert there - here == pytest.approx(expected - other)
        step = 1e-6
        _, gradient = density.value_and_gradient([0.6, 1.9])
        for place in range(2):
            shift = step * np.eye(2)[place]
            up, down = (density.value_and_gradient(np.array([0.6, 1.9]) + sign * shift)[0] for sign in (1, -1))
            assert gradient[place] == pytest.approx((up - down) / (2 * step), rel=1e-6)
        assert density(torch.tensor([-0.1, 1.0], dtype=torch.float64)).item() == -math.inf
    with pytest.raises(InvalidArgumentError, match="sigma must be known for each of several data sets, got 2 without"):
        LogDensity(decay, START, [T, T], [DATA, DATA])


@pytest.mark.parametrize("sigma", [None, 0.02])
def test_emcee_draws_from_the_posterior(sigma):
    emcee = pytest.importorskip("emcee", reason="emcee, which no extra brings, is not installed")
    result, density = fracdnn.fit(decay, START, T, DATA, sigma), LogDensity(decay, START, T, DATA, sigma)
    center, errors = (np.array([numbers[name] for name in density.names]) for numbers in (result.values, result.errors))
    generator = np.random.default_rng(0)
    sampler = emcee.EnsembleSampler(32, 2, lambda x: density(x).item())
    sampler.random_state = np.random.RandomState(0).get_state()
    sampler.run_mcmc(center + 0.5 * errors * generator.standard_normal((32, 2)), 400)
    draws = sampler.get_chain(discard=133, flat=True)
    np.testing.assert_array_less(np.abs(draws.mean(0) - center), 0.3 * errors)
    np.testing.assert_allclose(draws.std(0), errors, rtol=0.2)
    assert np.corrcoef(draws.T)[0, 1] == pytest.approx(result.correlation[0, 1], abs=0.1)


def test_the_log_density_of_no_model_is_minus_infinity():
    density = LogDensity(lambda t, rate: torch.log(rate) * t, {"rate": 2.0}, T, DATA)
    assert density([-1.0]).item() == -math.inf
    assert density([2.0]).item() > -math.inf


BAD = {
    "data must be finite, got nan at index [33]; remove NaN and inf": {"data": np.where(T > 5, np.nan, DATA)},
    "t must be finite, got inf": {"t": np.where(T > 5, np.inf, T)},
    "data must hold more numbers than there are free parameters, got 2 for 2": {"t": T[:2], "data": DATA[:2]},
    "data must have one row for each entry of t, got shapes (39,) and (40,)": {"data": DATA[:-1]},
    "sigma must be real and positive, got 0; it is the standard deviation": {"sigma": np.zeros(40)},
    "sigma must be one number or one for each value, got shape (3,)": {"sigma": np.ones(3)},
    "sigma must be numbers or 'modulus', got 'weights'": {"sigma": "weights"},
    "loss must be one of 'linear', 'soft_l1'": {"loss": "absolute"},
    "n_starts must be at least 1, got 0": {"n_starts": 0},
    "parameters['rate'] must start between its bounds, got start 0.3, low 1, high 2; to fix": {
        "parameters": {"rate": (0.3, 1, 2), "size": 1.0}
    },
    "parameters['rate'] must be a start value, (start, low, high), an expression": {
        "parameters": {"rate": (0.3, 1), "size": 1.0}
    },
    "parameters must have names of Python, got 'a b'; rename it": {"parameters": {"a b": 1.0}},
    "parameters must hold all that model 0 takes, got no 'size'; add its start value": {"parameters": {"rate": 0.3}},
    "parameters must have one that may vary, got rate, size, all fixed; free one": {
        "parameters": {"rate": {"value": 1, "vary": False}, "size": {"value": 1, "vary": False}}
    },
    "parameters['size'] must be what lmfit can take, got '2 * speed'": {
        "parameters": {"rate": 0.3, "size": "2 * speed"}
    },
    "parameters must start where the model is finite, got nan at number 0": {
        "model": lambda t, rate, size: torch.log(-rate * t) * size
    },
    "model must return values of the data's shape (40,), got (39,)": {
        "model": lambda t, rate, size: decay(t, rate, size)[1:]
    },
    "model and data must both be real or both complex, got dtypes torch.complex128 and torch.float64": {
        "model": lambda t, rate, size: decay(t, rate, size) * (1 + 0j)
    },
    "t must be one-dimensional, got shape (40, 1); flatten it": {"t": T[:, None], "data": DATA[:, None]},
    "data must not be 0 where sigma is 'modulus', got 0 at index 7; drop": {
        "data": np.where(np.arange(40) == 7, 0.0, DATA), "sigma": "modulus"
    },
    "parameters must have names of Python, got 'lambda'; rename it": {"parameters": {"lambda": 1.0}},
    "parameters['size'] must be what lmfit can take, got '2**'": {"parameters": {"rate": 0.3, "size": "2**"}},
    "model and data must both be real or both complex, got dtypes torch.float64 and torch.complex128; return": {
        "data": DATA + 0j
    },
    "t must be a list with one entry for each of the 2 data sets, got ndarray": {"model": [decay, decay]},
    "data must be a list with one entry for each of the 2 data sets, got 1": {
        "model": [decay, decay], "t": [T, T], "data": [DATA]
    },
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    given = {"model": decay, "parameters": START, "t": T, "data": DATA} | BAD[message]
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        fracdnn.fit(**given)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("model must be callable as model(t, **parameters), got float", {"model": 1.0}),
        ("got Circuit; pass a function, or a method such as circuit.impedance", {"model": Circuit("R0")}),
        ("model must return a tensor, got ndarray; compute it with torch", {"model": lambda t, rate, size: T}),
        ("parameters must be a dict of start values by name, got [1]", {"parameters": [1]}),
        ("model must be differentiable by torch, got \"Can't call numpy() on Tensor that requires grad",
         {"model": lambda t, rate, size: size * torch.tensor(np.exp(-rate.numpy() * T))}),
        ("model must be differentiable by torch in 'rate', got values that change with it and a derivative of 0; use",
         {"model": lambda t, rate, size: decay(t, rate.detach(), size)}),
    ],
)  # fmt: skip
def test_wrong_types_are_named(message, change):
    with pytest.raises(InvalidTypeError, match=re.escape(message)):
        fracdnn.fit(**{"model": decay, "parameters": START, "t": T, "data": DATA} | change)


def test_a_trial_that_cannot_be_computed_is_no_failure():
    def relaxation(t, order, rate):
        return fdeint(lambda s, u: -rate * u, 1.0, torch.cat([torch.zeros(1).to(t), t]), order=order, n_steps=40)[1:]

    t = np.linspace(0.2, 4, 12)
    data = relaxation(torch.tensor(t), torch.tensor(0.2), torch.tensor(1.2)).numpy()
    result = fracdnn.fit(relaxation, {"order": 0.9, "rate": 0.5}, t, data, intervals=False)  # no bounds: below 0 tried
    assert result.values["order"] == pytest.approx(0.2, rel=1e-4)
