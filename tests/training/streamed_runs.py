"""`python -m tests.training.streamed_runs FOLDER WHAT`: real processes on samples in pieces, for `test_streamed.py`."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.streamed_fit import fit_streamed
from fracdnn.training import (
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    Standardization,
    StreamedAdamTraining,
    StreamedTask,
)
from tests.plain import PLAIN, plain_encoding
from tests.training.pieces import Pieces
from tests.training.rank_groups import level_set_part, run_group
from tests.training.rank_runs import HARD, failure, fitted, parameters

# Windows of 24 have parts of one piece or several: in each, some of four processes may have nothing.
N, SIZES = 90, [11, 1, 0, 30, 17, 6, 25]
ADAM = StreamedAdamTraining(0.02, 8, 4, window=20)
EARLY = EarlyStopping(n_iter_no_change=3)
TRAININGS = {
    "adam": (ADAM, {}),
    "adam, values": (ADAM, {"loss": "squared_error", "weighted": False}),
    "adam, one window": (replace(ADAM, window=None), {}),
    "adam, early": (StreamedAdamTraining(0.3, 8, 40, window=20, early_stopping=EARLY), {}),
    # So many iterations must not come to where rounding alone is left.
    "bfgs": (FullBatchTraining("bfgs", 25, tolerance_grad=0.0), HARD),
    "bfgs, values": (FullBatchTraining("bfgs", 20, tolerance_grad=0.0), {"loss": "squared_error", "weighted": False}),
    "lbfgs, early": (FullBatchTraining("lbfgs", 40, early_stopping=EARLY), {"strength": 1e-4}),
}
STOPPED = {name: TRAININGS[name][0] for name in ("adam", "adam, early", "bfgs")}


def task(**options):
    """All samples, whichever rank asks; what is held out is in four pieces."""
    whole, other = level_set_part(0, 1, N, **options), level_set_part(0, 1, 40, **{**options, "seed": 9})
    tasks = [
        StreamedTask(whole.network, whole.objective, Pieces(part.x, part.target, part.weight, sizes), whole.generator)
        for part, sizes in ((whole, SIZES), (other, [9, 20, 1, 10]))
    ]
    return replace(tasks[0], validation=tasks[1])


def trained(rank, count):
    found = {}
    for name, (training, options) in TRAININGS.items():
        mine = task(**options)
        found[name] = (*fitted(training, mine), mine.samples.read_pieces)
    return found | estimated()


def table():
    """Pieces as estimators take them: features and targets in float64, and what is known of them."""
    given = level_set_part(0, 1, N)
    labels = Pieces(given.x, given.target, None, SIZES)
    values = given.x[:, :1] * given.x[:, 1:]
    scales = [Standardization.of(part) for part in (given.x, values)]
    return labels, Pieces(given.x, values, None, SIZES), *scales


def fit_regression(max_iter=10, **options):
    _, values, scale, target_scale = table()
    given = {**PLAIN, "solver": "bfgs", "tol": 0.0, "random_state": 3, "dtype": "float64", **options}
    estimator = FractionalRegressor(n_layers=2, width=4, max_iter=max_iter, **given)
    validation = values if estimator.early_stopping else None
    encoding = plain_encoding(*scale.mean)
    fit_streamed(estimator, values, scale, encoding, validation=validation, target_scale=target_scale)
    return parameters(estimator.network_), estimator.history_.to_dict()


def fit_classes(random_state, scaled=1.0):
    labels, _, scale, _ = table()
    counts = np.bincount(labels.target.numpy())
    options = {"n_layers": 2, "width": 4, "dtype": "float64", "random_state": random_state, "max_iter": 4}
    estimator = FractionalClassifier(batch_size=16, class_weight="balanced", **options)
    scale = replace(scale, mean=scaled * scale.mean)
    classes = np.array(["blue", "yellow"])
    fit_streamed(estimator, labels, scale, plain_encoding(*scale.mean), classes=classes, counts=counts)
    return parameters(estimator.network_), estimator.history_.to_dict()


def estimated():
    regressor = fit_regression(early_stopping=True, n_iter_no_change=3)
    return {"classifier": fit_classes(3), "regressor": regressor, "unseeded": fit_classes(None)[0]}


class Unreadable(Pieces):
    """Fails from the reading of number `moment` on."""

    moment = 0

    def read(self, piece):
        for chunk in super().read(piece):
            if len(self.read_pieces) >= self.moment:
                raise OSError(f"piece {piece} cannot be read")
            yield chunk


def unreadable(samples, moment):
    found = Unreadable(**vars(samples))
    found.moment = moment
    return found


def disturbed(rank, count):
    """What happens to the samples of one rank, or of all, and how all of them end."""
    found = {}

    def case(name, change, training=ADAM, *, everywhere=False):
        mine = task()
        if rank == 1 or everywhere:
            change(mine)
        before = parameters(mine.network)
        said = failure(lambda: found.update({name: training.fit(mine).status}))
        found[name] = (said, found.get(name), parameters(mine.network), torch.equal(before, parameters(mine.network)))

    def fails_at(moment, of_validation=False):
        def change(mine):
            part = mine.validation if of_validation else mine
            part.samples = unreadable(part.samples, moment)

        return change

    def other(mine):
        mine.samples.x = mine.samples.x + 1

    def other_held_out(mine):
        mine.validation = None

    def shorter(mine):
        mine.samples.read = lambda piece: (chunk for chunk in Pieces.read(mine.samples, piece) if len(chunk[0]) == 7)

    def infinite(mine):
        mine.samples.x[40] = torch.inf

    def labelled(mine):
        mine.samples.target[40] = 7

    def interrupted(mine):
        mine.network.register_forward_pre_hook(interrupt_at(12))

    bfgs, early = STOPPED["bfgs"], STOPPED["adam, early"]
    case("first window", fails_at(1))
    case("later window", fails_at(5))
    case("bfgs", fails_at(20), bfgs)
    case("held out", fails_at(3, of_validation=True), early)
    case("other samples", other)
    case("nothing held out", other_held_out, early)
    case("other size", shorter)
    case("not finite", infinite, everywhere=True)
    case("not finite, bfgs", infinite, bfgs, everywhere=True)
    case("label", labelled, everywhere=True)
    for name, training in (("signal", ADAM), ("signal, bfgs", bfgs)):
        case(name, interrupted, replace(training, keep_interrupted=True))
    nowhere = Checkpoints("/dev/null/run.ckpt", every=2)
    case("checkpoint", lambda mine: None, replace(ADAM, checkpoints=nowhere))
    found["settings"] = failure(lambda: fit_classes(random_state=rank))
    found["scaling"] = failure(lambda: fit_classes(3, scaled=1.0 + 1e-15 * rank))
    return found


def interrupt_at(number):
    calls = []

    def hook(module, inputs):
        calls.append(0)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)

    return hook


def resumed(name, path, moment=0, stop=None):
    """A training that goes on from a checkpoint and ends, stops at a record, or fails in a reading of the last rank."""

    def work(rank, count):
        def watch(record):
            if record.iteration == stop:
                raise KeyboardInterrupt

        mine = task(**TRAININGS[name][1])
        mine.watch = watch
        if moment and rank == count - 1:
            mine.samples = unreadable(mine.samples, moment)
        place = path if rank == 0 else path.with_name("elsewhere")  # other machines have no such file
        training = replace(STOPPED[name], checkpoints=Checkpoints(place, every=1, resume=True), keep_interrupted=True)
        return failure(lambda: training.fit(mine)), parameters(mine.network), mine.samples.read_pieces

    return work


def whole(name, path):
    def work(rank, count):
        mine = task(**TRAININGS[name][1])
        training = replace(STOPPED[name], checkpoints=Checkpoints(path, every=1, resume=True))
        return (*fitted(training, mine), mine.samples.read_pieces)

    return work


def run_equal(folder, counts=(1, 3)):
    return [run_group(count, trained, folder / str(count)) for count in counts]


def run_more(folder):
    return run_equal(folder, (1, 2, 4))


def run_faults(folder):
    return [run_group(3, disturbed, folder / "disturbed")]


def run_resumed(folder):
    codes = []
    for name in STOPPED:
        path = folder / f"{name}.ckpt"
        # Adam fails in the second epoch and in the third, each of which it goes on with in its midst.
        moments = (20, 9, 12) if name == "bfgs" else (5, 3, 3)
        for count, kind, moment in zip((2, 3, 4), ("moment", "moment", "stop"), moments, strict=True):
            options = {kind: moment}
            codes.append(run_group(count, resumed(name, path, **options), folder / f"{name}-{count}"))
        codes.append(run_group(2, whole(name, path), folder / f"{name}-ended"))
        codes.append(run_group(1, whole(name, folder / f"{name}-whole.ckpt"), folder / f"{name}-whole"))
    for count, limit, name in ((2, 4, "parts"), (3, 8, "parts"), (1, 12, "parts"), (1, 12, "whole")):
        options = {"checkpoint_path": folder / f"estimator-{name}.ckpt", "checkpoint_every": 1, "resume": True}
        work = lambda rank, count, limit=limit, options=options: fit_regression(limit, **options)  # noqa: E731
        codes.append(run_group(count, work, folder / f"estimator-{name}-{count}"))
    return codes


RUNS = {"equal": run_equal, "more": run_more, "faults": run_faults, "resumed": run_resumed}

if __name__ == "__main__":
    torch.set_num_threads(1)
    estimated()  # so that the others find all imported and compiled
    for what in sys.argv[2:]:
        (Path(sys.argv[1]) / what).mkdir()
        codes = RUNS[what](Path(sys.argv[1]) / what)
        assert not any(code for group in codes for code in group), codes
