import copy
import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.optim import BFGS, Status
from fracdnn.optim.bfgs import DECREASE, LONGEST, MAX_TRIALS, SHORTEST
from tests.campaign.plain import minimise

LBFGS = partial(BFGS, history_size=10)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def beale(x):
    terms = [c - x[0] + x[0] * x[1] ** k for k, c in ((1, 1.5), (2, 2.25), (3, 2.625))]
    return sum(term**2 for term in terms)


def powell(x):
    return (x[0] + 10 * x[1]) ** 2 + 5 * (x[2] - x[3]) ** 2 + (x[1] - 2 * x[2]) ** 4 + 10 * (x[0] - x[3]) ** 4


def quadratic(x):
    return 0.5 * (torch.logspace(0, 2, len(x), dtype=x.dtype) * x**2).sum()


PROBLEMS = {
    "rosenbrock": (rosenbrock, [-1.2, 1.0], 0.0),
    "rosenbrock in 10": (rosenbrock, [-1.2, 1.0] * 5, 0.0),
    "beale": (beale, [1.0, 1.0], 0.0),
    "powell": (powell, [3.0, -1.0, 0.0, 1.0], 0.0),
}


def run(kind, function, start, *, dtype=torch.float64, **options):
    x = torch.tensor(start, dtype=dtype, requires_grad=True)
    optimizer = kind([x], **{"max_iter": 1000, **options})

    def closure():
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        return loss

    return x, optimizer, optimizer.step(closure)


