"""The transformer example: streams are their definitions, runs are paired, records whole, the page tells them."""

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from examples.gpt.__main__ import QUICK, main, outcome
from examples.gpt.check import check_runs
from examples.gpt.model import GPT, Attention, Perceptron, loss_of
from examples.gpt.page import DOCS, PAGE, filled
from examples.gpt.rivals import AttentionResiduals, DenseFormer
from examples.gpt.streams import STREAMS, Residual, horizon, step_for_factor, step_for_horizon
from examples.gpt.tables import PARTS
from examples.gpt.text import is_held_out, python_text, read_text
from examples.gpt.training import FIELDS, Data, Job, Training, groups, reason
from examples.gpt.training import run as train_one
from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.memory.reference import propagate
from records.keeping import made_with, read_file, write_file

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


def read_runs(path):
    """By arm, depth and seed, in the order of the file."""
    return {tuple(run[name] for name in FIELDS): run for run in read_file(path)[1]}


def sublayers(count=6, width=4, seed=0):
    """Small shape-keeping layers in double precision; transformers only need that of a stream."""
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(width, width), nn.Tanh()).double() for _ in range(count)]


def state(width=4):
    return torch.randn(3, 5, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)


def residual(layers, x):
    for layer in layers:
        x = x + layer(x)
    return x


def averaged(layers, averages, x):
    """DenseFormer by its definition, with autograd."""
    outputs, y = [x], x
    for i in range(len(averages)):
        outputs.append(residual(layers[2 * i : 2 * i + 2], y))
        y = sum(averages[i, k] * output for k, output in enumerate(outputs))
    return y


def attended(layers, queries, x):
    """Attention residuals by their definition, with autograd."""
    values = [x]
    for layer in [*layers, None]:
        together = torch.stack(values)
        keys = nn.functional.rms_norm(together, x.shape[-1:])
        shares = torch.softmax(keys @ queries[len(values) - 1], dim=0)
        y = (shares.unsqueeze(-1) * together).sum(0)
        if layer is not None:
            values.append(layer(y))
    return y


def value_and_gradients(function, *leaves):
    found = function()
    return [found, *torch.autograd.grad(found.square().sum() + found[0].sum(), leaves)]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_the_residual_stream_adds_each_layer():
    layers, x = sublayers(), state()
    assert torch.equal(Residual(layers)(x), residual(layers, x))


def test_a_short_residual_stream_has_the_horizon_of_order_one_half():
    layers, x = sublayers(), state()
    stream = STREAMS["residual, short"](layers)
    assert len(layers) * stream.step_size == pytest.approx(horizon(0.5, step_for_factor(0.5), len(layers)), rel=1e-12)
    y = x
    for layer in layers:
        y = y + stream.step_size * layer(y)
    torch.testing.assert_close(stream(x), y)


@pytest.mark.parametrize(
    ("arm", "order", "factor"),
    [
        ("order 0.9", 0.9, 1.0),
        ("order 0.5", 0.5, 1.0),
        ("order 0.5, horizon", 0.5, math.gamma(1.5) ** 2 * math.sqrt(6)),
        ("learned order", 0.9, 1.0),
        ("learned by layer", 0.9, 1.0),
    ],
)
def test_streams_with_memory_are_the_definition_with_matched_steps(arm, order, factor):
    layers, x = sublayers(), state()
    stream = STREAMS[arm](layers)
    weights = [parameter for layer in layers for parameter in layer.parameters()]
    factors = torch.full((6,), factor, dtype=torch.float64)
    expected = value_and_gradients(
        lambda: propagate(memory_matrix(order, 6), factors, lambda j, y: layers[j](y), x)[-1], x, *weights
    )
    found = value_and_gradients(lambda: stream(x), x, *weights)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)  # a learned order is a parameter in float32
    if "learned" not in arm:
        assert_same(found, expected)


