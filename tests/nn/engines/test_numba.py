"""The small network's kernel against the definition: values, gradients and losses, on odd sizes and several threads."""

import functools
import os
import signal
import threading

import numpy as np
import pytest
import torch
from torch.nn import functional

from fracdnn.caputo import l1_weights
from fracdnn.kernels.codes import LOSSES
from fracdnn.memory import ExactPlan, MemorylessPlan, reference
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import Loss
from fracdnn.nn.engines.numba_network import NumbaLayers
from tests.slow import each_once

pytest.importorskip("numba", reason="the compiled pass needs Numba")

BIASES = (True, "scalar", False)
DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}
SIGMA = {"tanh": torch.tanh, "relu": torch.relu}


@functools.lru_cache
def memory(n_layers, order):
    """H of the definition, Y_j = Σ_k H_jk Y_k + …: a_{j−1} for Y_0, a_{j−k−1} − a_{j−k} for the others."""
    if order == 1.0:
        return torch.eye(n_layers, dtype=torch.float64)
    a = torch.as_tensor(l1_weights(order, n_layers + 1), dtype=torch.float64)
    matrix = torch.zeros(n_layers, n_layers, dtype=torch.float64)
    for j in range(1, n_layers + 1):
        matrix[j - 1, 0] = a[j - 1]
        for k in range(1, j):
            matrix[j - 1, k] = a[j - k - 1] - a[j - k]
    return matrix


class Case:
    """A network and its samples, and what the definition makes of them."""

    def __init__(self, n, width, n_layers, dtype, *, order=0.5, bias=True, activation="tanh", n_outputs=3):
        self.generator = torch.Generator().manual_seed(n + 100 * width + 10_000 * n_layers)
        self.dtype, self.n, self.n_outputs, self.activation = dtype, n, n_outputs, activation
        self.y, self.cotangent = self.draw(n, width), self.draw(n, width)
        self.K = self.draw(n_layers, width, width) / width**0.5
        shapes = {True: (n_layers, width), "scalar": (n_layers,), False: None}
        self.b = None if shapes[bias] is None else 0.3 * self.draw(*shapes[bias])
        self.W = self.draw(n_outputs, width)
        self.factors = torch.linspace(0.1, 0.3, n_layers, dtype=torch.float64)
        self.matrix = memory(n_layers, order)
        self.plan = MemorylessPlan(self.factors) if order == 1.0 else ExactPlan(self.factors, self.matrix)
        self.bias = bias

    def layers(self, *, to_start=True):
        n_outputs, n_layers, width = self.n_outputs, len(self.factors), self.y.shape[1]
        architecture = Architecture(
            width, n_outputs, n_layers, width, to_start, "tanh", self.activation, self.bias, True, "dense", None
        )
        self.used = NumbaLayers(architecture, self.plan, Weights(self.K, self.b, self.W, None, None))
        return self.used

    def forward(self):
        return self.layers().forward(self.y)

    def gradients(self):
        layers = self.layers()
        layers.forward(self.y)
        return layers.back(self.cotangent)[:3]

    def loss(self, loss, *, to_start=True):
        found = self.layers(to_start=to_start).loss(self.y, self.W, loss)
        return found and (*found[:3], *found[3][:3])

    def draw(self, *shape):
        return torch.randn(shape, dtype=torch.float64, generator=self.generator).to(self.dtype)

    def last_state(self, y, K, b):
        def step(j, state):
            z = state @ K[j].T
            return SIGMA[self.activation](z if b is None else z + b[j])

        return reference.propagate(self.matrix, self.factors, step, y)[-1]

    def leaves(self, *tensors):
        return [None if each is None else each.detach().clone().requires_grad_() for each in tensors]

    def check(self):
        """`forward` and `gradients` against the definition."""
        y, K, b = self.leaves(self.y, self.K, self.b)
        expected = self.last_state(y, K, b)
        known = [each for each in (y, K, b) if each is not None]
        slopes = iter(torch.autograd.grad((expected * self.cotangent).sum(), known))
        agree(self.forward(), expected.detach())
        for mine, given in zip(self.gradients(), (y, K, b), strict=True):
            assert (mine is None) == (given is None)
            if mine is not None:
                agree(mine, next(slopes))

    def check_loss(self, kind, *, smoothing=0.0, weight=None):
        y, K, b, W = self.leaves(self.y, self.K, self.b, self.W)
        outputs = self.last_state(y, K, b) @ W.T
        if kind == "cross_entropy":
            target = torch.arange(self.n) % self.n_outputs
            losses = functional.cross_entropy(outputs, target, reduction="none", label_smoothing=smoothing)
        else:
            target = self.draw(self.n, self.n_outputs)
            losses = 0.5 * (outputs - target).square().mean(1)
        shares = torch.full((self.n,), 1 / self.n, dtype=self.dtype) if weight is None else weight / weight.sum()
        value = (shares * losses).sum()
        known = [each for each in (y, K, b, W) if each is not None]
        slopes = dict(zip(map(id, known), torch.autograd.grad(value, known), strict=True))
        for to_start in (True, False):
            loss = Loss(kind, target, weight, smoothing)
            found, results, *slopes_found = self.loss(loss, to_start=to_start)
            agree(torch.tensor(found, dtype=self.dtype), value.detach())
            agree(results, outputs.detach())
            assert [each is None for each in slopes_found] == [False, not to_start, False, b is None]
            for mine, given in zip(slopes_found, (W, y, K, b), strict=True):
                if mine is not None:
                    agree(mine, slopes[id(given)])


