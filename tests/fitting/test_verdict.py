"""When a fit should not be trusted: it says so, and says nothing otherwise."""

import numpy as np
import pytest
import torch
from scipy import stats

import fracdnn
from fracdnn.fitting import Body
from fracdnn.fitting.named_models import relaxation
from fracdnn.fitting.verdict import runs_test

T = np.linspace(0.1, 6, 40)
NOISE = 0.02 * np.random.default_rng(0).standard_normal(40)


def decay(t, rate, size):
    return size * torch.exp(-rate * t)


def said(result, *words):
    return [text for text in result.warnings if all(word in text for word in words)]


def test_a_parameter_at_its_bound():
    result = fracdnn.fit(decay, {"rate": (0.3, 0.0, 0.5), "size": 1.0}, T, 2 * np.exp(-0.7 * T) + NOISE)
    assert said(
        result, "rate is at its upper bound, 0.5, where its standard error means nothing", "else widen the bound"
    )
    assert result.intervals["rate"][1] == 0.5
    assert not said(result, "do not limit it")


def test_an_interval_that_ends_at_a_bound():
    result = fracdnn.fit(decay, {"rate": (0.3, 0.0, 0.71), "size": 1.0}, T, 2 * np.exp(-0.7 * T) + NOISE)
    assert said(result, "the interval of rate ends at its upper bound, 0.71: these data do not limit it from above; if")
    assert not said(result, "flat")


def test_an_order_of_1_with_the_bound_1_takes_few_steps():
    start = {"order": (0.9, 0.05, 1.0), "tau": (2.0, 0, None), "size": 1.0, "offset": {"value": 0.0, "vary": False}}
    result = fracdnn.fit(relaxation, start, T, 2 * np.exp(-1.2 * T) + NOISE)
    assert 0.98 < result.intervals["order"][0] < result.intervals["order"][1] == 1
    (warning,) = result.warnings
    assert warning.startswith("order is at its upper bound, 1, where")
    assert "if the bound is a law of the model, fix order there and fit again" in warning
    assert result.n_evaluations < 200
    held = start | {"order": {"value": 1.0, "vary": False}}  # as advised
    assert fracdnn.fit(relaxation, held, T, 2 * np.exp(-1.2 * T) + NOISE).warnings == []


@pytest.mark.parametrize("several", [False, True])
def test_data_without_noise_give_intervals_of_about_0(several):
    data = 2 * np.exp(-0.7 * T)
    result = fracdnn.fit(decay, {"rate": (0.3, 0.0, 5.0), "size": 1.0}, [T, T] if several else T,
                         [data, data] if several else data)  # fmt: skip
    assert result.warnings == []
    assert result.exact
    for name, truth in {"rate": 0.7, "size": 2.0}.items():
        low, high = result.intervals[name]
        assert low <= truth <= high
        assert 0 < high - low < 1e-10
    noisy = fracdnn.fit(decay, {"rate": 0.3, "size": 1.0}, T, data + 1e-9 * NOISE)
    assert not noisy.exact
    assert noisy.intervals["rate"][0] < 0.7 < noisy.intervals["rate"][1]
    assert noisy.warnings == []


def test_what_data_do_not_limit():
    """A straight line does not say where it bends."""
    result = fracdnn.fit(
        lambda t, slope, k: slope * t / (1 + t / k), {"slope": 0.1, "k": (50.0, 0.0, None)}, T, 0.2 * T + NOISE
    )
    assert said(result, "the profile of k is flat: these data do not limit it from above")
    low, high = result.intervals["k"]
    assert high == np.inf

    def chi2(k):  # with the best slope
        shape = T / (1 + T / k)
        data = 0.2 * T + NOISE
        return np.sum((data - shape * (shape @ data) / (shape @ shape)) ** 2)

    limit = stats.f.ppf(0.95, 1, 38) * result.chi2 / 38
    assert chi2(low) - result.chi2 == pytest.approx(limit, rel=0.01)


def test_parameters_that_cannot_be_distinguished():
    result = fracdnn.fit(
        lambda t, rate, size: size * (1 - torch.exp(-rate * t)), {"rate": (0.01, 1e-6, 1.0), "size": (10.0, 0.0, None)},
        T, 0.2 * T + NOISE,
    )  # fmt: skip
    assert said(result, "rate is at its lower bound, 1e-06, where")
    assert said(result, "rate and size cannot be distinguished by these data (correlation -", "measure longer")
    assert not said(result, "size is at its lower bound")
    rate, size = result.intervals["rate"], result.intervals["size"]
    assert rate[0] == 1e-6
    assert rate[1] * size[0] == pytest.approx(0.2, rel=0.05)  # the same curve ends both


