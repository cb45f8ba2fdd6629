"""Training on samples in pieces is training on the same samples in the same order in memory."""

import copy
from dataclasses import dataclass, field, replace

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
    Samples,
    StreamedAdamTraining,
    StreamedTask,
    Task,
)
from fracdnn.training.loops import adam_epoch, new_adam
from fracdnn.training.samples import chunks, count
from fracdnn.training.samples import windows as all_windows
from fracdnn.training.together import Alone
from tests.training.problems import REGULARIZATION, data


@dataclass
class Pieces(Samples):
    """Samples in memory, handed out by pieces of these sizes, in chunks of at most 7."""

    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None
    sizes_given: list[int]
    read_pieces: list[int] = field(default_factory=list)

    @property
    def sizes(self):
        return self.sizes_given

    def read(self, piece):
        self.read_pieces.append(piece)
        begin = sum(self.sizes_given[:piece])
        for first in range(begin, begin + self.sizes_given[piece], 7):
            part = slice(first, min(first + 7, begin + self.sizes_given[piece]))
            yield self.x[part], self.target[part], None if self.weight is None else self.weight[part]

    def digest(self):
        return str(float(self.x.sum()))


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
    assert count(samples) == 113
    assert torch.equal(torch.cat([part[0] for part in chunks(samples, 5)]), x)
    assert max(len(part[0]) for part in chunks(samples, 5)) == 5


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
    optimizer, step, n_batches = new_adam(whole.network, 0.02), 0, -(-113 // 8)
    for epoch in range(1, 4):
        losses = 0.0
        for window in replace(streamed, network=whole.network).windows(24, epoch):
            order = torch.randperm(len(window.x), generator=window.generator)
            for batch in window.part(order).batches(8):
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


def test_one_window_of_one_piece_is_an_epoch_in_memory():
    streamed, whole = problem()
    streamed.samples.sizes_given = [113]
    window = next(streamed.windows(500, epoch=1))
    whole.generator = window.generator
    expected = adam_epoch(whole, new_adam(whole.network, 0.01), 16, [0.01 * (1 - k / 8) for k in range(8)])
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
    history = StreamedAdamTraining(0.3, 8, 60, early_stopping=EarlyStopping(patience=3)).fit(streamed)
    scores = history.column("validation_score")
    assert history.status == "no improvement"
    assert float(streamed.validation.data_loss()) == pytest.approx(min(scores), rel=1e-12)
    assert scores.index(min(scores)) == len(scores) - 4


class KilledError(Exception):
    """In place of the end of a process."""


@pytest.mark.parametrize("at", [1, 2, 5, 9, 13])
def test_a_training_goes_on_from_any_window(at, tmp_path):
    """Five windows an epoch, a checkpoint after each; the process ends in the midst of window `at`."""
    path, way = tmp_path / "run.ckpt", {"learning_rate": 0.02, "batch_size": 8, "max_epochs": 3, "window": 24}
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
    estimator = FractionalClassifier(width=5, random_state=3, batch_size=12, learning_rate=0.01)
    estimator.partial_fit(X, y, classes=[0, 1])
    del estimator._adam
    network, tasks = copy.deepcopy(estimator.network_).to(torch.float32), []
    for begin in (0, 32, 64):
        part = slice(begin, begin + 32)
        estimator.partial_fit(X[part], y[part])
        tasks.append(estimator._task(X[part], y[part], 2, "cross_entropy", np.ones(32), Alone(), new=False))
    x, target, weight = (torch.cat([getattr(task, name) for task in tasks]) for name in ("x", "target", "weight"))
    in_order = next(k for k in range(99) if np.random.default_rng([k, 1]).permutation(3).tolist() == [0, 1, 2])
    samples, generator = Pieces(x, target, weight, [32, 32, 32]), torch.Generator().manual_seed(in_order)
    stream, optimizer = StreamedTask(network, tasks[0].objective, samples, generator), new_adam(network, 0.01)
    for window, task in zip(stream.windows(32, epoch=1), tasks, strict=True):
        adam_epoch(replace(window, generator=task.generator), optimizer, 12)
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
