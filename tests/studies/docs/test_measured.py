"""README's "Measured": eight rows, each one sentence with a link, whose figures are those of stored results."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.study.comparisons import Comparison
from benchmarks.study.measures import critical_difference, ranks
from benchmarks.study.models import EIGHTFOLD
from benchmarks.study.parts import COMPARED, MEASURES, ONE, OURS, VARIANTS
from benchmarks.study.tuning import TUNED
from records.keeping import read_file
from reproduction.claims import all_claims, six_table
from reproduction.parts import PARTS
from reproduction.running import read_numbers

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("## Measured")[1].split("\n## ")[0]
ROWS = dict(re.findall(r"^\| (.+?) \| (.+) \|$", SECTION, re.MULTILINE)[2:])


def row(words):
    return next(result for what, result in ROWS.items() if words in what)


def places(records, kind, measure, models):
    found = Comparison.of(records, "report", kind, models)
    means = ranks(found.errors(measure)).mean(0)
    return {model: 1 + int((means < mean).sum()) for model, mean in zip(found.models, means, strict=True)}


def test_eight_rows_with_a_link_to_a_page():
    assert len(ROWS) == 8
    for result in ROWS.values():
        assert ". " not in result  # one sentence
        pages = re.findall(r"\]\(([^)#]+)", result)
        assert len(pages) == 1
        assert (ROOT / pages[0]).exists()


def test_the_papers_claims_are_counted():
    answers = Counter(line[1].strip("*") for line in six_table(all_claims(RESULTS)).rows)
    assert answers == {"yes": 1, "no": 3, "unclear": 2}
    assert "one holds, three do not and two are unclear" in row("six main claims")
    values = PARTS["gradient-test"].values(read_numbers(RESULTS / "gradient-test.json"))
    assert float(values["exact-0.9-worst"]) == 2e-8
    assert values["printed-0.9-off"] == "4"
    assert "to 2e-8; the one printed in the paper is off by four times" in row("gradient")


def test_places_among_other_models():
    records = read_file(RESULTS / "study.json")[1]
    told = row("64 real tables")
    for kind, measure, count, place in (("classes", "log_loss", 15, 4), ("numbers", "rmse", 14, 3)):
        among = places(records, kind, measure, COMPARED[kind])
        assert (among[OURS], len(among)) == (1, count)
        assert places(records, kind, measure, [ONE, *COMPARED[kind][1:]])[ONE] == place
        bagged = Comparison.of(records, "report", kind, (OURS, *EIGHTFOLD))
        assert len(bagged.models) == 1 + len(EIGHTFOLD)
        found = bagged.against(measure, OURS)
        assert all(found[f"{name}, eightfold"][1] > 0.05 for name in ("CatBoost", "RealMLP-TD", "TabM"))
    assert (
        "at default settings our ensemble of eight networks ranks first of 15 models by log-loss and of 14 by RMSE, "
        "most of them single, and one network alone fourth and third" in told
    )
    assert "over ensembles of eight of CatBoost, RealMLP-TD or TabM its lead is not significant" in told
    assert places(records, "classes", "log_loss", list(TUNED))["CatBoost, tuned"] == 1
    assert "with thirty settings each (not equal time) CatBoost is first on classes" in told


def test_memory_on_the_same_tables():
    records = read_file(RESULTS / "study.json")[1]
    for kind, measures in MEASURES.items():
        found = Comparison.of(records, "report", kind, VARIANTS)
        assert len(found.models) == len(VARIANTS)
        for measure in measures:
            means = ranks(found.errors(measure)).mean(0)
            assert np.ptp(means) < critical_difference(len(VARIANTS), len(found.tables))
    assert "no significant difference between order 0.5, a learned order and order 1" in row("memory")


def test_tolerances_are_met():
    """By the table of the page that the row links to."""
    page = (
        (ROOT / "docs" / "solver.md")
        .read_text(encoding="utf-8")
        .split("| problem | rtol 1e-3 | 1e-5 | 1e-7 | 1e-9 |")[1]
    )
    lines = page.split("\n\n")[0].splitlines()[2:]
    errors = [[float(cell.split(",")[0]) for cell in re.split(r" \| ", line.strip("| "))[-4:]] for line in lines]
    assert np.shape(errors) == (6, 4)
    assert np.max(errors) < 1
    assert "meets tolerances from 1e-3 to 1e-9 on six problems" in row("accuracy of `fdeint`")


def test_fits_and_solves():
    models = json.loads((RESULTS / "coverage.json").read_text(encoding="utf-8"))
    shares = [each["profile"] for model in models["models"].values() for each in model["coverage"].values()]
    assert f"{100 * min(shares):.1f} to {100 * max(shares):.1f} % of {models['count']} data sets" in row("fits")
    spectra = [run for run in read_file(RESULTS / "spectra.json")[1] if {"fracdnn", "impedance"} <= run.keys()]
    assert len({run["spectrum"] for run in spectra}) == 130
    squares = np.array([[run[name]["squares"] for name in ("fracdnn", "impedance")] for run in spectra])
    assert np.allclose(*squares.T, rtol=1e-3)
    points = json.loads((RESULTS / "work-precision.json").read_text(encoding="utf-8"))["points"]
    ours, rival = points["diffusion, 32 x 32, 2 modes"].values()
    assert f"takes {ours[0][0]:.1f} s for an error of {ours[0][1]:.0e}".replace("e-0", "e-") in row("time of `fdeint`")
    assert f"needs {rival[-1][0]:.0f} s for {rival[-1][1]:.0e}".replace("e-0", "e-") in row("time of `fdeint`")


def test_memory_on_a_gpu():
    runs = [run for run in read_file(RESULTS / "benchmarks.json")[1] if run["group"] == "gpu"]
    found = {}
    for run in runs:
        seconds = [np.array(run["rivals"][f"{way}, graph"]["seconds"]) for way in ("triton", "residual")]
        found[run["name"]] = f"{np.median(np.divide(*seconds)):.2f}"
    small = sorted(found[name] for name in found if "1024 rows" in name or "2000 layers" in name)
    assert f"{small[0]} to {small[-1]} × the time" in row("H200")
    large = [found["100 layers of width 256, 4096 rows"], found["1000 layers of width 512, 4096 rows"]]
    assert f"{large[0]} to {large[1]} × at 4 and 8 MB" in row("H200")
    for precision, words in (("autocast", "× with autocast"), ("bfloat16", "× in bfloat16")):
        assert f"{found[f'1000 layers of width 512, 4096 rows, {precision}']} {words}" in row("H200")


def test_the_paper_says_the_same():
    paper = " ".join((ROOT / "paper.md").read_text(encoding="utf-8").split())
    assert "rank first of 15 and 14 by mean rank of log-loss and RMSE" in paper
    assert "(one network alone: fourth and third)" in paper
    assert "no significant difference between order 0.5, a learned order and order 1" in paper
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| deep stack, width \d+: default / residual, time \| .*? \| (.*?) \|", page, re.MULTILINE)
    ratios = [float(ratio) for each in found for ratio in each.split(" to ")]
    assert f"to {min(ratios):.1f} to {max(ratios):.2f} times the time of the same residual network on a CPU" in paper
    on_a_gpu = re.findall(r"^\| GPU, 100 layers and more, .*? \| .*? \| (.*?) \|", page, re.MULTILINE)
    assert f"to {on_a_gpu[0]} times on a GPU" in paper