def agree(found, expected):
    assert found.shape == expected.shape
    assert found.dtype is expected.dtype
    tolerance = TOLERANCE[expected.dtype]
    assert (found - expected).norm() <= tolerance * expected.norm().clamp(min=1.0)


@pytest.mark.parametrize(("width", "n_layers", "dtype"), each_once([1, 2, 3, 7, 16], [35, 1, 2, 9], DTYPES))
def test_it_is_the_definition(width, n_layers, dtype):
    for n in (1, 2, 33, 73, 147):
        Case(n, width, n_layers, dtype).check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("order", "bias", "activation"), each_once([1.0, 0.9, 0.1], BIASES, ["tanh", "relu"]))
def test_orders_biases_and_activations(order, bias, activation, dtype):
    for n, width, n_layers in ((33, 3, 9), (2, 1, 1), (150, 7, 17)):
        Case(n, width, n_layers, dtype, order=order, bias=bias, activation=activation).check()


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(
    ("size", "dtype"), each_once([(1, 1, 1), (2, 2, 9), (75, 3, 2), (149, 7, 9), (63, 16, 35)], DTYPES)
)
def test_losses_on_odd_sizes(size, kind, dtype):
    n, width, n_layers = size
    for n_outputs in (1, 2, 5, 20):
        Case(n, width, n_layers, dtype, n_outputs=n_outputs).check_loss(kind)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(("bias", "order", "dtype"), each_once(BIASES, [1.0, 0.5], DTYPES[::-1]))
def test_losses_with_weights_and_smoothing(order, bias, kind, dtype):
    case = Case(63, 3, 9, dtype, order=order, bias=bias)
    case.check_loss(kind, weight=case.draw(63).abs() + 0.1)
    if kind == "cross_entropy":
        case.check_loss(kind, smoothing=0.2)
        case.check_loss(kind, smoothing=0.2, weight=case.draw(63).square())


def all_results(case):
    target = torch.arange(case.n) % case.n_outputs
    loss = case.loss(Loss("cross_entropy", target, None, 0.1))
    parts = [case.forward(), *case.gradients()]
    return [*parts, torch.tensor(loss[0]), *loss[1:]]


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_threads(torch_threads, dtype):
    torch_threads(1)
    case = Case(3000, 16, 35, dtype)
    first = all_results(case)
    assert case.used.threads_used == 1
    for count in (2, 3, 7):
        torch_threads(count)
        for _ in range(3):
            assert all(torch.equal(*pair) for pair in zip(all_results(case), first, strict=True))
        assert case.used.threads_used == count


def test_little_work_stays_on_one_thread(torch_threads):
    torch_threads(2)
    case = Case(31, 2, 2, torch.float64)
    all_results(case)
    assert case.used.threads_used == 1


