"""Networks that are trained side by side come to what each comes to alone; alone on the CPU, wherever they are.

On a GPU the rate of torch's Adam has seven digits.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fracdnn.container import read_document
from fracdnn.exceptions import FileContentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    Objective,
    Regularization,
    Task,
)
from fracdnn.training.stacked import StackedNetworks, can_stack
from tests.slow import slow_but

DECAY = Regularization(decay_output=1e-3, decay=2e-3)


on_devices = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
    ],
)


def tasks_of(n_tasks=3, n=61, loss="cross_entropy", dtype=torch.float64, held_out=True, device="cpu", **options):
    """Tasks on the same samples, each with a network, a generator and held-out rows of its own."""
    drawn = torch.Generator().manual_seed(7)
    x = torch.randn(n, 4, generator=drawn, dtype=dtype)
    weight = torch.rand(n, generator=drawn, dtype=dtype) + 0.5
    target = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    if loss == "squared_error":
        target = torch.stack([x[:, 0] ** 2, x[:, 1]], 1)
    n_outputs = 3 if loss == "cross_entropy" else 2
    objective = Objective(loss, DECAY, 0.1 if loss == "cross_entropy" else 0.0)
    options = {"n_layers": 3, "order": 0.5, "width": 6, "step_size": 0.5, "activation": "silu", **options}
    tasks = []
    for number in range(n_tasks):
        generator = torch.Generator().manual_seed(number)
        network = FractionalNetwork(4, n_outputs, activate_input=True, generator=generator, **options).to(dtype)
        network, *data = (each.to(device) for each in (network, x, target, weight))
        task = Task(network, objective, *data, generator)
        task.held_out = torch.arange(number, n, n_tasks + 1) if held_out else None
        tasks.append(task)
    return tasks


def outputs_of(tasks):
    with torch.no_grad():
        return torch.stack([task.network(task.x).cpu() for task in tasks])


STOPPING = EarlyStopping(0.2, n_iter_no_change=4)
SIDE_BY_SIDE = [
    (options, loss)
    for options in ({}, {"learn_order": True}, {"order": 1.0}, {"order": 0.9, "n_layers": 7}, {"activation": "tanh"})
    for loss in ("cross_entropy", "squared_error")
]


@on_devices
@pytest.mark.parametrize(
    ("options", "loss"),
    slow_but(
        [({"learn_order": True}, "cross_entropy"), ({"order": 0.9, "n_layers": 7}, "squared_error")], SIDE_BY_SIDE
    ),
    ids=str,
)
@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-11), pytest.param(torch.float32, 2e-4, marks=pytest.mark.slow)]
)
def test_same_as_alone(loss, options, dtype, close, device):
    training = AdamTraining(0.02, batch_size=16, max_epochs=15, early_stopping=STOPPING)
    together, alone = (tasks_of(loss=loss, dtype=dtype, device=each, **options) for each in (device, "cpu"))
    assert can_stack(together)
    histories = training.fit_all(together)
    expected = [training.fit(task) for task in alone]
    torch.testing.assert_close(outputs_of(together), outputs_of(alone), rtol=close, atol=close)
    for found, wanted in zip(histories, expected, strict=True):
        assert found.status == wanted.status
        assert len(found.records) == len(wanted.records)
        for name in ("loss", "validation_score", "gradient_norm", "accuracy"):
            if wanted.column(name)[0] is not None:
                np.testing.assert_allclose(found.column(name), wanted.column(name), rtol=50 * close, atol=50 * close)


@on_devices
def test_networks_with_other_numbers_of_batches_stop_where_they_have_none(device):
    # 48 of 61 rows are three batches of 16, 47 too, but 49 are four.
    training = AdamTraining(0.02, batch_size=16, max_epochs=5, early_stopping=STOPPING)
    together, alone = tasks_of(2, device=device), tasks_of(2)
    for first, second in (together, alone):
        first.held_out, second.held_out = torch.arange(13), torch.arange(12)
    histories = training.fit_all(together)
    expected = [training.fit(task) for task in alone]
    torch.testing.assert_close(outputs_of(together), outputs_of(alone), rtol=1e-12, atol=1e-12)
    for found, wanted in zip(histories, expected, strict=True):
        np.testing.assert_allclose(found.column("gradient_norm"), wanted.column("gradient_norm"), rtol=1e-10)


@on_devices
def test_one_that_stops_early_leaves_the_others_as_they_are(device):
    training = AdamTraining(0.05, batch_size=16, max_epochs=60, early_stopping=EarlyStopping(0.2, n_iter_no_change=2))
    together, alone = tasks_of(4, device=device), tasks_of(4)
    lengths = {len(history.records) for history in training.fit_all(together)}
    for task in alone:
        training.fit(task)
    assert len(lengths) > 1
    torch.testing.assert_close(outputs_of(together), outputs_of(alone), rtol=1e-10, atol=1e-10)


def test_networks_own_their_parameters_afterwards():
    tasks = tasks_of(2)
    AdamTraining(0.02, 16, 2).fit_all(tasks)
    before = outputs_of(tasks)
    with torch.no_grad():
        tasks[0].network.W.zero_()
    assert not torch.equal(outputs_of(tasks)[0], before[0])
    assert torch.equal(outputs_of(tasks)[1], before[1])


@on_devices
def test_a_network_that_leaves_what_is_finite_is_kept_as_it_was(device):
    tasks = tasks_of(2, held_out=False, device=device)
    with torch.no_grad():
        tasks[0].network.W.fill_(1e308)
    before = {name: value.clone() for name, value in tasks[0].network.state_dict().items()}
    bad, good = AdamTraining(0.02, 16, 3).fit_all(tasks)
    assert bad.status == "not finite"
    assert (good.status, len(good.records)) == ("epoch limit", 3)
    for name, value in tasks[0].network.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_what_cannot_be_stacked_is_said():
    tasks = tasks_of(2)
    assert can_stack(tasks)
    assert not can_stack([tasks[0], *tasks_of(1, width=7)])
    assert not can_stack(tasks_of(2, bias="scalar"))
    assert not can_stack(tasks_of(2, order=[0.5, 0.6, 0.7]))
    assert not can_stack([replace(task, weight=None) for task in tasks])
    tasks[1].network.b.requires_grad_(False)
    assert not can_stack(tasks)
    tasks[1].network.b.requires_grad_(True)
    rough = [
        replace(task, objective=replace(task.objective, regularization=Regularization(decay_bias=1.0)))
        for task in tasks
    ]
    assert not can_stack(rough)


@pytest.mark.parametrize("options", [{"bias": "scalar"}, {"order": [0.5, 0.6, 0.7]}], ids=str)
def test_what_cannot_be_stacked_is_trained_by_the_same_loop(options):
    training = AdamTraining(0.02, batch_size=16, max_epochs=6, early_stopping=STOPPING)
    together, alone = tasks_of(**options), tasks_of(**options)
    assert training.fit_all(together) == [training.fit(task) for task in alone]
    assert torch.equal(outputs_of(together), outputs_of(alone))


def test_line_searches_train_several_in_turn_and_resume_as_one(tmp_path):
    training = FullBatchTraining("bfgs", max_iter=12, early_stopping=EarlyStopping(0.2, n_iter_no_change=12))
    points = Checkpoints(tmp_path / "all.ckpt", every=3, resume=True)
    together, alone, cut = tasks_of(3), tasks_of(3), tasks_of(3)
    expected = [training.fit(task) for task in alone]
    assert training.fit_all(together) == expected
    cut[1].watch = lambda record: signal.raise_signal(signal.SIGINT) if record.iteration == 7 else None
    histories = replace(training, checkpoints=points, keep_interrupted=True).fit_all(cut)
    assert [len(history.records) for history in histories] == [12, 7, 0]
    resumed = tasks_of(3)
    assert replace(training, checkpoints=points).fit_all(resumed) == expected
    assert torch.equal(outputs_of(resumed), outputs_of(alone))


def test_stacked_outputs_and_gradients():
    networks = [task.network for task in tasks_of(3, learn_order=True)]
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    pairs = zip(networks, x, strict=True)
    expected = [torch.autograd.grad(net(part).square().sum(), list(net.parameters())) for net, part in pairs]
    stack = StackedNetworks(networks)
    stack.back(2.0 * stack(x))
    for place in range(3):
        for gradient, wanted in zip(stack.gradients, expected[place], strict=True):
            torch.testing.assert_close(gradient[place], wanted, rtol=1e-11, atol=1e-11)


def test_interrupted_ones_are_usable_and_their_checkpoint_goes_on(tmp_path):
    def watch(record):
        if record.iteration == 7:
            raise KeyboardInterrupt

    whole = AdamTraining(0.02, 16, 12, early_stopping=EarlyStopping(0.2, n_iter_no_change=12))
    points = Checkpoints(tmp_path / "all.ckpt", every=3)
    cut, expected = tasks_of(), tasks_of()
    cut[0].watch = watch
    histories = replace(whole, checkpoints=points, keep_interrupted=True).fit_all(cut)
    assert {history.status for history in histories} == {"interrupted"}
    resumed = tasks_of()
    replace(whole, checkpoints=replace(points, resume=True)).fit_all(resumed)
    whole.fit_all(expected)
    assert torch.equal(outputs_of(resumed), outputs_of(expected))


def test_time_ends_all_of_them():
    tasks = tasks_of()
    histories = AdamTraining(0.02, 16, 100_000, max_time=0.2).fit_all(tasks)
    assert {history.status for history in histories} == {"time limit"}
    assert len({len(history.records) for history in histories}) == 1


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    points = Checkpoints(tmp_path / "all.ckpt", every=1)
    training = AdamTraining(0.02, 16, 2, early_stopping=STOPPING, checkpoints=points)
    training.fit_all(tasks_of(3))
    going_on = replace(training, checkpoints=replace(points, resume=True))
    with pytest.raises(FileContentError, match="checkpoint of 4 members, got one of 3"):
        going_on.fit_all(tasks_of(4))
    with pytest.raises(FileContentError, match="other settings"):
        replace(going_on, batch_size=8).fit_all(tasks_of(3))
    with pytest.raises(FileContentError, match="other network"):
        going_on.fit_all(tasks_of(3, width=5))


KILLED = """
import os, signal, sys
from dataclasses import replace
from fracdnn.training import AdamTraining, Checkpoints, EarlyStopping
from tests.training.test_side_by_side import tasks_of

