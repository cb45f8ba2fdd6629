"""Two at once: threads compute what each computes alone, and processes that write one file leave a whole one."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import fracdnn
from fracdnn.container import read_document
from fracdnn.datasets import make_level_set
from fracdnn.nn import FractionalNetwork, FractionalStack
from tests.campaign.budget import cases, full, say_tried, seed_of
from tests.campaign.test_kills import same

ROOT = Path(__file__).parents[2]


def network(chosen):
    """A pass and its gradients of a random network, twice, as one list of tensors."""
    n_features = chosen.randint(1, 20)
    options = {
        "n_layers": chosen.randint(1, 60),
        "order": chosen.choice([1.0, chosen.uniform(0.05, 0.95)]),
        "width": chosen.choice([None, chosen.randint(1, 24)]),
        "activation": chosen.choice(["tanh", "relu", "gelu"]),
        "compress": chosen.choice(["auto", False, True]),
    }
    options["learn_order"] = options["order"] < 1 and chosen.choice([False, False, True])
    generator = torch.Generator().manual_seed(chosen.randrange(2**31))
    net = FractionalNetwork(n_features, 3, generator=generator, **options)
    net = net.to(chosen.choice([torch.float32, torch.float64]))
    x = torch.randn(chosen.randint(1, 70), n_features, generator=generator).to(net.W.dtype)
    found = []
    for _ in range(2):
        net.zero_grad()
        out = net(x)
        out.square().mean().backward()
        found += [out.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]
    return found


def stack(chosen):
    """The same of a stack, whose memory may be long enough for the compiled sums."""
    width, n_layers = chosen.randint(1, 30), chosen.randint(2, 150)
    dtype = chosen.choice([torch.float32, torch.float64])
    options = {"order": chosen.uniform(0.05, 0.95), "compress": chosen.choice([False, True])}
    layers = FractionalStack([torch.nn.Tanh() for _ in range(n_layers)], **options)
    generator = torch.Generator().manual_seed(chosen.randrange(2**31))
    x = torch.randn(chosen.randint(1, 40), width, generator=generator).to(dtype).requires_grad_()
    out = layers(x)
    out.sum().backward()
    return [out.detach(), x.grad]


def equation(chosen):
    order = torch.tensor(chosen.uniform(0.1, 0.9), dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0.0, 1.0, chosen.randint(2, 300), dtype=torch.float64)
    y0 = torch.full((chosen.randint(1, 9),), chosen.random(), dtype=torch.float64)
    found = fracdnn.fdeint(lambda _, y: -y, y0, t, order=order)
    found[-1].sum().backward()
    return [found.detach(), order.grad]


def estimator(chosen):
    """A small training, saved nowhere."""
    X, y = make_level_set(chosen.randint(20, 80), random_state=chosen.randrange(2**31))
    options = {"n_layers": chosen.randint(1, 10), "width": chosen.choice([None, 8]), "max_iter": 4}
    options |= {"optimizer": chosen.choice(["lbfgs", "bfgs", "adam"]), "order": chosen.uniform(0.1, 1.0)}
    model = fracdnn.FractionalClassifier(**options, activation="tanh", random_state=chosen.randrange(2**31))
    return [torch.from_numpy(model.fit(X, y).predict_proba(X))]


WORK = (network, network, stack, equation, estimator)


def work(seed):
    chosen = random.Random(seed)
    return chosen.choice(WORK)(chosen)


def in_threads(*functions):
    """What the functions give, each called in a thread of its own, begun together; what one raises is raised."""
    begin, found = threading.Barrier(len(functions)), [None] * len(functions)

    def run(k):
        begin.wait()
        try:
            found[k] = functions[k]()
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


@pytest.fixture
def one_thread_each():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread_each")
@pytest.mark.parametrize("shard", range(cases(1, 4)))
def test_threads_give_what_each_gives_alone(shard):
    """Two threads, each with a list of tasks of its own; alone afterwards, so that caches are first filled by both."""
    each, seed = cases(4, 150), seed_of(f"threads {shard}")
    lists = [[f"{seed} {thread} {k}" for k in range(each)] for thread in range(2)]
    together = in_threads(*(lambda seeds=seeds: [work(s) for s in seeds] for seeds in lists))
    say_tried(f"threads, shard {shard}", 2 * each)
    for seeds, found in zip(lists, together, strict=True):
        for one, ours in zip(seeds, found, strict=True):
            alone = work(one)
            assert len(alone) == len(ours)
            equal = all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(alone, ours, strict=True))
            assert equal, f"work({one!r}) gives something else beside another thread"


@pytest.mark.usefixtures("one_thread_each")
def test_one_model_predicts_for_several_threads():
    """As in a server: batches of many sizes, so that each thread makes routes of its own."""
    X, y = make_level_set(400, random_state=0)
    chosen = random.Random(seed_of("server"))
    for optimizer in ("lbfgs", "adam"):
        model = fracdnn.FractionalClassifier(optimizer=optimizer, max_iter=3, n_layers=12, width=8, random_state=0)
        model.fit(X, y)
        sizes = [[chosen.randint(1, 60) for _ in range(cases(10, 500))] for _ in range(3)]
        found = in_threads(*(lambda s=s, m=model: [m.predict_proba(X[:n]) for n in s] for s in sizes))
        for wanted, ours in zip(sizes, found, strict=True):
            for n, answer in zip(wanted, ours, strict=True):
                np.testing.assert_array_equal(answer, model.predict_proba(X[:n]))
    say_tried("predictions in three threads", 2 * sum(map(len, sizes)))


SAVE = """
import os, sys, time
import fracdnn
from fracdnn.datasets import make_level_set

