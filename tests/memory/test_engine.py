"""The fast sums and their backward pass against the definition."""

import gc
import os
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fracdnn.caputo import l1_step_factor, memory_matrix, memory_weights_on_grid
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory import (
    chain,
    choose_sum,
    equal_steps_weights,
    exact,
    general_weights,
    reference,
    run_chain,
    triton_sum,
)
from fracdnn.memory.choose_sum import choose_block, choose_compression
from fracdnn.memory.compressed import CompressedSum
from fracdnn.memory.exact import ExactSum
from fracdnn.memory.plan import MemorylessPlan, default_compress_tol
from fracdnn.memory.recomputation import segments
from fracdnn.tracing import versions
from tests.slow import each_once, slow_but

# Around the sizes of blocks; all orders at some depths, and those at the ends at all.
ORDERS = {
    **dict.fromkeys([1, 2, 3, 31, 33, 65, 130], (0.05, 0.1, 0.5, 0.9, 0.999)),
    **dict.fromkeys([32, 63, 64, 70, 128, 300], (0.05, 0.999)),
}
# Every sum, by name: what it is called, how it is asked for, and what must then run.
SUMS = {
    "exact": ({"compress": False}, ExactSum),
    "compressed": ({"compress": True, "sums": "torch"}, CompressedSum),
}
BLOCK = 8


def made_plan(sum_, order, step_size, n_layers, *, compress_tol=1e-10, block=BLOCK, dtype=torch.float64):
    """A plan that runs on the sum of this name, and no other."""
    options, kind = SUMS[sum_]
    plan = equal_steps_weights(order, step_size, n_layers, compress_tol=compress_tol, block=block, **options)
    state = torch.zeros(2, 3, dtype=dtype)
    assert type(plan.history_sum(state)) is kind
    assert type(plan.history_sum(state, n_layers)) is kind
    return plan


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relative(ours, theirs):
    return float(((ours - theirs).norm() / theirs.norm()).detach())


class Problem:
    """N layers tanh(y ⊙ k_j), a loss that weighs every entry differently, and what its gradient should be."""

    def __init__(self, order, n_layers, *, size=3, dtype=torch.float64):
        self.order = torch.tensor(order, dtype=torch.float64, requires_grad=True)
        self.step_size = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
        self.n_layers = n_layers
        self.slopes = (0.5 * numbers(n_layers, size, dtype=dtype)).requires_grad_()
        self.x = numbers(2, size, seed=1, dtype=dtype).requires_grad_()
        self.inputs = [self.x, self.slopes, self.order, self.step_size]

    def step(self, j, y):
        return torch.tanh(y * self.slopes[j])

    def loss(self, y):
        return (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)).sum()

    def by_definition(self):
        matrix = memory_matrix(self.order, self.n_layers)
        factors = l1_step_factor(self.order, self.step_size).expand(self.n_layers)
        return torch.stack(reference.propagate(matrix, factors, self.step, self.x))

    def plan(self, history, *, learned, **options):
        order, step_size = (self.order, self.step_size) if learned else (self.order.detach(), self.step_size.detach())
        options = {"compress_tol": default_compress_tol(self.x.dtype), "dtype": self.x.dtype, **options}
        return made_plan(history, order, step_size, self.n_layers, **options)


ALL_ORDERS = [(depth, order) for depth in ORDERS for order in ORDERS[depth]]
# At each depth one order, in turn; 300 layers take the definition seconds.
OFTEN = [(depth, ORDERS[depth][k % len(ORDERS[depth])]) for k, depth in enumerate(ORDERS) if depth < 300]


@pytest.mark.parametrize(("n_layers", "order"), slow_but(OFTEN, ALL_ORDERS))
def test_values_and_all_gradients_agree_with_the_definition(n_layers, order):
    """All sums in one test: the definition takes far longer than they do."""
    problem = Problem(order, n_layers)
    expected = problem.by_definition()[-1]
    gradients = torch.autograd.grad(problem.loss(expected), problem.inputs)
    for history in SUMS:
        for learned in (True, False):
            result = run_chain(problem.plan(history, learned=learned), problem.step, problem.x)
            assert relative(result, expected) <= 1e-10, (history, learned)
            inputs = problem.inputs[: 4 if learned else 2]
            for mine, theirs in zip(torch.autograd.grad(problem.loss(result), inputs), gradients, strict=False):
                assert relative(mine, theirs) <= 1e-10, (history, learned)


