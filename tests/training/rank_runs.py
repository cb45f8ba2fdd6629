"""`python -m tests.training.rank_runs FOLDER WHAT`: real processes that train together, for `test_together.py`."""

import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer

import numpy as np
import pandas as pd
import torch

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.datasets import make_level_set
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    MiniBatchTraining,
    Objective,
)
from tests.plain import PLAIN
from tests.training.rank_groups import borders, level_set_part, run_group

N = 90
# For two processes one has no samples, for three they are unequal.
SHARES = {1: None, 2: [N, 0], 3: [7, 60, 23], 4: None}
TRAININGS = {
    "bfgs": FullBatchTraining("bfgs", 50, tolerance_grad=0.0),
    "lbfgs": FullBatchTraining("lbfgs", 20, tolerance_grad=0.0),
    "lbfgs, long": FullBatchTraining("lbfgs", 50, tolerance_grad=0.0),
    "steepest": FullBatchTraining("textbook-bfgs", 10),
    "mini-batches": MiniBatchTraining(2, 8, normalization="feature", by_class=True),
    "mini-batches by all": MiniBatchTraining(2, 8, normalization="global"),
    "adam": AdamTraining(0.02, 16, 6),
    "adam, early": AdamTraining(0.1, 32, 20, early_stopping=EarlyStopping(0.2, 3)),
    "lbfgs, early": FullBatchTraining("lbfgs", 40, early_stopping=EarlyStopping(0.3, 3)),
}
HARD = {"n_layers": 6, "strength": 1e-4}
ENDLESS = {
    "steepest": FullBatchTraining("textbook-bfgs", 10**6, tolerance_grad=0.0),
    "adam": AdamTraining(1e-6, 32, 10**6),
}
LONG = FullBatchTraining("bfgs", 30, tolerance_grad=0.0)
STOPPED = {"bfgs": FullBatchTraining("bfgs", 20, tolerance_grad=0.0), "adam, early": TRAININGS["adam, early"]}


def parameters(network):
    return torch.cat([p.detach().double().reshape(-1) for p in network.parameters()])


def fitted(training, task):
    history = training.fit(task)
    return parameters(task.network), history.to_dict()


def trained(rank, count):
    """Every way to train, on shards of every kind; on four processes some of them."""
    found = {}
    for name, training in TRAININGS.items():
        # Fifty iterations must not come to where rounding alone is left.
        hard = HARD if name in ("bfgs", "lbfgs", "lbfgs, long") else {}
        if count < 4 or hard or name == "adam":
            found[name] = fitted(training, level_set_part(rank, count, N, SHARES[count], **hard))
    if count == 4:
        return found
    plain = level_set_part(rank, count, N, SHARES[count], weighted=False, loss="squared_error")
    found["values without weights"] = fitted(TRAININGS["adam"], plain)
    return found | estimated(rank, count)


def shuffled():
    """The long training in one process, with its samples in other orders: what rounding alone does to it."""
    found = []
    for seed in range(3):
        task, order = level_set_part(0, 1, N, **HARD), torch.randperm(N, generator=torch.Generator().manual_seed(seed))
        task.x, task.target, task.weight = task.x[order], task.target[order], task.weight[order]
        found.append(fitted(TRAININGS["lbfgs, long"], task)[0])
    return found