X, y = make_level_set(60, random_state=0)
path, until = sys.argv[1], float(sys.argv[2])
fracdnn.FractionalClassifier(max_iter=1).fit(X, y)  # imports all
kind = int(os.fork() == 0)  # from here on there are two
options = {"n_layers": 2 + 6 * kind, "width": 4 + 8 * kind, "max_iter": 3, "random_state": kind}
model = fracdnn.FractionalClassifier(**options).fit(X, y)
model.save(f"{path}.alone{kind}")
model.fit(X, y)  # the same again
os.write(1, b"ready\\n")
os.read(0, 3)
count, end = 0, time.monotonic() + until
while time.monotonic() < end:
    model.save(path)
    count += 1
os.write(1, b"%d\\n" % count)
if not kind:
    assert os.wait()[1] == 0
"""


@pytest.mark.skipif(not full(), reason="starts processes that import everything: only in the full campaign")
def test_two_processes_save_one_model(tmp_path):
    """While they do, and when they are done, the file is one of the two."""
    path, seconds = tmp_path / "model.fracdnn", 10.0
    command = [sys.executable, "-c", SAVE, str(path), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    alone = [read_document(f"{path}.alone{kind}", "model") for kind in range(2)]
    process.stdin.write("go\n" * 2)
    process.stdin.flush()
    read = 0
    while process.poll() is None:
        if path.exists():
            found = read_document(path, "model")
            assert any(same(found, each) for each in alone)
            read += 1
    written = [int(count) for count in process.communicate()[0].split()]
    say_tried("one model file by two processes", sum(written))
    assert process.returncode == 0
    assert len(written) == 2
    assert all(written)
    assert read
    assert any(same(read_document(path, "model"), each) for each in alone)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, f"{path.name}.alone0", f"{path.name}.alone1"]


def begun(*command, **environment):
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.mark.skipif(not full(), reason="starts three processes that import everything: only in the full campaign")
def test_two_trainings_write_one_run(tmp_path):
    """The folder holds the model of one of them, and the rows that it held out."""
    X, y = make_level_set(80, random_state=0)
    rows = "\n".join(f"{a},{b},{label}" for (a, b), label in zip(X, y, strict=True))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}", encoding="utf-8")
    command = [sys.executable, "-m", "fracdnn", "train", str(tmp_path / "t.csv"), "--target", "y", "--quiet"]
    command += ["--max-iter", "5", "--width", "4", "--run"]
    processes = [begun(*command, str(tmp_path / "run")) for _ in range(2)]
    complaints = [process.communicate()[1] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes in ([0, 0], [0, 1]), complaints  # one after the other, or one is refused
    assert codes == [0, 0] or "is in use by the training of" in "".join(complaints)
    alone = begun(*command, str(tmp_path / "alone"))
    alone.communicate()
    say_tried("one run by two processes", 2)
    ours, theirs = (read_document(tmp_path / each / "model.fracdnn", "model") for each in ("run", "alone"))
    assert same(ours, theirs)
    assert (tmp_path / "run" / "held-out.csv").read_bytes() == (tmp_path / "alone" / "held-out.csv").read_bytes()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["held-out.csv", "model.fracdnn"]