@pytest.mark.parametrize(("n_layers", "learned"), each_once([3, 31, 32, 33, 64, 100], [False, True]))
def test_the_larger_blocks_of_other_devices(n_layers, learned):
    problem = Problem(0.4, n_layers)
    plan = problem.plan("compressed", learned=learned, block=32)
    inputs = problem.inputs[: 4 if learned else 2]
    expected = problem.by_definition()[-1]
    theirs = torch.autograd.grad(problem.loss(expected), inputs)
    result = run_chain(plan, problem.step, problem.x)
    assert relative(result, expected) <= 1e-10
    for mine, other in zip(torch.autograd.grad(problem.loss(result), inputs), theirs, strict=True):
        assert relative(mine, other) <= 1e-10


@pytest.mark.parametrize(
    ("size", "n_layers"),
    slow_but(
        [*((3, n) for n in (31, 33, 65, 130)), (20_011, 33), (20_011, 65)], product((3, 20_011), (31, 33, 65, 130))
    ),
)
def test_single_precision_and_blocks_of_every_level(n_layers, size):
    """A state of 40,000 numbers takes all levels of blocks, one of 6 the single one."""
    problem = Problem(0.5, n_layers, size=size, dtype=torch.float32)
    expected = problem.by_definition()[-1]
    gradients = torch.autograd.grad(problem.loss(expected), problem.inputs[:2])
    for history in SUMS:
        result = run_chain(problem.plan(history, learned=False), problem.step, problem.x)
        assert relative(result, expected) <= 2e-6, history
        for mine, theirs in zip(torch.autograd.grad(problem.loss(result), problem.inputs[:2]), gradients, strict=True):
            assert relative(mine, theirs) <= 5e-6, history


@pytest.mark.parametrize(("n_layers", "way"), each_once([1, 8, 9, 32, 33, 130], [*product(SUMS, [BLOCK, 32])][::-1]))
def test_steps_that_are_computed_again(way, n_layers):
    """From positions of every sum, with the blocks of other devices too; against the same without."""
    history, block = way
    problem = Problem(0.3, n_layers)
    calls = [0] * n_layers

    def step(j, y):
        calls[j] += 1
        return problem.step(j, y)

    for learned in (True, False):
        inputs, found = problem.inputs[: 4 if learned else 2], []
        for checkpoint in (True, False):
            plan = problem.plan(history, learned=learned, block=block)
            result = run_chain(plan, step, problem.x, trajectory=True, checkpoint=checkpoint)
            found.append([result, *torch.autograd.grad(problem.loss(result), inputs)])
        for mine, theirs in zip(*found, strict=True):
            assert relative(mine, theirs) <= 1e-13, learned
    assert calls == [6] * n_layers