@pytest.mark.parametrize("order", [0.5, 0.9])
def test_step_sizes_match_the_factor_or_the_horizon_of_the_residual_stream(order):
    assert float(l1_step_factor(order, step_for_factor(order))) == pytest.approx(1.0, rel=1e-12)
    assert horizon(order, step_for_horizon(order, 24), 24) == pytest.approx(24, rel=1e-12)


def test_denseformer_starts_as_the_residual_network():
    layers, x = sublayers(), state()
    leaves = [x, *nn.ModuleList(layers).parameters()]
    stream = DenseFormer(layers).double()
    assert_same(
        value_and_gradients(lambda: stream(x), *leaves), value_and_gradients(lambda: residual(layers, x), *leaves)
    )


def test_denseformer_is_its_definition():
    layers, x = sublayers(), state()
    stream = DenseFormer(layers).double()
    with torch.no_grad():
        stream.averages.add_(0.3 * torch.randn(3, 4, generator=torch.Generator().manual_seed(2)).tril(1))
    leaves = [x, stream.averages, *stream.layers.parameters()]
    assert_same(
        value_and_gradients(lambda: stream(x), *leaves),
        value_and_gradients(lambda: averaged(layers, stream.averages, x), *leaves),
    )


def test_attention_residuals_start_as_a_plain_average():
    layers, x = sublayers(), state()
    values = [x]
    for layer in layers:
        values.append(layer(torch.stack(values).mean(0)))
    torch.testing.assert_close(AttentionResiduals(layers).double()(x), torch.stack(values).mean(0))


@pytest.mark.parametrize("count", [1, 6, 7, 8, 17])
def test_attention_residuals_are_their_definition(count):
    layers, x = sublayers(count), state()
    stream = AttentionResiduals(layers).double()
    with torch.no_grad():
        stream.queries.copy_(torch.randn(count + 1, 4, generator=torch.Generator().manual_seed(2)))
    leaves = [x, stream.queries, *stream.layers.parameters()]
    assert_same(
        value_and_gradients(lambda: stream(x), *leaves),
        value_and_gradients(lambda: attended(layers, stream.queries, x), *leaves),
    )


@pytest.mark.parametrize("kind", [DenseFormer, AttentionResiduals])
def test_rivals_keep_to_their_dtypes_under_autocast(kind):
    """States are float32 as in the other streams; values of attention are those that layers give, in 16 bits."""
    layers, x = [layer.float() for layer in sublayers()], state().detach().float().requires_grad_()
    plain = kind(layers)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = kind(layers)(x)
    assert found.dtype == torch.float32
    found.sum().backward()
    assert x.grad.dtype == torch.float32
    torch.testing.assert_close(found, plain, rtol=0.03, atol=0.03)


def built(arm, seed=0, depth=2):
    generator = torch.Generator().manual_seed(seed)
    return GPT(STREAMS[arm], depth=depth, width=32, context=16, generator=generator)


@pytest.mark.parametrize("arm", STREAMS)
def test_models_of_a_seed_share_their_weights_and_foretell_from_the_past_alone(arm):
    model, plain = built(arm), built("residual")
    shared = {id(parameter) for parameter in model.parameters()} - {id(own) for own in model.stream_parameters()}
    weights = [parameter for parameter in model.parameters() if id(parameter) in shared]
    assert all(torch.equal(*pair) for pair in zip(weights, plain.parameters(), strict=True))
    assert not torch.equal(built(arm, seed=1).head.weight, model.head.weight)
    assert [type(layer) for layer in model.stream.layers] == [Attention, Perceptron] * 2
    tokens = torch.randint(256, (2, 16), generator=torch.Generator().manual_seed(3))
    changed = tokens.clone()
    changed[:, 9:] = (changed[:, 9:] + 1) % 256
    one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :9], other[:, :9], rtol=0, atol=1e-5)
    assert not torch.allclose(one[:, 9:], other[:, 9:], rtol=0, atol=1e-3)