def watch(record):
    if record.iteration == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

tasks = tasks_of(4)
tasks[2].watch = watch
points = Checkpoints(sys.argv[1], every=2, resume=True)
AdamTraining(0.05, 16, 30, early_stopping=EarlyStopping(0.2, 3), checkpoints=points).fit_all(tasks)
"""


@pytest.mark.slow  # `test_checkpoints.py` kills one network's training, and the interruption above resumes several
def test_killed_twice_and_resumed_ends_at_the_same_bits(tmp_path):
    path = tmp_path / "all.ckpt"
    for moment in ("3", "6"):
        command = [sys.executable, "-c", KILLED, str(path), moment]
        assert subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode == -signal.SIGKILL
    assert len(read_document(path, "checkpoint")["members"]) == 4
    resumed, expected = tasks_of(4), tasks_of(4)
    training = AdamTraining(0.05, 16, 30, early_stopping=EarlyStopping(0.2, n_iter_no_change=3))
    points = Checkpoints(path, every=2, resume=True)
    histories = replace(training, checkpoints=points).fit_all(resumed)
    wanted = training.fit_all(expected)
    assert torch.equal(outputs_of(resumed), outputs_of(expected))
    assert [history.to_dict() for history in histories] == [history.to_dict() for history in wanted]
