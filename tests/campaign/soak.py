"""`python -m tests.campaign.soak --minutes 60 --output soak.csv`: one process that works without end; does it grow?

It trains, predicts, saves, loads and reads, with other shapes, depths, orders and seeds each time, so that a cache that
never forgets would show. Every half minute it notes its memory, tensors, objects, files and threads. At the end it
prints how fast each of them grew in the last two thirds of the time: exit code 1 where anything did.
"""

import argparse
import csv
import ctypes
import gc
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import torch

import fracdnn
from fracdnn.estimators.table_model import TableModel
from fracdnn.nn import FractionalNetwork, FractionalStack
from fracdnn.tables.reading import read_table
from fracdnn.tables.targets import split_target, target_values, task_of

# What each may grow by in an hour and still count as steady: the allocator's and the interpreter's own restlessness.
ALLOWED_AN_HOUR = {"rss_mb": 20.0, "tensors": 10.0, "objects": 2000.0, "files": 0.5, "threads": 0.5}


def estimators(draw, folder):
    """Classifier or regressor by any optimizer, saved and loaded: the same predictions."""
    rng = np.random.default_rng(draw.randrange(2**32))
    X = rng.normal(size=(draw.randint(20, 200), draw.randint(1, 8)))
    optimizer = draw.choice(["bfgs", "lbfgs", "adam"])
    options = {
        "n_layers": draw.randint(1, 6 if optimizer == "bfgs" else 40),  # its matrix has the square of the parameters
        "width": draw.choice([None, 4, 9, 17]),
        "order": draw.uniform(0.05, 1.0),
        "learn_order": draw.random() < 0.3,
        "activation": draw.choice(["tanh", "gelu", "relu"]),
        "dtype": draw.choice(["float32", "float64"]),
        "optimizer": optimizer,
        "max_iter": draw.randint(1, 6),
        "random_state": draw.randrange(2**31),
        "checkpoint_path": draw.choice([None, folder / "run.ckpt"]),
    }
    if draw.random() < 0.5:
        model = fracdnn.FractionalClassifier(**options).fit(X, rng.permutation(np.arange(len(X)) % draw.randint(2, 5)))
    else:
        model = fracdnn.FractionalRegressor(**options).fit(X, rng.normal(size=(len(X), draw.randint(1, 3))))
    loaded = fracdnn.load(model.save(folder / "model.fracdnn"))
    if not np.array_equal(loaded.predict(X), model.predict(X)):
        raise AssertionError(f"a loaded model predicts something else: {options}")


