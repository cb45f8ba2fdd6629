"""Training on samples in pieces is training on the same samples in the same order in memory."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from fracdnn import FractionalClassifier
from fracdnn.exceptions import FileContentError, InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    MiniBatchTraining,
    Objective,
    StreamedAdamTraining,
    StreamedTask,
    Task,
)
from fracdnn.training.adam import Adam, adam_epoch
from fracdnn.training.samples import chunks
from fracdnn.training.samples import windows as all_windows
from tests.training.pieces import Pieces
from tests.training.problems import REGULARIZATION, data
from tests.training.rank_groups import loaded
from tests.training.test_together import assert_identical, run
from tests.training.test_together import assert_same as assert_same_training

SIZES = [13, 1, 0, 40, 22, 7, 30]


def network(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return FractionalNetwork(3, 2, n_layers=3, order=0.6, width=5, generator=generator).to(dtype)


def problem(weighted=False, loss="cross_entropy", dtype=torch.float64):
    net = network(dtype)
    x, target, weight = data(sum(SIZES), net, loss, weighted)
    objective = Objective(loss, REGULARIZATION, 0.1 if loss == "cross_entropy" else 0.0)
    generators = [torch.Generator().manual_seed(11) for _ in range(2)]
    streamed = StreamedTask(net, objective, Pieces(x, target, weight, SIZES), generators[0])
    return streamed, Task(copy.deepcopy(net), objective, x, target, weight, generators[1])


def assert_same(net, other, tolerance=0.0):
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 10, 16, 113, 500])
def test_windows_hold_every_sample_once_in_a_drawn_order(rows):
    x = torch.arange(113.0)[:, None]
    samples = Pieces(x, x, x[:, 0], SIZES)

    def windows(samples, rows, **options):
        return [chunk for chunk, _ in all_windows(samples, rows, **options)]

    found = list(windows(samples, rows, seed=1, epoch=2))
    lengths = [rows] * (113 // rows) + ([113 % rows] if 113 % rows else [])
    for seed in range(30):  # borders of pieces and chunks fall anywhere in a window
        assert [len(part[0]) for part in windows(samples, rows, seed=seed, epoch=2)] == lengths
    order = torch.cat([part[0] for part in found])
    assert order.squeeze(1).sort().values.tolist() == list(range(113))
    assert torch.equal(order[:, 0], torch.cat([part[2] for part in found]))
    for change in ({"seed": 2, "epoch": 2}, {"seed": 1, "epoch": 3}):
        assert not torch.equal(order, torch.cat([part[0] for part in windows(samples, rows, **change)]))
    for first in range(len(found) + 1):
        samples.read_pieces.clear()
        rest = list(windows(samples, rows, seed=1, epoch=2, first=first))
        assert [part[0].tolist() for part in rest] == [part[0].tolist() for part in found[first:]]
        assert sum(SIZES[piece] for piece in samples.read_pieces) <= max(0, 113 - first * rows) + max(SIZES)
    assert sum(samples.sizes) == 113
    assert torch.equal(torch.cat([part[0] for part in chunks(samples, 5)]), x)
    assert max(len(part[0]) for part in chunks(samples, 5)) == 5


@pytest.mark.parametrize("n_ranks", [2, 3, 5, 9])
@pytest.mark.parametrize("rows", [1, 10, 16, 113, 500])
def test_ranks_have_the_windows_of_one_among_them(rows, n_ranks):
    x = torch.arange(113.0)[:, None]
    samples = [Pieces(x, x, x[:, 0], SIZES) for _ in range(n_ranks)]
    for seed, first in itertools.product(range(4), range(0, 113 // rows + 1, 1 + 24 // rows)):
        where = {"seed": seed, "epoch": 2, "first": first}
        alone = list(all_windows(Pieces(x, x, x[:, 0], SIZES), rows, **where))
        parts = [all_windows(mine, rows, rank=rank, n_ranks=n_ranks, **where) for rank, mine in enumerate(samples)]
        for (expected, whole), *window in zip(alone, *parts, strict=True):
            found = torch.full_like(expected[0], -1.0)
            for chunk, numbered in window:
                assert numbered.n == whole.n == len(found)
                assert len(numbered.places) == (0 if chunk is None else len(chunk[0]))
                if chunk is not None:
                    found[numbered.places] = chunk[0]
                    assert torch.equal(chunk[0][:, 0], chunk[2])
            assert sum(len(numbered.places) for _, numbered in window) == len(found)
            assert torch.equal(found, expected[0])
        read = [piece for mine in samples for piece in mine.read_pieces]
        assert len(read) == len(set(read))
        if not first:
            assert {piece for piece, size in enumerate(SIZES) if size} <= set(read)
        for mine in samples:
            mine.read_pieces.clear()
    parts = [chunks(mine, 5, rank=rank, n_ranks=n_ranks) for rank, mine in enumerate(samples)]
    assert torch.equal(torch.cat([chunk[0] for part in parts for chunk in part]).sort(0).values, x)


def test_every_window_is_shuffled_in_its_own_way():
    streamed, _ = problem()

    def shuffles(epoch, first=0):
        return [
            torch.randperm(16, generator=window.generator).tolist() for window in streamed.windows(16, epoch, first)
        ]

    found = shuffles(1) + shuffles(2)
    assert len({tuple(order) for order in found}) == len(found) == 16
    assert shuffles(2, first=3) == found[11:]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_in_windows_is_adam_on_the_same_batches(weighted, loss, dtype):
    """Batches of 8 cross the borders of pieces and chunks; the windows have 3 of them."""
    streamed, whole = problem(weighted, loss, dtype)
    if weighted:  # a batch of no weight has no mean
        streamed.samples.weight += 0.5
    history = StreamedAdamTraining(0.02, 8, 3, window=20).fit(streamed)
    optimizer, step, n_batches = torch.optim.Adam(whole.network.parameters(), fused=True), 0, -(-113 // 8)
    for epoch in range(1, 4):
        losses = 0.0
        for window in replace(streamed, network=whole.network).windows(24, epoch):
            order = torch.randperm(len(window.x), generator=window.generator)
            for batch in map(window.part, order.split(8)):
                optimizer.param_groups[0]["lr"] = 0.02 * (1.0 - step / (3 * n_batches))
                optimizer.zero_grad()
                losses += batch.backward() * len(batch.x)
                optimizer.step()
                step += 1
        assert history.records[epoch - 1].loss == pytest.approx(losses / 113, rel=1e-12)
    assert step == 3 * n_batches
    assert history.status == "epoch limit"
    assert (history.records[-1].accuracy is None) == (loss == "squared_error")
    assert_same(streamed.network, whole.network, 1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize(
    "training", [StreamedAdamTraining(0.02, 8, 3, window=20), FullBatchTraining(max_iter=5)], ids=repr
)
def test_a_time_limit_and_what_goes_on_after_it(training, tmp_path):
    (whole, _), (parts, _) = problem(), problem()
    expected = training.fit(whole)
    limited = replace(training, checkpoints=Checkpoints(tmp_path / "run.ckpt", every=1000, resume=True), max_time=1e-9)
    n_windows = 5 if isinstance(training, StreamedAdamTraining) else 1  # in which the time is over, too
    for part in range(1, n_windows + 2):
        parts, _ = problem()
        history = limited.fit(parts)
        assert (history.status, len(history.records)) == ("time limit", -(-part // n_windows))
        if part % n_windows == 0:
            assert history.records == expected.records[: part // n_windows]
    parts, _ = problem()
    assert replace(limited, max_time=1e9).fit(parts) == expected
    assert_same(parts.network, whole.network, 0.0)


def test_one_window_of_one_piece_is_an_epoch_in_memory():
    streamed, whole = problem()
    streamed.samples.sizes_given = [113]
    window = next(streamed.windows(500, epoch=1))
    whole.generator = window.generator
    expected = adam_epoch(whole, Adam(list(whole.network.parameters())), 16, [0.01 * (1 - k / 8) for k in range(8)])
    history = StreamedAdamTraining(0.01, 16, 1).fit(streamed)
    assert (history.records[0].loss, history.records[0].accuracy) == pytest.approx(expected, rel=1e-14)
    assert_same(streamed.network, whole.network)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_sums_over_pieces_are_the_objective(weighted, loss):
    streamed, whole = problem(weighted, loss)
    for _ in range(2):  # gradients are added to those there are
        value = streamed.backward()
        assert value == pytest.approx(whole.backward(), rel=1e-13)
        shares = [task.accuracy(task.output) for task in (streamed, whole)]
        assert shares == [None, None] if loss == "squared_error" else shares[0] == pytest.approx(shares[1], rel=1e-13)
        for one, two in zip(streamed.network.parameters(), whole.network.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-12, atol=1e-14)
    assert float(streamed.data_loss()) == pytest.approx(float(whole.data_loss().detach()), rel=1e-13)
    assert float(streamed.loss()) == pytest.approx(float(whole.loss().detach()), rel=1e-13)


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
def test_full_batches_make_the_same_iterates(optimizer):
    streamed, whole = problem(weighted=True)
    histories = [FullBatchTraining(optimizer, 30).fit(task) for task in (streamed, whole)]
    one, two = (history.column("loss") for history in histories)
    assert len(one) == len(two) == 30
    assert one == pytest.approx(two, rel=1e-10)
    assert histories[0].column("accuracy") == pytest.approx(histories[1].column("accuracy"))
    assert_same(streamed.network, whole.network, 1e-8)


def test_early_stopping_looks_at_the_validation_samples():
    streamed, _ = problem()
    other, _ = problem(loss="cross_entropy")
    streamed.validation = replace(
        other, network=streamed.network, samples=Pieces(*data(40, streamed.network, seed=9), [40])
    )
    history = StreamedAdamTraining(0.3, 8, 60, early_stopping=EarlyStopping(n_iter_no_change=3)).fit(streamed)
    scores = history.column("validation_score")
    assert history.status == "no improvement"
    assert float(streamed.validation.data_loss()) == pytest.approx(min(scores), rel=1e-12)
    assert scores.index(min(scores)) == len(scores) - 4


class KilledError(Exception):
    """In place of the end of a process."""


@pytest.mark.parametrize("at", [1, 2, 5, 9, 13])
def test_a_training_goes_on_from_any_window(at, tmp_path):
    """Five windows an epoch, a checkpoint after each; the process ends in the midst of window `at`."""
    path, way = tmp_path / "run.ckpt", {"lr": 0.02, "batch_size": 8, "max_epochs": 3, "window": 24}
    undisturbed, _ = problem()
    expected = StreamedAdamTraining(**way).fit(undisturbed)
    killed, _ = problem()
    seen = 0

    class Failing(Pieces):
        def read(self, piece):
            nonlocal seen
            for chunk in super().read(piece):
                seen += len(chunk[0])
                if seen > at * 24 + 12:
                    raise KilledError
                yield chunk

    killed.samples = Failing(**vars(killed.samples))
    with pytest.raises(KilledError):
        StreamedAdamTraining(**way, checkpoints=Checkpoints(path, every=1)).fit(killed)
    resumed, _ = problem()
    with torch.no_grad():
        resumed.network.W.add_(1.0)
    resumed.generator.manual_seed(5)
    history = StreamedAdamTraining(**way, checkpoints=Checkpoints(path, every=1, resume=True)).fit(resumed)
    assert history.records == expected.records
    assert_same(resumed.network, undisturbed.network)
    with pytest.raises(FileContentError, match="got one with other settings"):
        StreamedAdamTraining(**{**way, "window": 16}, checkpoints=Checkpoints(path, resume=True)).fit(resumed)
    resumed.samples.x = resumed.samples.x + 1
    with pytest.raises(FileContentError, match="got one with other data"):
        StreamedAdamTraining(**way, checkpoints=Checkpoints(path, resume=True)).fit(resumed)


def test_a_training_that_leaves_what_is_finite_ends_before_that_window():
    streamed, _ = problem()
    streamed.samples.x[60] = float("inf")
    before = copy.deepcopy(streamed.network)
    history = StreamedAdamTraining(0.02, 8, 3, window=113).fit(streamed)
    assert history.status == "not finite"
    assert_same(streamed.network, before)


def test_chunks_by_partial_fit_reach_the_same():
    """With the same scaling, order and batches, parameters are equal to the bit."""
    streamed, _ = problem(dtype=torch.float32)
    X, y = streamed.samples.x[:96].double().numpy(), streamed.samples.target[:96].numpy()
    estimator = FractionalClassifier(width=5, random_state=3, batch_size=12, learning_rate_init=0.01)
    estimator.partial_fit(X, y, classes=[0, 1])
    del estimator._adam
    network, tasks = copy.deepcopy(estimator.network_).to(torch.float32), []
    for begin in (0, 32, 64):
        part = slice(begin, begin + 32)
        estimator.partial_fit(X[part], y[part])
        given = X[part], y[part], np.ones(32), estimator._seed()
        tasks.append(estimator._task(*given, new=False)[0])
    x, target, weight = (torch.cat([getattr(task, name) for task in tasks]) for name in ("x", "target", "weight"))
    in_order = next(k for k in range(99) if np.random.default_rng([k, 1]).permutation(3).tolist() == [0, 1, 2])
    samples, generator = Pieces(x, target, weight, [32, 32, 32]), torch.Generator().manual_seed(in_order)
    stream, optimizer = (
        StreamedTask(network, tasks[0].objective, samples, generator),
        Adam(list(network.parameters())),
    )
    for window, task in zip(stream.windows(32, epoch=1), tasks, strict=True):
        adam_epoch(replace(window, generator=task.generator), optimizer, 12, 0.01)
    assert_same(network.to(torch.float64), estimator.network_.to(torch.float64))


def test_what_cannot_be_streamed_is_refused():
    streamed, whole = problem()
    for way in (AdamTraining(), MiniBatchTraining()):
        with pytest.raises(InvalidArgumentError, match="training must be StreamedAdamTraining or FullBatchTraining"):
            way.fit(streamed)
    with pytest.raises(InvalidArgumentError, match="task must be a StreamedTask for StreamedAdamTraining, got a Task"):
        StreamedAdamTraining().fit(whole)

    class Other(Objective):
        pass

    with pytest.raises(InvalidArgumentError, match=r"objective must be an Objective .* got Other"):
        replace(streamed, objective=Other())
    with pytest.raises(InvalidArgumentError, match="window must be"):
        StreamedAdamTraining(window=0)
    with pytest.raises(InvalidArgumentError, match="samples must hold at least one, got none in 2 pieces"):
        replace(streamed, samples=replace(streamed.samples, sizes_given=[0, 0]))


@pytest.mark.parametrize("wrong", [41, 39])
def test_a_piece_that_has_changed_is_refused(wrong):
    streamed, _ = problem()
    given = streamed.samples

    class Changed(Pieces):
        def read(self, piece):
            return Pieces(given.x, given.target, None, [*SIZES[:3], wrong] if piece == 3 else SIZES).read(piece)

    streamed.samples = Changed(**vars(given))
    for training in (StreamedAdamTraining(max_epochs=2), FullBatchTraining()):
        with pytest.raises(InvalidArgumentError, match=f"samples must hold 40 rows in piece 3, .* got {wrong}; leave"):
            training.fit(streamed)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """What `make test` runs, from one process that imports everything once."""
    folder = tmp_path_factory.mktemp("streamed")
    run(folder, "equal", "faults", module="streamed_runs")
    return folder


@pytest.fixture
def more(tmp_path):
    run(tmp_path, "more", module="streamed_runs")
    return tmp_path


@pytest.mark.parametrize(
    ("where", "what", "counts"),
    [("place", "equal", (1, 3)), pytest.param("more", "more", (1, 2, 4), marks=pytest.mark.slow)],
)
def test_any_number_of_processes_trains_as_one_does(where, what, counts, request):
    folder = request.getfixturevalue(where) / what
    (alone,) = loaded(folder / "1", 1)
    for n_ranks in counts:
        ranks = loaded(folder / str(n_ranks), n_ranks)
        unseeded = [rank.pop("unseeded") for rank in ranks]
        assert all(torch.equal(each, unseeded[0]) for each in unseeded)
        for name, expected in alone.items():
            if name == "unseeded":
                continue
            assert_same_training(ranks[0][name], expected)
            for rank in ranks[1:]:
                assert_identical(rank[name], ranks[0][name])
        # Each piece once an epoch, by one of them; the empty one may be left out.
        read = [piece for rank in ranks for piece in rank["adam"][2]]
        assert [read.count(piece) for piece in (0, 1, 3, 4, 5, 6)] == [4] * 6
        pieces = [set(rank["bfgs"][2]) for rank in ranks]
        assert pieces == [set(range(rank, 7, n_ranks)) for rank in range(n_ranks)]
    early = [alone[name][1] for name in ("adam, early", "lbfgs, early")]
    assert all(history["status"] == "no improvement" for history in early)
    assert len(alone["bfgs"][1]["records"]) == 25
    assert alone["bfgs"][1]["records"][-1]["gradient_norm"] > 1e-5


def test_troubles_of_one_process_are_those_of_all(place):
    ranks = loaded(place / "faults" / "disturbed", 3)

    def check(name, error, words, of=1):
        """One error, on the rank that has it; the others tell of it."""
        said = [rank[name][0] for rank in ranks]
        own = said.pop(of)
        assert own.startswith(f"{error}: {words.split(': ', 1)[1]}")
        assert all(each.startswith(f"RankError: rank {of} failed in {words}") for each in said)

    check("first window", "OSError", "reading the samples: piece 3 cannot be read")
    check("later window", "OSError", "reading the samples: piece 3 cannot be read")
    check("bfgs", "OSError", "an evaluation: piece 4 cannot be read")
    check("held out", "OSError", "an evaluation: piece 1 cannot be read")
    check("other size", "InvalidArgumentError", "reading the samples: samples must hold 30 rows in piece 3")
    check("label", "InvalidArgumentError", "reading the samples: target must hold classes from 0 to 1")
    check("checkpoint", "FileExistsError", "writing a checkpoint: [Errno 17]", of=0)
    for name in ("other samples", "nothing held out"):
        rule = "InvalidArgumentError: samples must be the same on all 3 ranks, got other on rank 1 than on rank 0"
        assert all(rank[name][0].startswith(rule) for rank in ranks)
    for name, word in (("settings", "parameters"), ("scaling", "scaling")):
        assert all(rank[name].startswith(f"InvalidArgumentError: {word} must be the same on all 3") for rank in ranks)
    ends = {name: [rank[name][:2] for rank in ranks] for name in ranks[0] if name.startswith(("not finite", "signal"))}
    assert ends == {name: [("nothing", name.split(",")[0].replace("signal", "interrupted"))] * 3 for name in ends}
    assert len(ends) == 4
    changed = {"later window", "bfgs", "held out", "other size", "not finite", "label", "checkpoint", *ends}
    for name in set(ranks[0]) - {"settings", "scaling"}:
        assert all(torch.equal(rank[name][2], ranks[0][name][2]) for rank in ranks)
        assert all(rank[name][3] == (name not in changed or name == "not finite, bfgs") for rank in ranks), name


@pytest.mark.slow
def test_a_training_goes_on_with_another_number_of_processes(tmp_path):
    run(tmp_path, "resumed", module="streamed_runs")
    folder = tmp_path / "resumed"
    for name in ("adam", "adam, early", "bfgs"):
        lives = [loaded(folder / f"{name}-{n_ranks}", n_ranks) for n_ranks in (2, 3, 4)]
        said = [[rank[0].split(":")[0] for rank in ranks] for ranks in lives]
        assert said == [["RankError", "OSError"], ["RankError", "RankError", "OSError"], ["nothing"] * 4]
        for ranks in lives:
            assert all(torch.equal(rank[1], ranks[0][1]) for rank in ranks)
        (expected,), ended = loaded(folder / f"{name}-whole", 1), loaded(folder / f"{name}-ended", 2)
        assert_same_training(ended[0], expected)
        assert_identical(ended[1], ended[0])
        # It did go on, Adam in the midst of an epoch, and did not begin anew.
        assert sum(len(rank[2]) for rank in ended) < len(expected[2])
        assert name == "bfgs" or 0 < sum(len(rank[2]) for rank in lives[2]) < 7
    for n_ranks, length in ((2, 4), (3, 8), (1, 12)):
        ranks = loaded(folder / f"estimator-parts-{n_ranks}", n_ranks)
        assert [len(rank[1]["records"]) for rank in ranks] == [length] * n_ranks
    assert_same_training(ranks[0], loaded(folder / "estimator-whole-1", 1)[0])
    assert not (folder / "elsewhere").exists()
