import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import fracdnn
from fracdnn.nn import FractionalNetwork
from fracdnn.training import MiniBatchTraining, Objective, Task
from records.keeping import read_file
from reproduction.__main__ import main
from reproduction.claims import SIX, answer, claims_table, corrected, six_table, verdict
from reproduction.comparisons import effect_text, middle
from reproduction.depth_independence import DepthIndependence, prolong
from reproduction.flow import separability
from reproduction.page import filled
from reproduction.part import Claim, Table, percent
from reproduction.parts import PARTS
from reproduction.refinement import Refinement
from reproduction.refinement import work as refined
from reproduction.render.vanishing_gradient import imbalance
from reproduction.running import PartRuns, read_numbers
from reproduction.statistics import Difference, difference, ratio
from reproduction.table import TableSettings
from reproduction.table_choices import halves_of_classes
from reproduction.vanishing_gradient import asymptotic_resolvent, profile, resolvent
from tests.datasets.test_datasets import PERFUME, needs_perfume

DOCS = Path(__file__).parents[3] / "docs"
FREE = [name for name, part in PARTS.items() if not part.needs_perfume]


def reproduce(*arguments, out):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "reproduction", *map(str, arguments), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent)


def check_files(out, names):
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{name}.{suffix}" for name in names for suffix in ("json", "png", "svg")
    )
    for name in names:
        header, runs = read_file(out / f"{name}.json")
        assert header["setting"] == "quick, not the paper's"
        assert header["settings"]
        assert {run["made_with"]["versions"]["fracdnn"] for run in runs} == {fracdnn.__version__}
        numbers = read_numbers(out / f"{name}.json")
        assert PARTS[name].rows(numbers)
        for table in PARTS[name].tables(numbers):
            assert table.rows
            assert all(len(row) == len(table.headings) for row in table.rows)
        assert all(PARTS[name].values(numbers).values())
        for claim in PARTS[name].claims(numbers):
            assert set(claim.effects) >= {"step", "factor", "horizon"}
            assert claim.better in ("less", "more")
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.parse(out / f"{name}.svg").getroot().tag.endswith("svg")


@needs_perfume
def test_every_part_runs_quickly(tmp_path):
    run = reproduce("all", "--quick", "--jobs", 0, "--perfume", PERFUME, out=tmp_path)
    assert run.returncode == 0, run.stderr
    check_files(tmp_path, PARTS)
    assert "not the paper's setting" in run.stdout
    for name in PARTS:
        assert name[:12] in run.stdout
        assert name in run.stderr  # its bar
    assert run.stdout.strip().endswith(str(tmp_path).split("/")[-1])


def test_parts_by_name_without_the_perfume_table(tmp_path):
    """All that do without it, in several processes; one of them where the test above has run every part."""
    names = ["nonsmooth"] if PERFUME.exists() else FREE
    run = reproduce(*names, "--quick", "--jobs", 2, out=tmp_path)
    assert run.returncode == 0, run.stderr
    check_files(tmp_path, names)