# Evaluations from those starts. They are a property of the method: a change of 1e-12 in a start moves them by three at
# most. SciPy 1.17 takes 40, 84, 17, 46 with BFGS and 45, 93, 16, 52 with L-BFGS-B.
EVALUATIONS = {
    "BFGS": {"rosenbrock": 52, "rosenbrock in 10": 104, "beale": 16, "powell": 44},
    "LBFGS": {"rosenbrock": 50, "rosenbrock in 10": 94, "beale": 16, "powell": 43},
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_known_minima_from_fixed_starts(kind, name):
    """The minimum is found in as many evaluations as the method takes; other curvature or lengths would change that."""
    function, start, minimum = PROBLEMS[name]
    _, optimizer, loss = run(kind, function, start)
    result = optimizer.result
    assert result.status is Status.CONVERGED
    assert result.gradient_norm <= 1e-6
    assert float(loss) == pytest.approx(minimum, abs=1e-10)
    assert result.evaluations == 1 + result.line_search_trials
    assert result.evaluations == pytest.approx(EVALUATIONS["BFGS" if kind is BFGS else "LBFGS"][name], rel=0.1)


@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_convergence_is_faster_than_linear(kind):
    """At a minimum with a definite Hessian the last steps are nearly Newton's: each takes 90 % off the gradient."""
    norms = []
    run(kind, beale, [1.0, 1.0], callback=lambda iteration: norms.append(iteration.gradient_norm))
    assert all(after < 0.1 * before for before, after in itertools.pairwise(norms[-4:]))


@pytest.mark.parametrize("kind", [BFGS, LBFGS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_quadratic_in_both_precisions(kind, dtype):
    tolerance = 1e-3 if dtype == torch.float32 else 1e-6
    x, optimizer, loss = run(kind, quadratic, [1.0] * 20, dtype=dtype, tolerance_grad=tolerance, max_iter=3000)
    assert x.dtype == dtype
    assert optimizer.result.status is Status.CONVERGED
    assert float(loss) < 10 * tolerance**2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_on_a_gpu(kind):
    x = torch.tensor([-1.2, 1.0], dtype=torch.float64, device="cuda", requires_grad=True)
    optimizer = kind([x], max_iter=500)

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.result.status is Status.CONVERGED


@pytest.mark.parametrize("history_size", [None, 5])
def test_the_newest_step_is_reproduced_exactly(history_size):
    """The secant equation H y = s, and symmetry and positive definiteness of H, after several updates."""
    optimizer = BFGS([torch.zeros(6, dtype=torch.float64, requires_grad=True)], history_size=history_size)
    generator = torch.Generator().manual_seed(0)
    hessian = torch.diag(torch.logspace(-1, 2, 6, dtype=torch.float64))
    for _ in range(4):
        step = torch.randn(6, dtype=torch.float64, generator=generator)
        change = hessian @ step
        optimizer._update(step, change)
        torch.testing.assert_close(optimizer._direction(change), -step, rtol=1e-9, atol=1e-12)
    inverse = -torch.stack([optimizer._direction(unit) for unit in torch.eye(6, dtype=torch.float64)])
    torch.testing.assert_close(inverse, inverse.T, rtol=1e-9, atol=1e-12)
    assert torch.linalg.eigvalsh(inverse).min() > 0


def test_both_forms_of_bfgs_agree_while_the_memory_lasts():
    """From the same initial scale, the matrix and the two-loop recursion are the same operator."""
    start = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    full, limited = BFGS([start]), BFGS([start], history_size=10)
    generator = torch.Generator().manual_seed(1)
    for optimizer in (full, limited):
        for each in ([1.0, 2.0, -1.0], [3.0, 1.0, 1.0]):
            step = torch.tensor(each, dtype=torch.float64)
            optimizer._update(step, step * 2.0)
    gradient = torch.randn(3, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(full._direction(gradient), limited._direction(gradient))


@pytest.mark.parametrize(("kind", "name"), [(BFGS, "bfgs"), (LBFGS, "lbfgs")])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_iterates_are_those_of_plain_numpy(kind, name, problem):
    """The search's lengths and the updates of H, for as long as rounding does not part the two."""
    function, start, _ = PROBLEMS[problem]

    def value_and_gradient(x):
        gradient, value = torch.func.grad_and_value(function)(torch.from_numpy(x))
        return float(value), gradient.numpy()

    plain = minimise(value_and_gradient, np.array(start), name, 12)
    points, trials = [], []
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)

    def closure():
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        return loss

    def note(iteration):
        points.append(x.detach().clone().numpy())
        trials.append(iteration.line_search_trials)

    optimizer = kind([x], max_iter=12, callback=note)
    optimizer.step(closure)
    assert trials == plain.trials
    np.testing.assert_allclose(points, plain.points, rtol=1e-7, atol=1e-9)


def by_the_book(function, start, scaled, n_steps):
    """BFGS as textbooks write it, H in full, for starts from which every first trial is accepted."""
    x = torch.tensor(start, dtype=torch.float64)
    eye = torch.eye(len(x), dtype=torch.float64)
    H, gradient, points = None, torch.func.grad(function)(x), []
    for _ in range(n_steps):
        direction = -gradient if H is None else -H @ gradient
        length = 1.0 / float(gradient.abs().sum()) if H is None and scaled else 1.0
        assert function(x + length * direction) <= function(x) + 1e-4 * length * gradient @ direction
        s, y = length * direction, torch.func.grad(function)(x + length * direction) - gradient
        x, gradient = x + s, gradient + y
        H = eye * (s @ s / (s @ y) if scaled else 1.0) if H is None else H
        left = eye - torch.outer(s, y) / (s @ y)
        H = left @ H @ left.T + torch.outer(s, s) / (s @ y)
        points.append(x)
    return points


@pytest.mark.parametrize("options", [{}, {"initial_matrix": "scaled"}, {"initial_matrix": "identity"}], ids=repr)
def test_bfgs_by_the_book_from_either_matrix(options):
    """Step by step, where the first length is taken; without the option the matrix is scaled."""
    found = []
    x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    optimizer = BFGS([x], max_iter=4, callback=lambda iteration: found.append(x.detach().clone()), **options)

    def function(x):
        return 0.5 * (torch.tensor([0.6, 1.0, 1.4], dtype=x.dtype) * x**2).sum() + 0.01 * (x**4).sum()

    def closure():
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.result.line_search_trials == 4
    scaled = options.get("initial_matrix", "scaled") == "scaled"
    wanted = by_the_book(function, [1.0, -2.0, 0.5], scaled, 4)
    for here, there in zip(found, wanted, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"initial_matrix": "identity"}], ids=repr)
def test_the_first_step_and_the_one_after_a_reset(options):
    """The textbook's is the gradient itself, to the bit; the default's is of unit size in the sum of magnitudes."""
    weights = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)
    x = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    optimizer = BFGS([x], max_iter=2, **options)

    def closure():
        optimizer.zero_grad()
        loss = 0.5 * (weights * x**2).sum()
        loss.backward()
        return loss

    points = []
    optimizer.callback = lambda iteration: points.append(x.detach().clone())
    for _ in range(2):
        before = x.detach().clone()
        gradient, length = weights * before, 1.0
        if not options:
            length = min(1.0, 1.0 / float(gradient.abs().sum()))
        points.clear()
        optimizer.step(closure)
        assert torch.equal(points[0], torch.add(before, -gradient, alpha=length))
        assert not torch.equal(points[1], points[0] - weights * points[0])
        optimizer.reset()


@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_a_step_without_curvature_teaches_nothing(kind):
    _, optimizer, _ = run(kind, torch.sum, [1.0, 2.0], max_iter=3)
    assert optimizer.result.iterations == 3
    assert optimizer.state_dict()["state"] == {}


