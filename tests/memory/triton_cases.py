"""The sum by Triton's kernels against torch's and the definition, on a GPU or in Triton's interpreter.

`tests.kernels.test_triton` runs this file in a process of its own, since the interpreter has to be asked for before
Triton is there.
"""

import os
from itertools import product

import pytest
import torch

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.memory import equal_steps_weights, reference, run_chain
from fracdnn.memory.compressed import CompressedSum
from fracdnn.memory.plan import default_compress_tol
from fracdnn.memory.sums import WideSum
from fracdnn.memory.triton_sum import TritonCompressedSum
from fracdnn.nn import FractionalStack
from tests.memory.cuda_graphs import assert_a_graph_gives_the_same
from tests.slow import each_once, slow_but

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# Rounding to the nearest; the interpreter cuts bfloat16 off, which is twice as far.
UNIT_ROUNDOFF = {torch.bfloat16: 2.0 ** (-7 if INTERPRETED else -8), torch.float16: 2.0**-11}
slow = pytest.mark.slow


def numbers(*shape, seed=0, dtype=torch.float64):
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.to(DEVICE, dtype)


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def made_plan(order, n_layers, dtype, sums="triton", step_size=None):
    step_size = number(0.2) if step_size is None else step_size
    tolerance = default_compress_tol(dtype)
    return equal_steps_weights(order, step_size, n_layers, compress=True, compress_tol=tolerance, block=8, sums=sums)


def both_sums(order, n_rows, state, *, transposed):
    """Triton's and torch's."""
    made = []
    for sums, kind in (("triton", TritonCompressedSum), ("torch", CompressedSum)):
        plan = made_plan(number(order), n_rows, state.dtype, sums)
        made.append(plan.history_sum(state, n_rows) if transposed else plan.history_sum(state))
        assert type(made[-1]) is kind
    return made


def relative(ours, theirs):
    ours, theirs = ours.detach().double().cpu(), theirs.detach().double().cpu()
    return float((ours - theirs).norm() / theirs.norm())


class Problem:
    """N layers tanh(y ⊙ k_j) and a loss that weighs every entry differently."""

    def __init__(self, order, n_layers, *, dtype=torch.float64, size=3):
        self.order, self.step_size = (number(value).requires_grad_() for value in (order, 0.2))
        self.n_layers, self.dtype = n_layers, dtype
        self.slopes = (0.5 * numbers(n_layers, size, dtype=dtype)).requires_grad_()
        self.x = numbers(2, size, seed=1, dtype=dtype).requires_grad_()

    def step(self, j, y):
        return torch.tanh(y * self.slopes[j])

    def found(self, sums, *, learned, **options):
        """The result and its gradients."""
        order, step_size = (self.order, self.step_size) if learned else (self.order.detach(), self.step_size.detach())
        plan = made_plan(order, self.n_layers, self.dtype, sums, step_size)
        return self._with_gradients(run_chain(plan, self.step, self.x, **options), learned)

    def by_definition(self, *, learned):
        matrix = memory_matrix(self.order, self.n_layers)
        factors = l1_step_factor(self.order, self.step_size).expand(self.n_layers)
        return self._with_gradients(reference.propagate(matrix, factors, self.step, self.x)[-1], learned)

    def _with_gradients(self, result, learned):
        weights = torch.cos(torch.arange(result.numel(), device=DEVICE)).view_as(result)
        inputs = [self.x, self.slopes, *([self.order, self.step_size] if learned else [])]
        return [result, *torch.autograd.grad((result * weights).sum(), inputs)]


@pytest.mark.parametrize(
    ("n_layers", "order", "learned"),
    [
        *((n, 0.3, learned) for n, learned in ((1, True), (4, False), (7, True), (8, False), (9, True), (17, True))),
        *(pytest.param(n, 0.3, n in (4, 8), marks=slow) for n in (1, 4, 7, 8, 9, 17)),
        *(
            pytest.param(n, order, learned, marks=slow)
            for n in (2, 5, 12, 13, 31, 32, 33, 65, 100)
            for order in (0.3, 0.9)
            for learned in (True, False)
        ),
    ],
)
def test_values_and_all_gradients_agree_with_the_definition(n_layers, order, learned):
    problem = Problem(order, n_layers)
    found, expected = problem.found("triton", learned=learned), problem.by_definition(learned=learned)
    for mine, theirs in zip(found, expected, strict=True):
        assert relative(mine, theirs) <= 1e-10


@pytest.mark.parametrize(
    ("order", "dtype", "n_layers", "size"),
    [
        (0.9, torch.float32, 10, 300),
        pytest.param(0.9, torch.float32, 18, 300, marks=slow),
        pytest.param(0.3, torch.float32, 100, 259, marks=slow),
        pytest.param(0.9, torch.float64, 100, 1030, marks=slow),
    ],
)
def test_states_of_some_tiles_and_a_rest(order, dtype, n_layers, size):
    problem = Problem(order, n_layers, dtype=dtype, size=size)
    limit = 1e-6 if dtype is torch.float32 else 1e-14
    found, expected = problem.found("triton", learned=False), problem.found("torch", learned=False)
    for mine, theirs in zip(found, expected, strict=True):
        assert relative(mine, theirs) <= limit