def estimated(rank, count):
    """Estimators, with repeated samples; sorted by class, so that processes have one class only."""
    X, labels = make_level_set(N, random_state=0)
    X, order = np.round(6 * X) / 6, np.argsort(labels, kind="stable")
    begin, end = borders(N, rank, count, SHARES[count])
    mine = order[begin:end]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, N)
    names = np.array(["blue", "yellow"])[labels]
    options = {"n_layers": 2, "width": 4, "random_state": 3, "dtype": "float64"}
    classifier = FractionalClassifier(max_iter=4, batch_size=16, class_weight="balanced", n_members=2, **options)
    one = {"n_members": 1, "n_bins": 0, "clip": None}
    regressor = FractionalRegressor(solver="lbfgs", max_iter=10, early_stopping=True, **one, **options)
    found = {}
    for name, estimator, target in (("classifier", classifier, names), ("regressor", regressor, X @ X.T[:, :2])):
        estimator.fit(X[mine], target[mine], weight[mine])
        found[name] = parameters(estimator.network_), estimator.history_.to_dict()
    classifier.set_params(class_weight=None).partial_fit(X[mine], names[mine])
    found["partial_fit"] = parameters(classifier.network_), classifier.history_.to_dict()
    assert classifier.classes_.tolist() == ["blue", "yellow"]
    unseeded = classifier.set_params(random_state=None).fit(X[mine], names[mine])
    return found | {"unseeded": parameters(unseeded.network_)}