def test_a_bound_at_which_there_is_no_model():
    """A spring of modulus 0 in series: the compliance is infinite there, and the interval ends before or at it."""
    body, t = Body("E1-S1"), np.linspace(0.01 / 40, 0.01, 40)
    data = body.relaxation(t, E1=2.0, S1_V=2.0, S1_order=0.7).numpy() + NOISE
    start = {"E1": (1.0, 0, None), "S1_V": (1.0, 0, None), "S1_order": (0.5, 0.02, 1.0)}
    result = fracdnn.fit(body.relaxation, start, t, data)
    assert said(result, "the interval of S1_order ends at its lower bound, 0.02")
    assert 1.5 < result.intervals["E1"][0] < 2.0


def test_a_parameter_without_effect():
    result = fracdnn.fit(
        lambda t, rate, **other: torch.exp(-rate * t), {"rate": 0.5, "idle": 1.0}, T, np.exp(-T) + NOISE
    )
    assert said(result, "these data say nothing about idle by itself; fix it")
    assert result.errors["idle"] == np.inf
    assert result.errors["rate"] < 0.1
    assert np.isfinite(result.intervals["rate"]).all()
    assert result.intervals["idle"] == (-np.inf, np.inf)


def test_constant_data_say_nothing_of_an_order():
    start = {"size": 1e-3, "tau": 1.0, "order": (0.5, 0.02, 1.0), "offset": 1.0}
    result = fracdnn.fit(relaxation, start, T, np.full(40, 2.0))
    assert result.exact
    assert said(result, "these data say nothing about order by itself; fix it")
    assert not said(result, "order is at its")


def test_two_parameters_that_are_one():
    result = fracdnn.fit(lambda t, a, b: a * b * torch.exp(-t), {"a": 1.0, "b": 1.0}, T, 2 * np.exp(-T) + NOISE)
    assert said(result, "these data say nothing about a by itself")
    assert said(result, "these data say nothing about b by itself")
    assert result.values["a"] * result.values["b"] == pytest.approx(2, rel=0.05)


def test_structured_residuals():
    data = np.exp(-0.3 * T) + np.exp(-3 * T) + 0.02 * NOISE
    result = fracdnn.fit(decay, {"rate": 0.5, "size": 1.0}, T, data)
    assert said(result, "residuals are structured (runs test p = ", "intervals are too narrow")


def test_structure_is_looked_for_in_the_order_of_t():
    shuffled = np.random.default_rng(1).permutation(40)
    data = np.exp(-0.3 * T) + np.exp(-3 * T) + 0.02 * NOISE
    result = fracdnn.fit(decay, {"rate": 0.5, "size": 1.0}, T[shuffled], data[shuffled], intervals=False)
    assert said(result, "residuals are structured")


def test_structure_is_looked_for_in_each_column():
    data = np.stack([2 * np.exp(-0.7 * T) + NOISE, np.exp(-0.3 * T) + np.exp(-3 * T) + 0.02 * NOISE], 1)

    def both(t, first, second, size):
        return torch.stack([decay(t, first, 2.0), decay(t, second, size)], 1)

    result = fracdnn.fit(both, {"first": 0.5, "second": 0.5, "size": 1.0}, T, data, [[0.02, 0.1]] * 40, intervals=False)
    assert len(said(result, "residuals are structured (runs test p = ")) == 1


def test_sigma_that_is_too_small():
    result = fracdnn.fit(decay, {"rate": 0.5, "size": 1.0}, T, 2 * np.exp(-0.7 * T) + NOISE, 0.005)
    assert said(result, "times what sigma says; the model or sigma is wrong")


def test_a_fit_that_did_not_converge():
    result = fracdnn.fit(
        decay, {"rate": 4.0, "size": 0.1}, T, 2 * np.exp(-0.7 * T) + NOISE, max_iter=1, intervals=False
    )
    assert said(result, "the fit did not converge; pass other start values, n_starts=10, or a larger max_iter")


def test_good_fits_are_rarely_doubted():
    generator, doubted = np.random.default_rng(2), 0
    for _ in range(60):
        data = 2 * np.exp(-0.7 * T) + 0.02 * generator.standard_normal(40)
        doubted += bool(fracdnn.fit(decay, {"rate": 0.5, "size": 1.0}, T, data, 0.02, intervals=False).warnings)
    assert doubted <= 1


def test_the_runs_test_by_hand():
    signs = np.array([1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1], dtype=float)
    mean, variance = 7.0, 6.0 * 5.0 / 11.0
    assert runs_test(signs) == pytest.approx(stats.norm.cdf((2 + 0.5 - mean) / np.sqrt(variance)))
    assert runs_test(np.ones(12)) == pytest.approx(0.5**11)
    assert runs_test(signs[:9]) == 1.0