def test_without_the_perfume_table_other_parts_run_and_the_end_says_what_is_missing(tmp_path, monkeypatch, capsys):
    """Nothing in the cache, and a network that nobody answers on."""
    monkeypatch.setenv("FRACDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    needing = [name for name, part in PARTS.items() if part.needs_perfume]
    out = tmp_path / "results"
    options = ["--quick", "--jobs", "0", "--out"]
    assert main([needing[0], "mittag-leffler", needing[1], *options, str(out)]) == 1
    check_files(out, ["mittag-leffler"])
    told = capsys.readouterr()
    assert f"numbers and figures: {out}" in told.out
    first, last = told.err.splitlines()[0], told.err.splitlines()[-1]
    assert first == "the perfume table cannot be fetched; other parts run without it"
    assert last.startswith(f"{needing[0]}, {needing[1]} could not run without the perfume table: ")
    assert last.endswith("(or --perfume PATH)")
    assert main([needing[0], *options, str(tmp_path / "none")]) == 1
    assert not list((tmp_path / "none").iterdir())


def test_what_the_user_can_fix(tmp_path, capsys):
    assert main(["tabel", "--out", str(tmp_path)]) == 1
    assert "no result is called 'tabel'; choose from all, mittag-leffler, gradient-test" in capsys.readouterr().err
    assert main(["table", "--perfume", "nowhere.csv", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "nowhere.csv" in told
    assert "--perfume PATH" in told
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    assert main(["gradient-test", "--out", str(tmp_path / "taken")]) == 1
    assert "File exists" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "table-choices" in capsys.readouterr().out


def test_settings_are_those_of_the_paper():
    level_sets, level_sets_fractional, perfumes, perfumes_fractional = TableSettings().columns
    for column, order in ((level_sets, 1.0), (level_sets_fractional, 0.1)):
        assert (column.order, column.n_layers, column.n_batches, column.iterations) == (order, 5, 6, 30)
        assert (column.class_map, column.operator, column.bias) == (1e-1, 1e2, 1e-2)
    for column, order in ((perfumes, 1.0), (perfumes_fractional, 0.9)):
        assert (column.order, column.n_layers, column.n_batches, column.iterations) == (order, 35, 567, 15)
        assert (column.class_map, column.operator, column.bias) == (1e-8, 0.0, 0.0)
    assert DepthIndependence().depths == (5, 10, 20, 40, 80)
    assert PARTS["vanishing-gradient"].full.n_layers == 70
    assert PARTS["table-as-printed"].full.column == perfumes


def test_mini_batches_by_class_are_those_of_the_training():
    """Fifteen samples of three classes: seeds, order and shares as `MiniBatchTraining` has them."""
    labels = torch.tensor([0] * 6 + [1] * 5 + [2] * 4)
    setting = replace(PARTS["table"].full.columns[2], n_batches=4)
    found = halves_of_classes(setting, labels, torch.Generator().manual_seed(3))
    network = FractionalNetwork(2, 3, n_layers=2, order=0.9)
    task = Task(network, Objective(), torch.zeros(15, 2), labels, None, torch.Generator().manual_seed(3))
    drawn = [MiniBatchTraining(by_class=True)._drawn(task) for _ in range(4)]
    assert torch.equal(found, torch.stack(drawn))
    assert all((labels[rows] == label).sum() == n for rows in found for label, n in enumerate((3, 2, 2)))


def test_a_claim_is_judged_arm_by_arm():
    def of(*means, better="less"):
        effects = dict(
            zip(("step", "factor", "tuned"), (Difference(m, m - 1, m + 1, 0.001, 20) for m in means), strict=True)
        )
        return Claim("c", "p", "m", better, effects)

    small = dict.fromkeys(("step", "factor", "tuned"), 0.01)
    assert verdict(of(-3, -2, -1), small) == "holds"
    assert verdict(of(3, 2, 1, better="more"), small) == "holds"
    assert verdict(of(-3, 2, -1), {**small, "tuned": 0.5}) == "holds: same τ; opposite: same c"
    assert verdict(of(-0.5, 0.2, -1), dict.fromkeys(small, 0.06)) == "no difference seen"
    assert verdict(of(-3, 0.5, -1), dict.fromkeys(small, 0.06)) == "in doubt: same τ"
    far, near = (replace(of(-0.5, 0.2, -1), claimed=claimed) for claimed in (-2.5, 1.1))
    assert verdict(far, dict.fromkeys(small, 0.06)) == "no difference seen; -2.5 outside every interval"
    assert verdict(near, dict.fromkeys(small, 0.06)) == "no difference seen"
    assert (
        verdict(replace(of(-3, -2, 1), paper="- (to compare with)"), small)
        == "less of it: same τ, same c; opposite: τ tuned"
    )
    factor = Claim("c", "p", "m", "less", {"step": Difference(0.9, 0.8, 0.95, 0.01, 20, True)})
    assert verdict(factor, {"step": 0.01}) == "holds"


def test_p_values_are_corrected_for_all_claims_together():
    effects = [{"step": Difference(1, 0, 2, p, 9)} for p in (0.01, 0.04, 0.03)]
    claims = [Claim(str(k), "p", "m", "more", each) for k, each in enumerate(effects)]
    assert [each["step"] for each in corrected(claims)] == pytest.approx([0.03, 0.06, 0.06])
    table = claims_table(claims)
    assert "all 3 comparisons" in table.title
    assert [row[3] for row in table.rows] == ["**+1 (+0 to +2)**", "+1 (+0 to +2)", "+1 (+0 to +2)"]
    assert [row[-1] for row in table.rows] == ["holds", "no difference seen", "no difference seen"]


def test_a_claim_is_decided_by_the_primary_control_alone():
    """For it, against it, neither, and the paper's own effect outside the interval; a secondary control has no say."""
    low, high, none = (Difference(m, m - 1, m + 1, p, 20) for m, p in ((-3, 1e-6), (3, 1e-6), (0.1, 0.9)))
    leaning = Difference(-3, -4, -2, 0.04, 20)

    def of(name, effect, **more):
        return Claim(name, "p", "m", "less", {"step": low, "horizon": effect}, **more)

    claims = [
        of("gradient of one magnitude over 70 layers, order 0.9", low),
        of("better learning of 70 layers, order 0.9", high),
        of("better learning of 70 layers, order 0.5", none),
        of("exploding gradients, absolute, order 0.9", leaning),
        of("exploding gradients, absolute, order 0.5", high),
        of("accuracy of PD, order 0.9", none, claimed=-17.5),
        of("fewer line searches, order 0.9", none),
        of("\\|x\\|, order 0.1", low),
        of("step, order 0.1", leaning),
    ]
    rows = six_table(claims).rows
    assert [row[0] for row in rows] == list(SIX)
    assert [row[1] for row in rows] == [f"**{word}**" for word in ("yes", "no", "unclear", "no", "unclear", "yes")]
    assert rows[1][3] == "order 0.9: **+3 (+2 to +4)**<br>order 0.5: +0.1 (−0.9 to +1.1)"
    assert [answer(sides) for sides in ([1, 1], [-1], [2, -1], [-2, 1])] == ["unclear"] * 4


def test_quarters_are_those_of_the_distribution():
    assert middle([4.0, 1.0, 3.0, 2.0], ".3g") == "2.5 (1.75 to 3.25)"


def test_how_unequal_two_layers_are_does_not_know_which_is_larger():
    first, last = [4.0, 1.0], [1.0, 1.0]
    assert imbalance({"first": first, "last": last}) == pytest.approx(2.0)
    assert imbalance({"first": last, "last": first}) == pytest.approx(2.0)
    assert imbalance({"first": [4.0, 1.0], "last": [1.0, 4.0]}) == pytest.approx(4.0)  # nothing cancels


def test_effects_as_text():
    assert effect_text(difference([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])) == "−1 (−1 to −1)"
    assert effect_text(ratio([1.0, 2.0], [2.0, 4.0])) == "× 0.5 (0.5 to 0.5)"


@pytest.mark.parametrize(
    ("order", "adjoint", "converges"),
    [(1.0, "classical", True), (1.0, "continuous", False), (0.5, "continuous", False)],
)
def test_only_the_classical_adjoint_at_order_1_converges(order, adjoint, converges):
    job = {"order": order, "adjoint": adjoint, "seed": 3}
    errors = [refined(Refinement(), None, {**job, "n_layers": n})["with_step"] for n in (20, 40, 80)]
    slopes = np.diff(np.log2(errors))
    if converges:
        assert abs(slopes + 1).max() < 0.15  # first order in τ
    else:
        assert slopes.min() > -0.15


@pytest.mark.parametrize("order", [0.9, 0.5, 0.1])
def test_the_resolvent_is_what_a_constant_layer_leaves(order):
    """Of f without a state, Y_N changes by c R_{N−1−j} where f_j changes by 1."""
    network = FractionalNetwork(1, 1, n_layers=9, order=order, step_size=1.0).double()
    with torch.no_grad():
        network.K.zero_()
        network.W.fill_(1)
    network(torch.zeros(1, 1, dtype=torch.float64)).sum().backward()
    found = network.b.grad[:, 0] / network.b.grad[-1, 0]
    torch.testing.assert_close(found, torch.tensor([resolvent(order, 8 - j) for j in range(9)], dtype=torch.float64))
    assert resolvent(order, 300) == pytest.approx(asymptotic_resolvent(order, 300), rel=1e-3)
    assert resolvent(1.0, 300) == 1.0


def test_a_profile_goes_from_the_first_layer_to_the_last():
    assert profile([float(k) for k in range(21)]) == [float(k) for k in range(0, 21, 2)]
    assert profile([2.0, 4.0], 3) == [2.0, 2.0, 4.0]


@pytest.mark.parametrize("depth", [4, 7, 12])
def test_prolongation_keeps_what_is_linear_in_time(depth):
    coarse, fine = (FractionalNetwork(2, 2, n_layers=n, step_size=1 / n).double() for n in (4, depth))
    slope = torch.randn(2, 2, dtype=torch.float64)
    with torch.no_grad():
        for j in range(4):
            coarse.K[j] = 1 + slope * j / 4
            coarse.b[j] = j / 4
    prolong(coarse, fine)
    torch.testing.assert_close(fine.W, coarse.W)
    for j in range(depth):
        t = min(j / depth, 3 / 4)  # constant behind the last layer
        torch.testing.assert_close(fine.K[j].detach(), 1 + slope * t)
        torch.testing.assert_close(fine.b[j].detach(), torch.full((2,), t, dtype=torch.float64))


def test_separability_is_that_of_a_linear_classifier():
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]]).repeat(10, 0)
    assert separability(corners, corners[:, 0].astype(int)) == 1.0
    assert separability(corners, (corners.sum(1) % 2).astype(int)) <= 0.75  # exclusive or