@pytest.mark.parametrize("history", slow_but(["compressed"], SUMS))
def test_the_number_of_threads_changes_nothing(history):
    problem = Problem(0.5, 70, size=10_007)
    plan, before, found = problem.plan(history, learned=False), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            result = run_chain(plan, problem.step, problem.x)
            found.append([result, *torch.autograd.grad(problem.loss(result), problem.inputs[:2])])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        for mine, theirs in zip(found[0], others, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("history", SUMS)
def test_a_forked_process_computes_too(history):
    """It has none of its parent's threads, which OpenMP does not know."""
    problem = Problem(0.5, 70, size=10_007)
    plan = problem.plan(history, learned=False)
    expected = run_chain(plan, problem.step, problem.x).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are about: that is what is tested
        child = os.fork()
    if not child:
        torch.set_num_threads(1)  # torch itself waits for ever otherwise
        plan_of_child = problem.plan(history, learned=False)
        with torch.no_grad():
            same = torch.equal(run_chain(plan_of_child, problem.step, problem.x), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("history", SUMS)
def test_nothing_is_read_that_was_not_written(history, monkeypatch):
    """Fresh memory is filled with NaN: no result may come from it."""
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda self, *size, **options: empty(self, *size, **options).fill_(float("nan"))
    )
    problem = Problem(0.4, 200, size=2500)
    result = run_chain(problem.plan(history, learned=True), problem.step, problem.x)
    for gradient in torch.autograd.grad(problem.loss(result), problem.inputs):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("history", SUMS)
def test_the_whole_trajectory_and_losses_on_parts_of_it(history):
    problem = Problem(0.3, 100)
    expected = problem.by_definition()
    for part in (slice(None), slice(0, 1), slice(40, 71), slice(7, 8)):
        result = run_chain(problem.plan(history, learned=True), problem.step, problem.x, trajectory=True)
        assert relative(result, expected) <= 1e-10
        ours = torch.autograd.grad(problem.loss(result[part]), problem.inputs, allow_unused=True)
        theirs = torch.autograd.grad(problem.loss(expected[part]), problem.inputs, retain_graph=True, allow_unused=True)
        for mine, other in zip(ours, theirs, strict=True):
            if float(other.norm()) == 0:
                assert mine is None or float(mine.norm()) == 0
            else:
                assert relative(mine, other) <= 1e-10


@pytest.mark.parametrize("history", SUMS)
def test_backward_twice_over_a_retained_graph(history):
    problem = Problem(0.5, 90)
    loss = problem.loss(run_chain(problem.plan(history, learned=True), problem.step, problem.x))
    first = torch.autograd.grad(loss, problem.inputs, retain_graph=True)
    # A pass that stops half-way must leave nothing behind.
    torch.autograd.grad(loss, problem.slopes, retain_graph=True)
    second = torch.autograd.grad(loss, problem.inputs)
    for one, two in zip(first, second, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("history", SUMS)
def test_gradcheck_and_second_derivatives(history):
    problem = Problem(0.6, 5)
    inputs = [problem.x, problem.slopes, problem.order, problem.step_size]

    def run(x, slopes, order, step_size):
        plan = made_plan(history, order, step_size, 5)
        return run_chain(plan, lambda j, y: torch.tanh(y * slopes[j]), x)

    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("history", SUMS)
def test_taylor_remainder_has_slope_two(history):
    """E(θ + εd) − E(θ) − ε⟨∇E, d⟩ = O(ε²), in a deep network."""
    problem = Problem(0.2, 150)
    plan = problem.plan(history, learned=False)
    direction = numbers(150, 3, seed=5)
    loss = problem.loss(run_chain(plan, problem.step, problem.x))
    (gradient,) = torch.autograd.grad(loss, problem.slopes)
    sizes, remainders = [2e-2, 1e-2, 5e-3, 2.5e-3], []
    for size in sizes:
        moved = problem.slopes.detach() + size * direction
        value = problem.loss(run_chain(plan, lambda j, y, m=moved: torch.tanh(y * m[j]), problem.x))
        remainders.append(abs(float((value - loss - size * (gradient * direction).sum()).detach())))
    slope = torch.tensor(remainders).log().diff() / torch.tensor(sizes).log().diff()
    assert ((slope - 2).abs() < 0.15).all()


def test_unequal_steps_and_an_order_for_each_layer():
    n_layers = 40
    orders = torch.linspace(0.2, 1.0, n_layers, dtype=torch.float64).requires_grad_()
    steps = (
        0.1 + 0.2 * torch.rand(n_layers, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ).requires_grad_()
    x, slopes = numbers(2, 3).requires_grad_(), numbers(n_layers, 3, seed=1).requires_grad_()
    inputs = [x, slopes, orders, steps]

    def times():
        return torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])

    def step(j, y):
        return torch.tanh(y * slopes[j])

    expected = reference.propagate(memory_weights_on_grid(orders, times()), l1_step_factor(orders, steps), step, x)[-1]
    result = run_chain(general_weights(memory_weights_on_grid(orders, times()), l1_step_factor(orders, steps)), step, x)
    assert relative(result, expected) <= 1e-12
    ours = torch.autograd.grad(result.pow(2).sum(), inputs)
    for mine, theirs in zip(ours, torch.autograd.grad(expected.pow(2).sum(), inputs), strict=True):
        assert relative(mine, theirs) <= 1e-10


@pytest.mark.parametrize("history", SUMS)
def test_inference_keeps_no_history_and_gives_the_same(history):
    problem = Problem(0.5, 300)
    plan = problem.plan(history, learned=False)
    recorded = run_chain(plan, problem.step, problem.x)
    with torch.inference_mode():
        torch.testing.assert_close(run_chain(plan, problem.step, problem.x), recorded.detach(), rtol=0, atol=0)
        states = run_chain(plan, problem.step, problem.x, trajectory=True)
    torch.testing.assert_close(states[-1], recorded.detach(), rtol=1e-15, atol=0)


def test_a_plan_made_in_inference_mode_can_be_trained_with():
    problem = Problem(0.123, 10)
    with torch.inference_mode():
        run_chain(problem.plan("compressed", learned=False), problem.step, problem.x)
    loss = problem.loss(run_chain(problem.plan("compressed", learned=False), problem.step, problem.x))
    assert torch.isfinite(torch.autograd.grad(loss, problem.x)[0]).all()


def test_the_output_does_not_hold_on_to_the_history():
    problem = Problem(0.5, 100)
    with torch.no_grad():
        result = run_chain(problem.plan("exact", learned=False), problem.step, problem.x)
    assert result.untyped_storage().nbytes() == result.numel() * result.element_size()


@pytest.mark.parametrize("history", SUMS)
def test_a_layer_that_ignores_its_input(history):
    """Its node must still go back in its turn."""
    problem = Problem(0.5, 70)

    def step(j, y):
        return torch.ones_like(y) * problem.slopes[j] if j % 7 == 3 else torch.tanh(y * problem.slopes[j])

    matrix = memory_matrix(0.5, 70)
    factors = l1_step_factor(0.5, 0.2).expand(70)
    expected = reference.propagate(matrix, factors, step, problem.x)[-1]
    result = run_chain(problem.plan(history, learned=False), step, problem.x)
    ours = torch.autograd.grad(problem.loss(result), problem.inputs[:2])
    for mine, theirs in zip(ours, torch.autograd.grad(problem.loss(expected), problem.inputs[:2]), strict=True):
        assert relative(mine, theirs) <= 1e-10


@pytest.mark.parametrize(
    ("asked", "n_layers", "size", "options", "expected"),
    [
        ("auto", 35, 10**6, {}, False),
        ("auto", 64, 10**6, {}, False),
        ("auto", 65, 10**6, {}, True),
        ("auto", 65, 500, {}, False),  # a small history stays in cache …
        ("auto", 65, 505, {}, True),
        ("auto", 192, 10**6, {"learned": True}, False),  # exponentials would be made anew in each pass
        ("auto", 193, 500, {"learned": True}, True),
        ("auto", 128, 2**8, {}, True),
        ("auto", 192, 100, {}, False),
        ("auto", 193, 100, {}, True),
        ("auto", 1000, 10**6, {"equal_steps": False}, False),
        (False, 1000, 10**6, {}, False),
        (True, 150, 1, {}, True),  # what is asked for runs
    ],
)
def test_the_choice_of_a_history(asked, n_layers, size, options, expected):
    state = torch.empty(size)
    assert choose_compression(asked, n_layers, state, **{"equal_steps": True, **options}) is expected


def test_the_choice_for_a_learned_order_in_a_cuda_graph(monkeypatch):
    """Exponentials are made from its value, which a capture does not know."""
    monkeypatch.setattr(choose_sum, "values_are_unknown", lambda: True)
    state = torch.empty(10**6)
    for asked in ("auto", False):
        assert choose_compression(asked, 1000, state, equal_steps=True, learned=True) is False
    with pytest.raises(InvalidArgumentError, match="compress must be False or 'auto' for a learned order in a CUDA"):
        choose_compression(True, 1000, state, equal_steps=True, learned=True)


def test_the_choice_on_another_device():
    state = torch.empty(10**6, device="meta")
    assert choose_compression("auto", 192, state, equal_steps=True) is False
    assert choose_compression("auto", 193, state, equal_steps=True) is True


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("learned", [True, False])
def test_layers_without_memory(skip, learned):
    """On a tape that is walked by hand, and under autograd: order 1, and no skip connections at all."""
    problem = Problem(0.5, 9)
    steps = torch.linspace(0.1, 0.5, 9, dtype=torch.float64).requires_grad_(learned)
    y = problem.x
    for j in range(9):
        y = steps[j] * problem.step(j, y) + (y if skip else 0.0)
    inputs = [problem.x, problem.slopes] + [steps] * learned
    expected = torch.autograd.grad(problem.loss(y), inputs)
    plan = MemorylessPlan(steps, skip=skip)
    result = run_chain(plan, problem.step, problem.x)
    torch.testing.assert_close(result, y, rtol=1e-14, atol=1e-14)
    for mine, theirs in zip(torch.autograd.grad(problem.loss(result), inputs), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)
    factors = steps.detach() if learned else steps.tolist()
    history, states, changes = plan.history_sum(problem.x), [problem.x.detach()], []
    with torch.no_grad():
        history.first(states[0])
        for j in range(9):
            changes.append(problem.step(j, states[-1]))
            states.append(history.advance(j + 1, changes[-1], factors[j]))
    torch.testing.assert_close(states[-1], y.detach(), rtol=1e-14, atol=1e-14)
    cotangent = torch.autograd.grad(problem.loss(result := states[-1].requires_grad_()), result)[0]
    back, adjoints = plan.history_sum(cotangent, 9), []
    for j in reversed(range(9)):
        adjoints.append(cotangent)
        row, change = back.exchange(8 - j, cotangent, factors[j], torch.float64)
        cotangent = row + change * (1 - changes[j] ** 2) * problem.slopes[j].detach()
    torch.testing.assert_close(cotangent, expected[0], rtol=1e-12, atol=1e-14)
    if learned:
        (found,) = plan.learned_gradients(states[:-1], adjoints[::-1], changes)
        torch.testing.assert_close(found, expected[2], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("history", SUMS)
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(
    "use",
    [
        "forward",
        "backward",
        pytest.param("partial", marks=pytest.mark.slow),
        "second",
        pytest.param("trajectory", marks=pytest.mark.slow),
        "raises",
        "raises back",
    ],
)
def test_a_dropped_graph_frees_its_tape_and_history(use, learned, history, monkeypatch):
    """By counting references alone: no cycle may wait for the garbage collector, still less hide from it."""
    tapes = []
    make = chain.Tape.__init__

    def remember(self, *arguments, **options):
        make(self, *arguments, **options)
        tapes.append(weakref.ref(self))

    monkeypatch.setattr(chain.Tape, "__init__", remember)
    problem = Problem(0.5, 70)
    plan = problem.plan(history, learned=learned)

    def step(j, y):
        if use == "raises" and j == 40:
            fail()
        if use == "raises back" and j == 40:
            y.register_hook(fail)
        return problem.step(j, y)

    def fail(*_):
        raise RuntimeError("a layer fails")

    gc.disable()
    try:
        if use.startswith("raises"):
            with pytest.raises(RuntimeError, match="a layer fails"):
                problem.loss(run_chain(plan, step, problem.x)).backward()
        else:
            result = run_chain(plan, step, problem.x, trajectory=use == "trajectory")
            if use == "partial":
                torch.autograd.grad(problem.loss(result), problem.slopes)
            elif use == "second":
                (first,) = torch.autograd.grad(problem.loss(result), problem.x, create_graph=True)
                torch.autograd.grad(first.sum(), problem.slopes)
                del first
            elif use != "forward":
                problem.loss(result).backward()
            del result
        if use.startswith("raises"):  # pytest's record of the exception holds frames, these the states
            gc.collect()
        assert [tape() for tape in tapes] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize("history", SUMS)
def test_backward_passes_nested_in_each_other(history):
    problem = Problem(0.5, 70)
    plan = problem.plan(history, learned=False)
    inner = []

    def interrupt(_):
        if not inner:  # the pass inside comes by here too
            inner.append(None)
            inner[0] = torch.autograd.grad(loss, problem.x, retain_graph=True)[0]

    def step(j, y):
        if j == 30:
            y.register_hook(interrupt)
        return problem.step(j, y)

    loss = problem.loss(run_chain(plan, problem.step, problem.x))
    expected = torch.autograd.grad(loss, [problem.x, problem.slopes])
    loss = problem.loss(run_chain(plan, step, problem.x))
    outer = torch.autograd.grad(loss, [problem.x, problem.slopes], retain_graph=True)
    for mine, theirs in zip((*outer, *inner), (*expected, expected[0]), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("history", SUMS)
def test_backward_passes_in_several_threads(history):
    problem = Problem(0.5, 200, size=50)
    loss = problem.loss(run_chain(problem.plan(history, learned=True), problem.step, problem.x))
    expected = torch.autograd.grad(loss, problem.inputs, retain_graph=True)

    def gradient(_):
        return torch.autograd.grad(loss, problem.inputs, retain_graph=True)

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(gradient, range(6)):
            for mine, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("history", SUMS)
def test_many_cotangents_at_once(history):
    problem = Problem(0.5, 70)
    result = run_chain(problem.plan(history, learned=True), problem.step, problem.x).reshape(-1)
    basis = torch.eye(result.numel(), dtype=torch.float64)
    together = torch.autograd.grad(result, problem.inputs, basis, is_grads_batched=True, retain_graph=True)
    for i, direction in enumerate(basis):
        alone = torch.autograd.grad(result, problem.inputs, direction, retain_graph=True)
        for mine, theirs in zip(together, alone, strict=True):
            torch.testing.assert_close(mine[i], theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("history", SUMS)
def test_gradients_may_be_written_into(history):
    """A hook that scales a gradient in place as it arrives must not reach any other."""
    problem = Problem(0.5, 70)
    offsets = [torch.zeros(6, dtype=torch.float64, requires_grad=True) for _ in range(70)]

    def step(j, y):
        return offsets[j].view(y.shape) if j % 2 else problem.step(j, y)

    def spoil(parameter):
        parameter.grad.mul_(100.0)

    plan = problem.plan(history, learned=False)
    problem.loss(run_chain(plan, step, problem.x)).backward()
    expected, problem.x.grad = problem.x.grad, None
    for offset in offsets:
        offset.grad = None
        offset.register_post_accumulate_grad_hook(spoil)
    problem.loss(run_chain(plan, step, problem.x)).backward()
    torch.testing.assert_close(problem.x.grad, expected, rtol=0, atol=0)


@pytest.mark.parametrize("history", SUMS)
def test_gradients_of_order_and_steps_do_not_mind_autocast(history):
    problem = Problem(0.5, 150, size=40, dtype=torch.float32)
    loss = problem.loss(run_chain(problem.plan(history, learned=True), problem.step, problem.x))
    expected = torch.autograd.grad(loss, problem.inputs[2:], retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(loss, problem.inputs[2:])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_without_gradients_a_compressed_history_holds_few_blocks(monkeypatch):
    blocks, most = [], 0
    make = exact.buffer

    def remember(*arguments):
        nonlocal most
        made = make(*arguments)
        blocks.append(weakref.ref(made))
        most = max(most, sum(block() is not None for block in blocks))
        return made

    monkeypatch.setattr(exact, "buffer", remember)
    problem = Problem(0.5, 1000)
    with torch.no_grad():
        run_chain(problem.plan("compressed", learned=False), problem.step, problem.x)
    assert len(blocks) > 100
    assert most <= 6  # the far states, three blocks, and one that is about to go


def test_versions_count_what_is_written_but_in_inference_mode():
    tensors = [torch.zeros(2), torch.zeros(2)]
    with torch.inference_mode():
        tensors.append(torch.zeros(2))
    before = versions(tensors)
    tensors[1].add_(1.0)
    with torch.inference_mode():
        tensors[2].add_(1.0)
    after = versions(tensors)
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 1, 0]


def test_the_tolerance_follows_the_precision():
    assert default_compress_tol(torch.float64) == 1e-10
    assert default_compress_tol(torch.float32) == default_compress_tol(torch.bfloat16) == 1e-6


def test_the_tolerance_is_heeded():
    problem = Problem(0.5, 300)
    exact = run_chain(problem.plan("exact", learned=False), problem.step, problem.x)
    errors = []
    for compress_tol in (1e-2, 1e-5, 1e-9):
        plan = problem.plan("compressed", learned=False, compress_tol=compress_tol)
        errors.append(relative(run_chain(plan, problem.step, problem.x), exact))
    assert errors[0] > 10 * errors[1] > 100 * errors[2] > 0


def test_the_block_on_a_gpu(monkeypatch):
    """Triton's where its kernels can be used; operations that are transformed are plain ones."""
    monkeypatch.setattr(triton_sum, "can_take", lambda state: True)
    with FakeTensorMode():
        state = torch.empty(2, 3, device="cuda")
    assert choose_block(state) == triton_sum.BLOCK
    with torch.autograd.forward_ad.dual_level():
        assert choose_block(state) == 32


def test_segments_may_be_single_layers():
    assert segments(4, states=1, block=1) == [range(j, j + 1) for j in range(1, 5)]


def test_a_plan_keeps_no_more_than_so_many_constants():
    plan, made = MemorylessPlan(torch.ones(3, dtype=torch.float64)), []
    for key in [*range(64), 0, 64, 0]:
        plan.kept((key,), lambda key=key: made.append(key) or key)
    assert made == [*range(65), 0]


@pytest.mark.parametrize("block", [8, 32])
def test_a_triton_sum_that_cannot_serve_is_refused(block):
    order, step = torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)
    plan = equal_steps_weights(order, step, 70, compress=True, compress_tol=1e-6, block=block, sums="triton")
    message = rf"sums must be 'torch' or 'auto' for torch.float32 on meta in blocks of {block} here, got 'triton'"
    with pytest.raises(InvalidArgumentError, match=message):
        plan.history_sum(torch.zeros(3, device="meta"))