@pytest.fixture
def poisoned(monkeypatch):
    """Fresh memory is filled with NaN: no result may come from it."""
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda self, *size, **options: empty(self, *size, **options).fill_(float("nan"))
    )


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("case", "transposed"),
    slow_but(
        [((17, (3, 7), torch.float32), False), ((9, (1,), torch.float64), True), ((1, (2, 2), torch.float64), False)],
        product(
            [
                (17, (3, 7), torch.float32),
                (9, (1,), torch.float64),
                (20, (3, 7), torch.float32),
                (16, (1,), torch.float64),
                (1, (2, 2), torch.float64),
                (64, (513,), torch.float64),
                (61, (5,), torch.float32),
            ],
            [False, True],
        ),
    ),
)
def test_every_way_to_make_a_state(case, transposed):
    """Steps, and exchanges of states for rows; a factor may be a tensor."""
    n_rows, shape, dtype = case
    state = numbers(*shape, dtype=dtype)
    limit = 1e-6 if dtype is torch.float32 else 1e-14
    ours, theirs = both_sums(0.4, n_rows, state, transposed=transposed)
    torch.testing.assert_close(ours.first(state), theirs.first(state), rtol=0, atol=0)
    scale = torch.tensor([2.0, 0.7], dtype=dtype, device=DEVICE)[1]
    for n in range(1, n_rows + 1):
        change, factor = numbers(*shape, seed=n, dtype=dtype), scale if n % 3 == 0 else 0.7
        assert relative(*(each.advance(n, change, factor) for each in (ours, theirs))) <= limit, n
    ours, theirs = both_sums(0.4, n_rows, state, transposed=transposed)
    for n in range(n_rows):
        state, factor = numbers(*shape, seed=n, dtype=dtype), scale if n % 3 == 0 else 0.3
        (row, scaled), (expected, _) = (each.exchange(n, state, factor, torch.float64) for each in (ours, theirs))
        assert relative(row, expected) <= limit, n
        torch.testing.assert_close(scaled, (factor * state).double(), rtol=limit, atol=0)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=slow)])
def test_states_of_16_bits_are_rounded_once(dtype, transposed):
    """Each against the sum over those before it, as they are; nothing else is rounded on the way."""
    n_rows, state = 20, numbers(2, 50, dtype=dtype)
    plan, matrix = made_plan(number(0.5), n_rows, dtype), memory_matrix(0.5, n_rows)
    matrix = matrix.T.flip(0, 1) if transposed else matrix
    history = plan.history_sum(state, n_rows) if transposed else plan.history_sum(state)
    assert type(history) is TritonCompressedSum
    states = [history.first(state).cpu().double()]
    for n in range(1, n_rows + 1):
        change = numbers(2, 50, seed=n, dtype=dtype)
        expected = torch.tensordot(matrix[n - 1, :n], torch.stack(states), dims=1) + 0.3 * change.cpu().double()
        found = history.advance(n, change, 0.3)
        assert found.dtype is dtype
        states.append(found.cpu().double())
        rounding = UNIT_ROUNDOFF[dtype] * expected.abs() + 1e-5
        assert ((states[-1] - expected).abs() <= rounding).all(), n


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=slow)])
def test_states_of_16_bits_and_those_of_a_wider_sum(dtype):
    """No further apart than the docstring's bound, from which the wider one has a last rounding alone."""
    n_rows, state, largest = 20, numbers(2, 5, dtype=dtype), 0.0
    sums = [made_plan(number(0.5), n_rows, dtype, sums).history_sum(state) for sums in ("triton", "torch")]
    assert [type(each) for each in sums] == [TritonCompressedSum, WideSum]
    for each in sums:
        each.first(state)
    for n in range(1, n_rows + 1):
        mine, wider = (each.advance(n, numbers(2, 5, seed=n, dtype=dtype), 0.3).double() for each in sums)
        largest = max(largest, float(wider.abs().max()))
        growth = n**0.5 / float(torch.lgamma(number(1.5)).mul(2).exp())
        assert float((mine - wider).abs().max()) <= (growth + 1) * UNIT_ROUNDOFF[dtype] * largest, n


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=slow)])
def test_gradients_of_16_bits(dtype):
    """Against the same numbers in double precision; a plan that widens them is about as far off."""
    problem = Problem(0.5, 18, dtype=dtype)
    found, wide = problem.found("triton", learned=True), problem.found("torch", learned=True)
    exact = Problem(0.5, 18)
    exact.slopes, exact.x = (each.detach().double().requires_grad_() for each in (problem.slopes, problem.x))
    expected = exact.found("torch", learned=True)
    for mine, wider, theirs in zip(found, wide, expected, strict=True):
        assert mine.dtype == wider.dtype
        assert relative(mine, theirs) <= 20 * UNIT_ROUNDOFF[dtype]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_memory_formats_and_changes_of_every_kind(memory_format):
    """States keep the format of the first one, whatever the layers return: views, other dtypes, sparse tensors."""
    kinds = [
        lambda y: torch.tanh(y),
        lambda y: torch.tanh(y).transpose(2, 3).contiguous().transpose(2, 3),
        lambda y: torch.tanh(y).to(torch.bfloat16),
        lambda y: torch.tanh(y)[:, :1].expand_as(y),
        lambda y: torch.tanh(y).double(),
        lambda y: (torch.tanh(y) + 0j * y).conj().imag + torch.tanh(y),
        lambda y: torch.tanh(y).contiguous(memory_format=torch.channels_last),
        lambda y: torch.tanh(y).to_sparse(),
    ]
    x = numbers(2, 3, 4, 5, dtype=torch.float32).contiguous(memory_format=memory_format)
    results = []
    for sums in ("triton", "torch"):
        plan, formats = made_plan(number(0.5), 18, torch.float32, sums), []

        def step(j, y, formats=formats):
            formats.append(y.is_contiguous(memory_format=memory_format))
            return kinds[j % len(kinds)](y)

        with torch.no_grad():
            results.append(run_chain(plan, step, x, trajectory=True))
        assert all(formats)
    assert relative(*results) <= 1e-6