def test_it_stops_at_the_iteration_limit_and_says_so():
    x, optimizer, loss = run(BFGS, rosenbrock, [-1.2, 1.0], max_iter=3)
    assert loss.item() == optimizer.result.loss == rosenbrock(x).item()
    assert optimizer.result.status is Status.ITERATION_LIMIT
    assert optimizer.result.iterations == 3
    assert optimizer.result.evaluations == 1 + optimizer.result.line_search_trials


def test_options_are_as_described_where_none_are_given():
    optimizer = BFGS([torch.zeros(2, requires_grad=True)])
    assert (optimizer.max_iter, optimizer.tolerance_grad) == (100, 1e-6)
    assert (DECREASE, SHORTEST, LONGEST, MAX_TRIALS) == (1e-4, 0.1, 0.5, 20)


def test_losses_never_rise():
    losses = []
    run(LBFGS, rosenbrock, [-1.2, 1.0], callback=lambda iteration: losses.append(iteration.loss))
    assert all(b < a for a, b in itertools.pairwise(losses))


@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_a_cliff_of_nan_is_not_stepped_over(kind):
    """log(x) − x from far right: long steps end where the logarithm is not defined."""
    x, optimizer, loss = run(kind, lambda x: (x - torch.log(x)).sum(), [50.0, 3.0], max_iter=500, tolerance_grad=1e-5)
    assert torch.isfinite(x).all()
    assert optimizer.result.status is Status.CONVERGED
    assert float(loss) == pytest.approx(2.0, abs=1e-8)


def test_a_start_that_is_not_finite_is_left_alone():
    x, optimizer, _ = run(BFGS, lambda x: torch.log(x).sum(), [-1.0])
    assert optimizer.result.status is Status.NOT_FINITE
    assert x.tolist() == [-1.0]


def test_a_wrong_gradient_ends_in_a_failed_search_at_the_starting_point():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x**2).sum()

        @staticmethod
        def backward(ctx, g):
            return torch.full((2,), -1.0, dtype=torch.float64)

    x, optimizer, loss = run(BFGS, Wrong.apply, [1.0, 1.0])
    assert optimizer.result.status is Status.LINE_SEARCH_FAILED
    assert x.tolist() == [1.0, 1.0]
    assert float(loss) == 2.0


@pytest.mark.parametrize("turned", [1e-30, -1.0], ids=["too short", "uphill"])
def test_a_direction_that_leads_nowhere_is_given_up_for_steepest_descent(turned):
    x, optimizer, _ = run(BFGS, quadratic, [1.0, 2.0], max_iter=3)
    optimizer._curvature["matrix"] *= turned
    optimizer.max_iter = 1000

    def closure():
        optimizer.zero_grad()
        loss = quadratic(x)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.result.status is Status.CONVERGED


def test_an_interrupt_leaves_the_best_point():
    x = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = BFGS([x], max_iter=100)
    best = []

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        if len(best) == 10:
            raise KeyboardInterrupt
        return loss

    optimizer.callback = lambda iteration: best.append(x.detach().clone())
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    torch.testing.assert_close(x.detach(), best[-1], rtol=0, atol=0)