def test_tables_and_percentages_as_text():
    table = Table("t", ("a", "b"), [["1", "2"]])
    assert table.markdown() == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert percent([0.5, 0.75]) == "62.50 (50.00 to 75.00)"


def test_the_pages_tables_are_those_of_the_results():
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert filled(text, DOCS / "results") == text, "run python -m reproduction page"


def test_values_in_sentences_are_made_from_results(tmp_path):
    part = PARTS["mittag-leffler"]
    list(PartRuns(part, tmp_path).run(None, 0))
    mark = "<!-- value mittag-leffler order -->"
    made = filled(f"Order {mark}?<!-- /value -->, and {mark}<!-- /value -->.", tmp_path)
    assert made == f"Order {mark}0.99<!-- /value -->, and {mark}0.99<!-- /value -->."
    assert filled(made, tmp_path) == made
    with pytest.raises(KeyError):
        filled("<!-- value mittag-leffler nothing --><!-- /value -->", tmp_path)


def test_a_folder_with_results_of_other_settings_is_refused(tmp_path, capsys):
    options = ["mittag-leffler", "--jobs", "0", "--out", str(tmp_path)]
    assert main([*options, "--quick"]) == 0
    before = (tmp_path / "mittag-leffler.json").read_bytes()
    assert main(options) == 1
    assert "mittag-leffler.json holds runs with other settings; delete it, or pass" in capsys.readouterr().err
    assert (tmp_path / "mittag-leffler.json").read_bytes() == before
