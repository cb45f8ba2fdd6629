"""Random trainings against `plain`, iterate by iterate.

Rounding grows from iterate to iterate, and where a line search is at the edge it takes another turn. How much is
measured: the plain training runs four times more, from starts that are moved in their thirteenth digit, with tanh and
gradients that are off by some roundings. An iterate is compared as long as all took the same number of trials and lie
within `LARGEST` of one another, and may then be off by `FACTOR` times their distance.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from fracdnn.nn import FractionalNetwork
from fracdnn.training import AdamTraining, FullBatchTraining, MiniBatchTraining, Objective, Regularization, Task
from tests.campaign import budget, plain
from tests.campaign.stack_cases import ORDERS
from tests.campaign.trying import try_cases

MOVED, ROUNDING = 1e-13, 1e-15
LARGEST = 1e-6
FACTOR = 1000  # the largest of some thousand trainings was 780


@dataclass(frozen=True)
class Case:
    """A network, data, an objective and a way to train."""

    width: int = 2
    n_outputs: int = 2
    n_layers: int = 3
    order: float = 0.5
    step_size: float = 0.2
    n: int = 8
    scale: float = 1.0  # of x
    weighted: bool = False
    loss: str = "cross_entropy"
    smoothing: float = 0.0
    class_map: float = 0.0
    operator: float = 0.0
    bias: float = 0.0
    decay: float = 0.0
    method: str = "bfgs"
    iterations: int = 10
    n_batches: int = 0  # 0: the whole batch
    batch_size: int = 4  # of Adam
    learning_rate: float = 0.01
    seed: int = 0


def network_of(case):
    generator = torch.Generator().manual_seed(case.seed)
    options = {"order": case.order, "step_size": case.step_size}
    network = FractionalNetwork(case.width, case.n_outputs, n_layers=case.n_layers, generator=generator, **options)
    return network.double()


def problem_of(case):
    random = np.random.default_rng(case.seed)
    classes, values = random.integers(case.n_outputs, size=case.n), random.normal(size=(case.n, case.n_outputs))
    return plain.Problem(
        x=case.scale * random.normal(size=(case.n, case.width)),
        target=classes if case.loss == "cross_entropy" else values,
        weight=random.uniform(0.1, 2.0, size=case.n) if case.weighted else np.ones(case.n),
        order=case.order,
        step_size=case.step_size,
        loss=case.loss,
        smoothing=case.smoothing,
        class_map=case.class_map,
        operator=case.operator,
        bias=case.bias,
        decay=case.decay,
    )


def trained(case, network, problem):
    """The library's walk: its iterates, trials and status."""
    regularization = Regularization(case.class_map, case.operator, case.bias, case.decay)
    walk = plain.Walk()

    def watch(record):
        walk.points.append(flat(network))
        walk.trials.append(record.line_search_trials)

    task = Task(
        network,
        Objective(case.loss, regularization, label_smoothing=case.smoothing),
        torch.from_numpy(problem.x),
        torch.from_numpy(problem.target),
        torch.from_numpy(problem.weight) if case.weighted else None,
        generator=torch.Generator().manual_seed(case.seed),
        watch=watch,
    )
    if case.method == "adam":
        way = AdamTraining(lr=case.learning_rate, batch_size=case.batch_size, max_epochs=case.iterations)
    elif case.n_batches:
        way = MiniBatchTraining(n_batches=case.n_batches, max_iter=case.iterations, optimizer=case.method)
    else:
        way = FullBatchTraining(optimizer=case.method, max_iter=case.iterations)
    walk.status = way.fit(task).status
    return walk


def flat(network):
    return plain.flat({name: getattr(network, name).detach().numpy().copy() for name in plain.NAMES})