def framed(rank, count):
    """Estimators of frames: categories, holes and kinds of columns that one process alone has seen, and weights."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": [f"k{j // 2:02d}" for j in range(N)], "number": rng.normal(size=N).round(1)})
    frame["colour"] = np.where(frame["number"] > 0, "red", "blue")  # sorted, each process has one of them
    frame["code"] = pd.Series([*range(40), *["none"] * (N - 40)], dtype=object)
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N) * 7 % 90, "D")
    frame = frame.sort_values("number", ignore_index=True)
    frame.loc[[0, 1], "number"] = np.nan
    frame.loc[[N - 1], "colour"] = None
    begin, end = borders(N, rank, count, SHARES[count])
    mine, weight = frame.iloc[begin:end], rng.integers(0, 4, N)[begin:end]
    options = {"n_layers": 2, "width": 4, "random_state": 3, "dtype": "float64", "max_iter": 4, "n_members": 2}
    y = (np.arange(N) % 5)[begin:end]
    found = {}
    for estimator in (FractionalClassifier(**options), FractionalRegressor(**options)):
        estimator.fit(mine, y, weight)
        encoding = estimator.encoding_.state(), estimator.encoding_.feature_names
        found[type(estimator).__name__] = encoding, (parameters(estimator.network_), estimator.history_.to_dict())
    return found


def failure(function):
    """What it raises, as type and words."""
    try:
        function()
    except (Exception, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def other_settings(rank, count):
    """What ranks say that were given other settings than the first."""
    odd = rank == 1
    cases = {
        "training": (AdamTraining(max_epochs=3 if odd else 2), {}),
        "training limit": (FullBatchTraining(max_iter=3 if odd else 2), {}),
        "training time": (FullBatchTraining(max_iter=2, max_time=30.0 if odd else 60.0), {}),
        "network": (LONG, {"order": 0.6 if odd else 0.5}),
        "samples": (LONG, {"weighted": not odd}),
        "parameters": (LONG, {"seed": int(odd)}),
    }
    found = {}
    for name, (training, options) in cases.items():
        task = level_set_part(rank, count, N, **options)
        found[name] = failure(lambda training=training, task=task: training.fit(task))
    task = level_set_part(rank, count, N)
    task.generator.manual_seed(rank)
    found["generator"] = failure(lambda: LONG.fit(task))
    task = level_set_part(rank, count, N)
    task.objective = Objective(label_smoothing=0.1 * odd)
    found["objective"] = failure(lambda: LONG.fit(task))
    found["no samples"] = failure(lambda: LONG.fit(level_set_part(rank, count, N, [0] * count)))
    X, y = make_level_set(20, random_state=rank)
    for name, options in {
        "random_state": {"random_state": rank},
        "solver": {"solver": "lbfgs" if odd else "adam"},
    }.items():
        estimator = FractionalClassifier(max_iter=2, n_members=1, **options)
        found[name] = failure(lambda estimator=estimator: estimator.fit(X, y))
    X[0, 0] = np.inf if odd else 0.0
    found["infinity in X"] = failure(lambda: FractionalClassifier(random_state=0).fit(X, y))
    mixed = y if odd else np.array(["a", "b"])[y]
    X[0, 0] = 0.0
    found["labels"] = failure(lambda: FractionalClassifier(random_state=0).fit(X, mixed))
    return found


def at_call(number, act):
    """A hook that acts in that forward pass."""
    calls = []

    def hook(module, inputs):
        calls.append(0)
        if len(calls) == number:
            act()

    return hook


def disturbed(rank, count):
    """What happens to one rank, and how all of them end."""
    found = {}

    def case(name, act, training=LONG, number=12):
        task = level_set_part(rank, count, N)
        if rank == 1:
            task.network.register_forward_pre_hook(at_call(number, act))
        said = failure(lambda: found.update({name: replace(training, keep_interrupted=True).fit(task).to_dict()}))
        found[name] = (said, found.get(name), parameters(task.network))

    def raise_error():
        raise ValueError("no such file")

    def raise_interrupt():
        raise KeyboardInterrupt

    case("signal", lambda: os.kill(os.getpid(), signal.SIGINT))
    case("signal, adam", lambda: os.kill(os.getpid(), signal.SIGINT), TRAININGS["adam"])
    case("interrupt", raise_interrupt)
    for name, training in ENDLESS.items():
        task = level_set_part(rank, count, N, **HARD)
        time.sleep(0.4 if rank == 1 else 0.0)  # its clock starts late: the time of the others is over before its own
        found[f"time, {name}"] = fitted(replace(training, max_time=0.8), task)
    case("error", raise_error)
    task = level_set_part(rank, count, N)
    if rank == 1:
        task.watch = lambda record: raise_interrupt() if record.iteration == 7 else None
    found["watch"] = failure(lambda: LONG.fit(task))
    for name in ("bfgs", "adam"):
        task = level_set_part(rank, count, N)
        if rank == 1:
            task.x[0, 0] = torch.nan
        before = parameters(task.network)
        found[f"NaN, {name}"] = (TRAININGS[name].fit(task).status, torch.equal(before, parameters(task.network)))
    task = level_set_part(rank, count, N)
    if rank == 1:
        task.target[0] = 7
    found["label"] = failure(lambda: LONG.fit(task))
    nowhere = Checkpoints("/dev/null/run.ckpt", every=2)
    found["checkpoint"] = failure(lambda: replace(LONG, checkpoints=nowhere).fit(level_set_part(rank, count, N)))
    return found


def hanging(rank, count):
    """The last rank stops in an evaluation; the others must end by themselves."""
    task = level_set_part(rank, count, N)
    if rank == count - 1:
        task.network.register_forward_pre_hook(at_call(5, lambda: time.sleep(8)))
    begin = time.monotonic()
    return failure(lambda: LONG.fit(task)), time.monotonic() - begin


def resumed(name, path, stop):
    """A training that goes on from a checkpoint and ends, or stops, at a record."""

    def work(rank, count):
        def watch(record):
            if record.iteration == stop:
                raise KeyboardInterrupt

        task = level_set_part(rank, count, N, SHARES[count])
        task.watch = watch
        mine = path if rank == 0 else path.with_name("elsewhere")  # other machines have no such file
        checkpoints = Checkpoints(mine, every=3, resume=True)
        return fitted(replace(STOPPED[name], checkpoints=checkpoints, keep_interrupted=True), task)

    return work


def resumed_estimator(path, max_iter):
    """The same by an estimator, whose scaling depends, in its last digits, on the number of processes."""

    def work(rank, count):
        X, _ = make_level_set(N, random_state=0)
        begin, end = borders(N, rank, count, SHARES[count])
        options = {"n_layers": 2, "width": 4, "random_state": 3, "dtype": "float64", "solver": "bfgs", "tol": 0.0}
        options |= PLAIN
        estimator = FractionalRegressor(
            max_iter=max_iter, checkpoint_path=path, checkpoint_every=1, resume=True, **options
        )
        estimator.fit(X[begin:end], (X[:, 0] * X[:, 1])[begin:end], np.linspace(1, 2, N)[begin:end])
        return parameters(estimator.network_), estimator.history_.to_dict()

    return work


def killed(path, training, doomed, moment, seconds=None):
    """A training that goes on from its checkpoint, of which a rank is killed at a record, or after so many seconds."""

    def work(rank, count):
        def watch(record):
            if rank == doomed and record.iteration == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        task = level_set_part(rank, count, N)
        task.watch = watch
        if rank == doomed and seconds is not None:
            Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return fitted(replace(training, checkpoints=Checkpoints(path, every=3, resume=True)), task)

    return work


def run_killed(folder):
    """Two kills of each training, started again each time."""
    for name in STOPPED:
        work = killed(folder / f"{name}-whole.ckpt", STOPPED[name], None, None)
        assert run_group(2, work, folder / f"{name}-whole") == [0, 0]
        for life, (doomed, moment) in enumerate([(1, 5), (0, 7), (None, None)]):
            work = killed(folder / f"{name}.ckpt", STOPPED[name], doomed, moment)
            codes = run_group(2, work, folder / f"{name}-{life}")
            assert codes == [-signal.SIGKILL if rank == doomed else 0 if doomed is None else 1 for rank in range(2)]


def run_kills(folder):
    """Many kills at random moments; a training that ends before its kill ends the row of them."""
    training, chosen = AdamTraining(0.02, 8, 400), random.Random(7)
    assert run_group(2, killed(folder / "whole.ckpt", training, None, None), folder / "whole") == [0, 0]
    for life in range(26):
        doomed = chosen.randrange(2) if life < 25 else None
        work = killed(folder / "killed.ckpt", training, doomed, None, chosen.uniform(0.0, 0.5))
        codes = run_group(2, work, folder / str(life))
        assert doomed is None or codes[doomed] == -signal.SIGKILL, f"the training ended after {life} kills"


def run_equal(folder, counts=(1, 3)):
    torch.save(shuffled(), folder / "shuffled.pt")
    return [run_group(count, trained, folder / str(count)) for count in counts]


def run_more(folder):
    return run_equal(folder, (1, 2, 4))


def run_framed(folder, counts=(1, 3)):
    return [run_group(count, framed, folder / str(count)) for count in counts]


def run_framed_by_two(folder):
    return run_framed(folder, (1, 2))


def run_faults(folder):
    return [
        run_group(2, other_settings, folder / "other"),
        run_group(3, disturbed, folder / "disturbed"),
        run_group(3, hanging, folder / "hanging", timeout=1.5),
    ]


def run_resumed(folder):
    codes = []
    for name in STOPPED:
        codes.append(run_group(1, resumed(name, folder / f"{name}-whole.ckpt", None), folder / f"{name}-whole"))
        for count, stop in ((2, 5), (3, 9), (1, None)):
            codes.append(run_group(count, resumed(name, folder / f"{name}.ckpt", stop), folder / f"{name}-{count}"))
    codes.append(run_group(1, resumed_estimator(folder / "whole.ckpt", 12), folder / "estimator-whole"))
    for count, limit in ((2, 4), (3, 8), (1, 12)):
        codes.append(run_group(count, resumed_estimator(folder / "parts.ckpt", limit), folder / f"estimator-{count}"))
    return codes


RUNS = {
    "equal": run_equal,
    "more": run_more,
    "framed": run_framed,
    "framed by two": run_framed_by_two,
    "faults": run_faults,
    "resumed": run_resumed,
    "killed": run_killed,
    "kills": run_kills,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    estimated(0, 1)  # so that the others find all imported and compiled
    for name in sys.argv[2:]:
        (Path(sys.argv[1]) / name).mkdir()
        codes = RUNS[name](Path(sys.argv[1]) / name) or []
        assert not any(code for group in codes for code in group), codes