def test_the_loss_is_that_of_the_next_byte():
    windows = torch.arange(12).reshape(2, 6)
    certain = lambda tokens: 50.0 * nn.functional.one_hot(tokens + 1, 256).float()  # noqa: E731
    assert float(loss_of(certain, windows)) < 1e-6
    assert float(loss_of(lambda tokens: torch.zeros(*tokens.shape, 256), windows)) == pytest.approx(math.log(256))


def test_widths_that_heads_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"width must be a multiple of 32, the width of a head, got 40; use 128, say"):
        GPT(Residual, depth=1, width=40, context=8, generator=torch.Generator())


@pytest.mark.parametrize(
    ("arm", "own"), [("learned order", 1), ("DenseFormer", 2 * 3), ("attention residuals", 5 * 32)]
)
def test_what_a_stream_learns_does_not_decay(arm, own):
    model = built(arm)
    decayed, kept = groups(model, 0.1)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert sum(parameter.numel() for parameter in kept["params"]) == own
    assert {id(parameter) for group in (decayed, kept) for parameter in group["params"]} == {
        id(parameter) for parameter in model.parameters()
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Two folders, one inside the other, with copies in both."""
    folder = tmp_path_factory.mktemp("sources")
    inner = folder / "site-packages"
    inner.mkdir()
    for k in range(60):
        (folder / f"module{k}.py").write_text(f"value_{k} = {k}\n" * 5, encoding="utf-8")
        (inner / f"package{k}.py").write_text(f"value_{k % 90 + 30} = {k % 90 + 30}\n" * 5, encoding="utf-8")
    (folder / "empty.py").touch()
    return {"library": folder, "packages": inner}


def test_nothing_of_held_out_files_is_in_the_training_text(sources):
    text = read_text(sources)
    training, held_out = ((part.names, part.content.split(b"\0")[:-1]) for part in text.parts)
    assert len(training[1]) == len(training[0]) > len(held_out[0]) == len(held_out[1]) > 0
    assert len({*training[1], *held_out[1]}) == len(training[1]) + len(held_out[1]) == 90  # 30 are copies
    assert not set(training[1]) & set(held_out[1])
    assert all(is_held_out(name) for name in held_out[0])
    assert not any(is_held_out(name) for name in training[0])
    assert not any("site-packages" in name for name in (*training[0], *held_out[0]))


def test_the_text_is_the_same_again_and_ends_at_its_limit(sources):
    text = read_text(sources)
    assert read_text(sources).described() == text.described()
    size = len(text.training.content) + len(text.held_out.content)
    less = read_text(sources, limit=size // 2)
    assert size // 3 < len(less.training.content) + len(less.held_out.content) <= size // 2
    assert text.training.content.startswith(less.training.content)


def test_the_interpreters_own_files_are_a_text():
    text = python_text(limit=10**6)
    assert 10**5 < len(text.training.content) + len(text.held_out.content) <= 10**6
    assert b"import " in text.training.content


@pytest.fixture(scope="module")
def data():
    return Data(python_text(10**6), QUICK, CPU)


def test_batches_are_a_matter_of_the_seed(data):
    starts = data.starts(QUICK, seed=0)
    assert starts.shape == (QUICK.steps, QUICK.batch)
    assert torch.equal(starts, data.starts(QUICK, seed=0))
    assert not torch.equal(starts, data.starts(QUICK, seed=1))
    assert torch.equal(starts[:3], data.starts(replace(QUICK, steps=3), seed=0))
    assert 0 <= int(starts.min()) <= int(starts.max()) < len(data.training) - QUICK.context


def test_a_text_too_short_for_a_window_is_refused(sources):
    with pytest.raises(ValueError, match=r"held-out text must hold a window of 1001 bytes, got \d+; read more"):
        Data(read_text(sources), replace(QUICK, context=1000), CPU)


def test_nothing_of_a_rehearsal_stays(data):
    """A rehearsed training goes on as one that was not."""
    found = []
    for rehearsed in (False, True):
        training = Training(Job("learned order", 1, 0), QUICK, CPU)
        training.tokens.copy_(data.windows[: QUICK.batch])
        if rehearsed:
            training.rehearse()
        for _ in range(3):
            training.step()
        found.append([parameter.detach() for parameter in training.parameters])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_the_learning_rate_is_that_of_the_buffer(data):
    training = Training(Job("residual", 1, 0), QUICK, CPU)
    training.tokens.copy_(data.windows[: QUICK.batch])
    before = training.model.head.weight.detach().clone()
    training.rate.fill_(0.0)
    training.step()
    assert torch.equal(training.model.head.weight, before)
    training.rate.fill_(1e-3)
    training.step()
    assert 1e-4 < float((training.model.head.weight - before).detach().abs().max()) < 2e-3


def command(*arguments):
    return [sys.executable, "-m", "examples.gpt", "train", "--quick", "--depth", "1", "--steps", "2", *arguments]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_run_of_all_streams_is_recorded_and_makes_a_page(tmp_path, capsys):
    """The command from end to end, on a CPU."""
    results = tmp_path / "results"
    assert main(command("--seeds", "2", "--out", str(results))[3:]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(results / "gpt.json")
    assert "18/18, 1 blocks, seed 1, attention residuals: " in told.err
    runs = read_runs(results / "gpt.json")
    assert list(runs) == [(arm, 1, seed) for seed in (0, 1) for arm in STREAMS]
    for (arm, _, _), run in runs.items():
        assert run["tokens"] == [0, 4 * 32, 2 * 4 * 32]
        assert len(run["losses"]) == len(run["seconds"]) == 3
        assert all(loss < 6.0 for loss in run["losses"])
        assert sorted(run["seconds"]) == run["seconds"]
        assert run["quick"]
        assert (run["captured"], run["why_not_captured"], run["peak_mib"]) == (False, "no CUDA device", None)
        assert len(run["orders"] or []) == {"learned order": 1, "learned by layer": 2}.get(arm, 0)
        assert run["made_with"]["versions"]["torch"] == torch.__version__
        for part in ("training", "held_out"):
            assert f"{part}: {run['text'][part]['files']:,} files" in told.err
            assert run["text"][part]["sha256"] in told.err
    # DenseFormer starts as the residual network, from the same weights.
    assert runs["DenseFormer", 1, 0]["losses"][0] == pytest.approx(runs["residual", 1, 0]["losses"][0], rel=1e-5)
    assert runs["residual", 1, 0]["losses"][0] != runs["residual", 1, 1]["losses"][0]

    assert main(["page", str(tmp_path)]) == 0
    page = (tmp_path / "transformers.md").read_text(encoding="utf-8")
    assert "QUICK SIZES, NOT RESULTS" in page
    assert "| 1 | attention residuals |" in page


def test_a_killed_training_leaves_whole_records_and_goes_on(tmp_path, capsys):
    """A real kill in a real process, once the first record is there; the first records stay to the letter."""
    path = tmp_path / "gpt.json"
    arguments = ["--arms", "residual", "DenseFormer", "--seeds", "40", "--out", str(tmp_path)]
    process = subprocess.Popen(command(*arguments), cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not path.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = read_runs(path)
    assert 0 < len(kept) < 80
    wanted = [(arm, 1, seed) for seed in range(40) for arm in ("residual", "DenseFormer")]
    assert list(kept) == wanted[: len(kept)]

    seeds = max(seed for _, _, seed in kept) + 1
    arguments = ["--arms", "residual", "DenseFormer", "--seeds", str(seeds + 1), "--resume", "--out", str(tmp_path)]
    assert main(command(*arguments)[3:]) == 0
    assert capsys.readouterr().err.count("done before") == len(kept)
    records = read_runs(path)
    assert list(records) == wanted[: 2 * seeds + 2]
    assert all(records[one] == kept[one] for one in kept)


def test_no_run_begins_when_time_is_up_and_nothing_is_overwritten(tmp_path, capsys):
    arguments = command("--seeds", "1", "--arms", "residual", "--out", str(tmp_path))[3:]
    assert main([*arguments, "--minutes", "0"]) == 0
    assert "not begun, 0 minutes are over; --resume goes on" in capsys.readouterr().err
    assert not (tmp_path / "gpt.json").exists()
    assert main(arguments) == 0
    before = (tmp_path / "gpt.json").read_bytes()
    assert main(arguments) == 2
    assert "gpt.json is there; pass --resume to go on with it, or another folder as --out" in capsys.readouterr().err
    assert (tmp_path / "gpt.json").read_bytes() == before
    assert main([*arguments, "--resume", "--batch", "5"]) == 0  # other settings are another run
    assert "done before" not in capsys.readouterr().err


def test_steps_are_one_number_or_one_for_each_depth(tmp_path, capsys):
    told = ["train", "--quick", "--depth", "1", "2", "--seeds", "1", "--arms", "residual", "--out", str(tmp_path)]
    assert main([*told, "--steps", "2", "3"]) == 0
    runs = read_runs(tmp_path / "gpt.json")
    assert [(depth, run["settings"]["steps"]) for (_, depth, _), run in runs.items()] == [(1, 2), (2, 3)]
    assert main([*told, "--resume", "--steps", "2", "2", "2"]) == 2
    assert "--steps must be one number or one for each depth, got 3 for 2" in capsys.readouterr().err


def made_run(arm, seed, losses, seconds, depth=12, **more):
    made_with = {"machine": {"processor": "a processor"}, "versions": {"python": "3", "torch": "2", "fracdnn": "0"}}
    part = {"files": 1, "bytes": 2, "sha256": "ab"}
    return {
        **{"arm": arm, "depth": depth, "seed": seed, "losses": losses, "seconds": seconds, "quick": False},
        **{"settings": vars(replace(QUICK, steps=10)), "tokens": [0, 500, 1000], "orders": None, "peak_mib": 100.0},
        **{"step_seconds": {"low": 0.1, "median": seconds[-1] / 10, "high": 0.3}, "parameters": 9},
        **{"stream_parameters": 0, "captured": True, "why_not_captured": None, "made_with": made_with},
        **{"text": {"training": part, "held_out": part}, **more},
    }


@pytest.fixture
def made_runs():
    """Three seeds: one stream lower and twice as slow, one higher, one neither, one diverged; a seed not whole."""
    runs = []
    for seed in range(3):
        wobble = 0.001 * seed
        last = {
            "residual": 2.0,
            "order 0.5": 1.9 + wobble,
            "order 0.9": 2.1 + wobble,
            "DenseFormer": 2.0 + wobble - 0.001,
        }
        times = {"order 0.5": 20.0}
        for arm, loss in last.items():
            end = times.get(arm, 10.0)
            runs.append(made_run(arm, seed, [5.0, 3.0, loss], [0.0, end / 2, end]))
        runs.append(made_run("attention residuals", seed, [5.0, None, None], [0.0, 6.0, 12.0]))
    return [*runs, made_run("residual", 3, [5.0, 9.0, 9.0], [0.0, 1.0, 2.0])]


PLACES = "".join(f"<!-- gpt {name} -->\n<!-- end -->\n" for name in PARTS)


def test_the_page_shows_intervals_and_marks_those_without_0(made_runs):
    text = filled(PLACES, made_runs)
    # The mean of 0.000, 0.001, 0.002 less 0.001, and 4.303 times its standard error.
    assert "| 12 | DenseFormer | +0.000 (-0.002 to +0.002) |" in text
    assert "| 12 | order 0.9 | **+0.101 (+0.099 to +0.103)** | **+0.101 (+0.099 to +0.103)** | × 1.00 |" in text
    # Twice as slow, it is half way when the fastest has finished.
    assert "| 12 | order 0.5 | **-0.099 (-0.101 to -0.097)** | **+1.000 (+1.000 to +1.000)** | × 2.00 |" in text
    assert "| 12 | attention residuals | diverged | diverged | × 1.20 |" in text
    assert "10.0 seconds of training for the fastest stream; 3 seeds;" in text
    assert filled(text, made_runs) == text
    one = filled(PLACES, [run for run in made_runs if run["seed"] == 0])
    assert "| 12 | order 0.5 | -0.100 | +1.000 |" in one  # one seed has no interval, so nothing is bold


def test_why_a_run_was_not_captured_or_failed_stands_on_the_page(made_runs):
    for run in made_runs:
        if run["arm"] == "order 0.9":
            run.update(captured=False, why_not_captured="it waits for the device")
    failed = {"arm": "learned order", "depth": 12, "seed": 0, "failed": "out of memory"}
    text = filled(PLACES, [*made_runs, failed])
    assert "Not captured as a CUDA graph, so that Python's time counts too: it waits for the device." in text
    assert "Failed: learned order, seed 0: out of memory" in text


def test_runs_of_different_settings_are_not_compared(made_runs):
    made_runs[1]["settings"] = {**made_runs[1]["settings"], "steps": 11}
    with pytest.raises(ValueError, match=r"runs of 12 blocks must share settings, .*; train them anew"):
        filled(PLACES, made_runs)


def test_a_run_that_fails_is_recorded_and_run_again(tmp_path, capsys):
    """A real error of torch, since no tensor has so many windows."""
    path = tmp_path / "gpt.json"
    job, data = Job("residual", 1, 0), Data(python_text(10**6), QUICK, CPU)
    found = outcome(job, replace(QUICK, batch=2**40), data)
    assert found.keys() == {"arm", "depth", "seed", "failed"}
    assert found["failed"].startswith("RuntimeError: ")
    made = {"settings": {}, "text": {}, "quick": True, "made_with": made_with()}
    write_file(path, {}, [{**found, **made}])
    assert main([*command("--seeds", "1", "--arms", "residual", "--resume", "--out", str(tmp_path))[3:]]) == 0
    assert "failed" not in read_runs(path)["residual", 1, 0]


def test_published_runs_are_trained_again_where_their_text_is_at_hand(tmp_path, capsys):
    text, path = python_text(10**6), tmp_path / "gpt.json"
    made = {"quick": True, "text": text.described(), "made_with": made_with(("numba",))}
    jobs = [Job(arm, 1, 0) for arm in ("residual", "DenseFormer")]
    runs = [{**train_one(job, QUICK, Data(text, QUICK, CPU)), **made} for job in jobs]
    write_file(path, {}, runs)
    assert check_runs(path, text)
    assert capsys.readouterr().out == "gpt: 2 runs again, the same numbers\n"
    runs[0]["losses"][-1] += 1e-3
    write_file(path, {}, runs)
    assert not check_runs(path, text)
    assert "gpt, 1 blocks, seed 0, residual: losses " in capsys.readouterr().out
    assert check_runs(path, python_text(10**5))
    assert "not checked, since the 2 runs are of another text or device" in capsys.readouterr().out


def test_the_reason_is_the_first_error():
    """A capture that is ended after an error raises another one."""
    first, second = ValueError("the first\nand more"), RuntimeError("the second")
    second.__context__ = first
    assert reason(second) == reason(first) == "ValueError: the first"


def test_the_page_is_made_from_the_results():
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    runs = read_file(DOCS / "results" / "gpt.json")[1]
    assert filled(text, runs) == text, "run python -m examples.gpt page"
    assert all(f"<!-- gpt {name} -->" in text for name in PARTS)
    assert not any(run["quick"] for run in runs)