def plainly_trained(case, like, problem, start):
    """The same by `plain`, on the rows that the library's generator draws."""
    generator = torch.Generator().manual_seed(case.seed)
    random = np.random.default_rng(start.view(np.uint8))

    def value_and_gradient(x, rows):
        value, gradient = plain.objective(plain.unflat(x, like), problem.part(rows))
        gradient = plain.flat(gradient)
        if (
            problem.rounding
        ):  # the last bit, which every way to sum has of its own, and differences of gradients magnify
            gradient = gradient * (1 + np.finfo(float).eps * random.choice([-1, 1], size=gradient.size))
        return value, gradient

    if case.method == "adam":
        epochs = [torch.randperm(case.n, generator=generator).numpy() for _ in range(case.iterations)]
        batches = [order[i : i + case.batch_size] for order in epochs for i in range(0, case.n, case.batch_size)]
        each = len(batches) // case.iterations
        points = plain.adam(lambda x, rows: value_and_gradient(x, rows)[1], start, batches, case.learning_rate)
        return plain.Walk(points[each - 1 :: each], [0] * case.iterations, "epoch limit")
    walk_from = partial(plain.minimise, method=case.method, max_iter=case.iterations, by_products=problem.rounding > 0)
    if not case.n_batches:
        return walk_from(partial(value_and_gradient, rows=slice(None)), start)
    whole = plain.Walk()
    for _ in range(case.n_batches):
        rows = torch.randperm(case.n, generator=generator).numpy()[: max(1, round(0.5 * case.n))]
        walk = walk_from(partial(value_and_gradient, rows=rows), start)
        start = walk.points[-1] if walk.points else start
        whole = plain.Walk(whole.points + walk.points, whole.trials + walk.trials, walk.status)
    return whole


def check(case):
    """How many iterates could be compared, and how many there are."""
    network, problem = network_of(case), problem_of(case)
    like = {name: getattr(network, name).detach().numpy().copy() for name in plain.NAMES}
    start = plain.flat(like)
    random = np.random.default_rng(case.seed + 1)
    starts = [start, *(start * (1 + MOVED * random.choice([-1, 1], size=start.size)) for _ in range(4))]
    problems = [problem, *(replace(problem, rounding=ROUNDING) for _ in range(4))]
    walks = [plainly_trained(case, like, *each) for each in zip(problems, starts, strict=True)]
    found = trained(case, network, problem)
    distance, steady = 0.0, 0
    for k, point in enumerate(walks[0].points):
        if any(walk.trials[: k + 1] != walks[0].trials[: k + 1] for walk in walks):
            break
        scale = np.linalg.norm(point)
        distance = max(distance, *(np.linalg.norm(walk.points[k] - point) / scale for walk in walks[1:]), MOVED)
        if distance > LARGEST:
            break
        assert len(found.points) > k, f"ended after {len(found.points)} iterations ({found.status}), should go on"
        assert found.trials[k] == walks[0].trials[k], f"iteration {k + 1}: {found.trials[k]} trials"
        error = np.linalg.norm(found.points[k] - point) / scale
        assert error <= FACTOR * distance, f"iteration {k + 1}: off by {error:.3g}, rounding makes {distance:.3g}"
        steady += 1
    if steady == len(walks[0].points) and len({walk.status for walk in walks}) == 1:
        assert found.status == walks[0].status
        assert len(found.points) == steady
    return steady, len(walks[0].points)


@st.composite
def cases(draw, methods):
    method, factors = draw(st.sampled_from(methods)), st.sampled_from([0.0, 1e-3, 0.1])
    # The entropy of a single class is 0, and its gradient nothing but rounding.
    loss = draw(st.sampled_from(["cross_entropy", "squared_error"]))
    return Case(
        width=draw(st.integers(1, 4)),
        n_outputs=draw(st.integers(2 if loss == "cross_entropy" else 1, 4)),
        n_layers=draw(st.integers(1, 8)),
        order=draw(ORDERS | st.just(1.0)),
        step_size=draw(st.sampled_from([0.2, 0.05, 1.0])),
        n=draw(st.integers(1, 20)),
        scale=draw(st.sampled_from([1.0, 5.0, 30.0])),
        weighted=draw(st.booleans()),
        loss=loss,
        smoothing=draw(st.sampled_from([0.0, 0.1])),
        class_map=draw(factors),
        operator=draw(factors),
        bias=draw(factors),
        decay=draw(factors),
        method=method,
        iterations=draw(st.integers(5, 30)),
        n_batches=0 if method == "adam" else draw(st.sampled_from([0, 0, 3])),
        batch_size=draw(st.integers(1, 7)),
        learning_rate=draw(st.sampled_from([0.01, 0.001, 0.1])),
        seed=draw(st.integers(0, 999)),
    )


@pytest.mark.parametrize("part", range(budget.cases(1, 2)))
@pytest.mark.parametrize("method", ["bfgs", "lbfgs", "adam"])
def test_iterates(method, part):
    name = f"trainings by {method} {part}"
    counts = try_cases(name, cases([method]), check, budget.cases(2, 150))
    steady, all_of_them = (sum(column) for column in zip(*counts, strict=True))
    print(f"campaign: {name}: {steady} of {all_of_them} iterates compared")
    assert steady >= 0.5 * all_of_them