@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_saved_state_goes_on_bit_for_bit(kind):
    whole, _, _ = run(kind, rosenbrock, [-1.2, 1.0], max_iter=5)

    def advance(x, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = rosenbrock(x)
            loss.backward()
            return loss

        optimizer.step(closure)

    half, optimizer, _ = run(kind, rosenbrock, [-1.2, 1.0], max_iter=5)
    advance(half, optimizer)
    again, first, _ = run(kind, rosenbrock, [-1.2, 1.0], max_iter=5)
    second = kind([again], max_iter=5)
    assert first.state_dict().keys() == torch.optim.Adam([again]).state_dict().keys()
    second.load_state_dict(first.state_dict())
    advance(again, second)
    assert torch.equal(half, again)
    assert not torch.equal(half, whole)


def test_it_trains_a_module_and_ignores_frozen_parameters():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    module[0].weight.requires_grad_(False)
    frozen = module[0].weight.clone()
    x = torch.randn(50, 2, dtype=torch.float64)
    y = torch.sin(x.sum(1, keepdim=True))
    optimizer = BFGS(module.parameters(), max_iter=200)

    def closure():
        optimizer.zero_grad()
        loss = (module(x) - y).pow(2).mean()
        loss.backward()
        return loss

    before = float(closure().detach())
    assert float(optimizer.step(closure)) < 0.02 * before
    assert torch.equal(module[0].weight, frozen)


BAD = [
    ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
    ({"tolerance_grad": -1.0}, "tolerance_grad must be finite and not negative, got -1.0"),
    ({"tolerance_grad": math.nan}, "tolerance_grad must be finite and not negative, got nan"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        BFGS([torch.zeros(2, requires_grad=True)], **options)


def test_bad_calls():
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(InvalidArgumentError, match="closure must be given, got None"):
        BFGS([x]).step()
    with pytest.raises(InvalidArgumentError, match="params must be one group, got another; the search"):
        BFGS([{"params": [x]}, {"params": [torch.zeros(1, requires_grad=True)]}])
    with pytest.raises(InvalidArgumentError, match="initial_matrix must be one of 'scaled', 'identity', got 'unit'"):
        BFGS([x], initial_matrix="unit")
    with pytest.raises(InvalidArgumentError, match="history_size must be at least 1, got 0"):
        LBFGS([x], history_size=0)


def test_gradients_are_no_views_of_one_another():
    """Who keeps one of them does not keep them all."""
    parameters = [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (2, 3)]

    def closure():
        loss = sum(parameter.square().sum() for parameter in parameters)
        loss.backward()
        return loss

    BFGS(parameters, max_iter=1).step(closure)
    assert [parameter.grad.untyped_storage().nbytes() for parameter in parameters] == [2 * 8, 3 * 8]


def test_groups_added_later_are_refused():
    optimizer = BFGS([torch.zeros(2, requires_grad=True)])
    with pytest.raises(InvalidArgumentError, match="params must be one group, got another"):
        optimizer.add_param_group({"params": [torch.zeros(2, requires_grad=True)]})


def test_parameters_may_be_freed_and_frozen_between_steps():
    """What requires a gradient when a step begins is what it moves."""
    one, two = (torch.full((2,), 3.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    two.requires_grad_(False)
    optimizer = BFGS([one, two], max_iter=50)

    def closure():
        one.grad = two.grad = None
        loss = (one**2).sum() + (two - 1.0).pow(4).sum() + (one * two).sum() * 0.1
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.equal(two, torch.full((2,), 3.0, dtype=torch.float64))
    two.requires_grad_(True)
    optimizer.step(closure)
    assert optimizer.result.status == Status.CONVERGED
    assert (two - 3.0).abs().min() > 1.0
    assert two.grad.norm() < 1e-5


def test_parameters_of_several_dtypes():
    wide, narrow = torch.ones(2, dtype=torch.float64, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = BFGS([wide, narrow], max_iter=50, tolerance_grad=1e-5)

    def closure():
        wide.grad = narrow.grad = None
        loss = (wide - 2.0).square().sum() + (narrow.double() + wide).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.result.status == Status.CONVERGED
    assert (wide.dtype, narrow.dtype) == (torch.float64, torch.float32)
    assert narrow.grad.dtype == torch.float32
    torch.testing.assert_close(wide.detach(), torch.full((2,), 2.0, dtype=torch.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_a_state_of_other_parameters_is_refused(kind):
    """And nothing of it is taken."""
    _, optimizer, _ = run(kind, rosenbrock, [-1.2, 1.0], max_iter=5)
    state = optimizer.state_dict()
    other = kind([torch.zeros(3, dtype=torch.float64, requires_grad=True)])
    single = kind([torch.zeros(2, dtype=torch.float32, requires_grad=True)])
    for wrong in (other, single):
        with pytest.raises(InvalidArgumentError, match=r"state_dict must be one of BFGS for \d parameters"):
            wrong.load_state_dict(state)
        assert wrong.state_dict()["state"] == {}
    two, three = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    for surprise in ({"surprise": three}, {"matrix": two}, {"steps": two, "changes": three}):
        with pytest.raises(InvalidArgumentError, match="state_dict must be one of"):
            other.load_state_dict({"state": surprise})


SCHEDULERS = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, step_size=3),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=10),
    "ReduceLROnPlateau": lr_scheduler.ReduceLROnPlateau,
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=1.0),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "by hand": lambda optimizer: optimizer.param_groups[0].__setitem__("lr", 0.1),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("kind", [BFGS, LBFGS])
def test_schedulers_are_refused_in_words(kind, name):
    x, optimizer, _ = run(kind, quadratic, [1.0, 2.0], max_iter=3)
    words = (
        r"param_groups must be left without '\w*lr' and learning-rate schedulers, got one for an optimizer that "
        r"searches for the length of each step; leave it out, or use an optimizer such as torch\.optim\.Adam"
    )
    with pytest.raises(InvalidArgumentError, match=words):
        SCHEDULERS[name](optimizer)
    with pytest.raises(InvalidArgumentError, match="param_groups must be left without 'lr'"):
        kind([{"params": [x], "lr": 0.1}])
    (group,) = copy.deepcopy(optimizer).param_groups
    assert group.keys() == {"params"}, "nothing of it was taken"