def stacks(draw, folder):
    """Any layers with memory, exact or compressed, trained a little."""
    width, n_layers = draw.randint(1, 40), draw.randint(1, 300)
    options = {"order": draw.uniform(0.05, 1.0), "step_size": draw.uniform(0.05, 0.5)}
    options["learn_order"] = draw.choice([False, False, True])
    options["compress"] = draw.choice(["auto", False, True])
    layer = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh())
    stack = FractionalStack([layer] * n_layers, **options)
    optimizer = torch.optim.Adam(stack.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        stack(torch.randn(draw.randint(1, 30), width)).square().mean().backward()
        optimizer.step()


def networks(draw, folder):
    """The paper's network with an order that is learned, for all layers or for each."""
    n_features = draw.randint(1, 30)
    options = {
        "n_layers": draw.randint(1, 60),
        "order": draw.uniform(0.05, 0.95),
        "bias": draw.choice(["scalar", True]),
    }
    net = FractionalNetwork(n_features, 2, learn_order=draw.choice([True, "layer"]), **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(3):  # batches of other sizes, each with a route of its own
        optimizer.zero_grad()
        net(torch.randn(draw.randint(1, 50), n_features)).square().mean().backward()
        optimizer.step()


def equations(draw, folder):
    """An order fitted to a solution, on equal and unequal times."""
    order = torch.tensor(draw.uniform(0.1, 0.9), dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0.0, draw.uniform(0.5, 2.0), draw.randint(2, 400), dtype=torch.float64)
    t = t if draw.random() < 0.5 else t**1.5
    y0 = torch.rand(draw.randint(1, 20), dtype=torch.float64)
    fracdnn.fdeint(lambda _, y: -y, y0, t, order=order)[-1].sum().backward()
    fracdnn.fdeint(lambda _, y: -y, y0, t, order=float(order), trajectory=False)


def tables(draw, folder):
    """A table written, read, prepared and learned from; the model of it saved and loaded."""
    n, rng = draw.randint(20, 150), np.random.default_rng(draw.randrange(2**32))
    columns = {f"x{k}-{draw.randrange(1000)}": rng.normal(size=n) for k in range(draw.randint(1, 5))}
    words = [f"w{draw.randrange(10**6)}" for _ in range(3)]
    table = pl.DataFrame({**columns, "kind": [words[k] for k in rng.integers(3, size=n)], "y": rng.integers(2, size=n)})
    ending = draw.choice([".csv", ".csv", ".parquet"])
    path = folder / f"table{ending}"
    table.write_csv(path) if ending == ".csv" else table.write_parquet(path)
    features, values, _ = split_target(read_table(str(path)), "y")
    y = target_values(values, task_of(values))
    estimator = fracdnn.FractionalClassifier(max_iter=2, width=5, random_state=0).fit(features, y)
    TableModel(estimator, "y", {}).save(folder / "table.fracdnn")
    fracdnn.load(folder / "table.fracdnn").predict(features)


WORK = (estimators, stacks, networks, equations, tables)


def sample():
    # safetensors makes a pointer type for each size of a tensor, and ctypes before Python 3.14 keeps it, some 5 kB, for
    # ever. That is known, and not counted.
    for kind in [each for each in ctypes._pointer_type_cache if isinstance(each, type(ctypes.c_ubyte * 1))]:
        del ctypes._pointer_type_cache[kind]
    gc.collect()
    objects = gc.get_objects()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
        "tensors": sum(isinstance(each, torch.Tensor) for each in objects),
        "objects": len(objects),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208, as one of them is that of the listing
        "threads": int(status["Threads"]),
    }


def soak(minutes, output, seed, every=30.0):
    """Samples with the time and the number of rounds done, written as they come."""
    draw, samples, start = random.Random(seed), [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder, output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["minutes", "rounds", *ALLOWED_AN_HOUR])
        writer.writeheader()
        rounds, due = 0, start
        while time.monotonic() < start + 60 * minutes or len(samples) < 4:
            draw.choice(WORK)(draw, Path(folder))
            rounds += 1
            if time.monotonic() >= due:
                due += every
                samples.append({"minutes": (time.monotonic() - start) / 60, "rounds": rounds, **sample()})
                writer.writerow(samples[-1])
                file.flush()
    return samples


def growth(samples):
    """Each measure's slope in an hour, by least squares over the last two thirds, and whether that is growth.

    Growth is more than allowed, and more than the measure's own noise: twice the slope's standard error.
    """
    late = samples[len(samples) // 3 :]
    hours = np.array([each["minutes"] for each in late]) / 60
    found = {}
    for name, allowed in ALLOWED_AN_HOUR.items():
        values = np.array([each[name] for each in late], dtype=np.float64)
        centred = hours - hours.mean()
        slope = centred @ values / (centred @ centred)
        rest = values - values.mean() - slope * centred
        error = np.sqrt(rest @ rest / max(1, len(late) - 2) / (centred @ centred))
        found[name] = (slope, error, slope - 2 * error > allowed)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--output", type=Path, default=Path("soak.csv"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    warnings.simplefilter("ignore")
    samples = soak(given.minutes, given.output, given.seed, every=min(30.0, 2.0 * given.minutes))
    last = samples[-1]
    print(f"{last['rounds']} rounds in {last['minutes']:.1f} minutes, {len(samples)} samples, seed {given.seed}")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    grown = growth(samples)
    for name, (slope, error, grows) in grown.items():
        print(f"{name:>8}: {slope:+10.2f} ± {error:.2f} an hour {'GROWS' if grows else 'steady'}")
    sys.exit(any(grows for _, _, grows in grown.values()))


if __name__ == "__main__":
    main()