def test_gradients_of_channels_last_and_expanded_states():
    found = []
    for sums in ("triton", "torch"):
        x = numbers(1, 3, 2, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
        y = numbers(3, 1).requires_grad_()
        plan = made_plan(number(0.5), 10, torch.float64, sums)
        results = [run_chain(plan, lambda j, z: torch.sin(z + j), each) for each in (x, y.expand(3, 5))]
        found.append([*results, *torch.autograd.grad(sum(each.pow(2).sum() for each in results), [x, y])])
        assert results[0].is_contiguous(memory_format=torch.channels_last)
    for mine, theirs in zip(*found, strict=True):
        assert relative(mine, theirs) <= 1e-14


@pytest.mark.parametrize(("begin", "dtype"), each_once([8, 16], [torch.float64, torch.bfloat16]))
def test_going_on_from_a_position(begin, dtype):
    n_rows, state = 20, numbers(2, 3, dtype=dtype)
    plan = made_plan(number(0.4), n_rows, dtype)
    whole = plan.history_sum(state)
    whole.first(state)
    for n in range(1, begin):
        state = whole.advance(n, numbers(2, 3, seed=n, dtype=dtype), 0.5)
    position = whole.position(begin)
    assert len(position[0]) + len(position[1]) == whole.states_of_a_position
    before = [each.clone() for each in position]
    resumed = plan.history_sum(state)
    resumed.resume(begin, state, *position)
    for n in range(begin, n_rows + 1):
        change = numbers(2, 3, seed=n, dtype=dtype)
        torch.testing.assert_close(resumed.advance(n, change, 0.5), whole.advance(n, change, 0.5), rtol=0, atol=0)
    for mine, theirs in zip(position, before, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [pytest.param(torch.float64, marks=slow), torch.bfloat16])
def test_layers_that_are_computed_again(dtype):
    problem = Problem(0.3, 10, dtype=dtype)
    found = [problem.found("triton", learned=True, checkpoint=checkpoint) for checkpoint in (True, False)]
    for mine, theirs in zip(*found, strict=True):
        assert relative(mine, theirs) <= (1e-13 if dtype is torch.float64 else 1e-5)


def test_inference_keeps_a_few_states_and_gives_the_same():
    problem = Problem(0.5, 18)
    plan = made_plan(problem.order.detach(), 18, torch.float64)
    recorded = run_chain(plan, problem.step, problem.x)
    with torch.inference_mode():
        result = run_chain(plan, problem.step, problem.x)
    torch.testing.assert_close(result, recorded.detach(), rtol=0, atol=0)
    assert result.untyped_storage().nbytes() == result.numel() * result.element_size()


needs_gpu = pytest.mark.skipif(INTERPRETED, reason="needs a CUDA device; this is Triton's interpreter")


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cuda_graph_gives_the_same(dtype):
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(70)]
    stack = FractionalStack(layers, order=0.5, compress=True).to(DEVICE, dtype)
    x = numbers(33, 16, dtype=dtype)

    def run():
        stack.zero_grad()
        result = stack(x)
        result.pow(2).mean().backward()
        return [result.detach(), *(parameter.grad for parameter in stack.parameters())]

    assert_a_graph_gives_the_same(run)


@needs_gpu
def test_auto_takes_the_kernels_and_autocast_goes_with_them():
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(70)]
    stack = FractionalStack(layers, order=0.5).to(DEVICE)
    x = numbers(5, 8, dtype=torch.float32)
    assert type(stack.memory.plan(x, len(stack)).history_sum(x)) is TritonCompressedSum
    expected = stack(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = stack(x)
    assert result.dtype is torch.float32
    assert relative(result, expected) <= 0.02
    result.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in stack.parameters())