@pytest.mark.parametrize("count", [1, 2])
def test_several_python_threads_at_a_time(torch_threads, count):
    torch_threads(count)
    case = Case(601, 16, 35, torch.float64)
    expected, found = all_results(case), []
    assert case.used.threads_used == count
    workers = [threading.Thread(target=lambda: found.extend(all_results(case) for _ in range(5))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 20
    assert all(torch.equal(mine, theirs) for each in found for mine, theirs in zip(each, expected, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_process_computes_the_same(torch_threads):
    """After a fork there are none of the parent's threads."""
    torch_threads(2)
    case = Case(601, 16, 35, torch.float64)
    expected = all_results(case)
    assert case.used.threads_used == 2
    child = os.fork()
    if not child:
        signal.alarm(60)  # what hangs ends
        try:
            same = all(torch.equal(*pair) for pair in zip(all_results(case), expected, strict=True))
            os._exit(0 if same and case.used.threads_used == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_results_are_not_overwritten_by_the_next_call():
    case = Case(33, 3, 9, torch.float64)
    first = all_results(case)
    kept = [each.clone() for each in first]
    case.y, case.cotangent = case.y + 1, case.cotangent - 1
    all_results(case)
    assert all(torch.equal(*pair) for pair in zip(first, kept, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [1.0, 0.5])
def test_what_memory_holds_before_does_not_matter(monkeypatch, order, dtype):
    case = Case(133, 3, 9, dtype, order=order)
    expected = all_results(case)
    room, made = torch.empty, []

    def poisoned(shape, kind):
        made.append(shape)
        return np.full(shape, np.nan, kind)

    monkeypatch.setattr(np, "empty", poisoned)
    case.plan._kept.clear()
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: room(*shape, **kind).fill_(torch.nan))
    assert all(torch.equal(*pair) for pair in zip(all_results(case), expected, strict=True))
    assert made


def test_tensors_need_not_be_contiguous():
    case = Case(33, 3, 9, torch.float64, order=0.3)
    expected = all_results(case)
    for name in ("y", "cotangent", "K", "b", "W"):
        tensor = getattr(case, name)
        setattr(case, name, tensor.transpose(0, -1).contiguous().transpose(0, -1))
        assert not getattr(case, name).is_contiguous()
    case.y = torch.complex(torch.zeros_like(case.y), -case.y).conj().imag
    assert case.y.is_neg()
    case.K.requires_grad_()
    assert all(torch.equal(*pair) for pair in zip(all_results(case), expected, strict=True))


def test_labels_without_an_output_and_states_that_are_not_finite_give_no_loss():
    case = Case(33, 3, 9, torch.float64)
    labels = torch.arange(33) % 3
    for wrong in (-1, 3, 2**40):
        changed = labels.clone()
        changed[20] = wrong
        loss = Loss("cross_entropy", changed, None, 0.0)
        assert case.loss(loss) is None
    for bad in (torch.nan, torch.inf):
        case.y[32, 1] = bad
        loss = Loss("cross_entropy", labels, None, 0.0)
        assert case.loss(loss) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("K", torch.zeros(9, 3, 3).double(), r"K must be \[9, 3, 3\], torch.float32.*got \[9, 3, 3\], torch.float64"),
        ("b", torch.zeros(9), r"b must be \[9, 3\].*got \[9\]"),
        ("cotangent", torch.zeros(33), r"cotangent must be \[33, 3\].*; pass it as the network has it"),
        ("W", torch.zeros(3, 4), r"W must be \[3, 3\].*got \[3, 4\]"),
        ("W", torch.zeros(3, 3, device="meta"), r"W must be .* on the CPU, got .* on meta"),
    ],
)
def test_a_wrong_shape_is_an_error(name, value, message):
    case = Case(33, 3, 9, torch.float32)
    setattr(case, name, value)
    with pytest.raises(ValueError, match=message):
        all_results(case)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("cross_entropy", torch.zeros(33)),
        ("cross_entropy", torch.zeros(33, dtype=torch.int32)),
        ("cross_entropy", torch.zeros(33, 3).long()),
        ("squared_error", torch.zeros(33)),
        ("squared_error", torch.zeros(33, 2)),
    ],
)
def test_a_wrong_target_is_an_error(kind, target):
    case = Case(33, 3, 9, torch.float32)
    with pytest.raises(ValueError, match="target must be"):
        case.loss(Loss(kind, target, None, 0.0))
