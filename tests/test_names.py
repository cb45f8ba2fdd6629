"""One meaning for each parameter name in the public API."""

import inspect
from collections import defaultdict
from enum import Enum
from importlib import import_module

import fracdnn
from fracdnn.solver.rare_options import OPTIONS

ROOMS = [
    "fracdnn",
    *(f"fracdnn.{room}" for room in ("caputo", "datasets", "fitting", "memory", "nn", "optim", "solver", "training")),
]
# What functions give back: their fields are no parameters.
RESULTS = {
    *("ExponentialSum", "FitResult", "History", "Iteration", "Perfume", "Record", "Result", "Signal", "Solution"),
}

NUMBER, NUMBERS, TENSOR = "float | torch.Tensor", "float | Sequence[float] | ndarray | torch.Tensor", "torch.Tensor"
# Each name that several public functions or classes take: what it means everywhere, and the types it may have.
TOLERANCES = {"float | torch.Tensor | tuple[Any, ...]", "float | torch.Tensor | tuple[Any, ...] | None"}
MEANINGS = {
    "activation": ("nonlinearity of a layer", {"str", "str | Callable[[torch.Tensor], torch.Tensor]"}),
    "alpha": ("weight decay of all matrices, as in MLPClassifier", {"float"}),
    "atol": ("absolute error of a solution, for each component", TOLERANCES),
    "b": ("biases of a layer", {"torch.Tensor | None"}),
    "batch_size": ("samples in a mini-batch", {"int", "int | str"}),
    "beta": ("second parameter of the Mittag-Leffler function", {NUMBER}),
    "between": ("lowest and highest order of a distribution", {"tuple[float, float]"}),
    "checkpoint": ("recompute activations in the backward pass", {"bool"}),
    "checkpoint_path": ("file of a training's state", {"str | PathLike | None"}),
    "checkpoints": ("where and when a training writes its state", {"Checkpoints | None"}),
    "compress": ("whether far weights of the memory are exponentials", {"bool", "bool | str"}),
    "compress_tol": ("relative error of these", {"float", "float | None"}),
    "data": ("measured values", {"Any"}),
    "description": ("elements of a network in series and parallel", {"str"}),
    "device": ("where to compute", {"str | torch.device", "torch.device | str | None"}),
    "dtype": ("floating-point type of parameters and states", {"str", "torch.dtype", "torch.dtype | None"}),
    "early_stopping": ("stop by the loss of held-out samples", {"bool | str", "EarlyStopping | None"}),
    "func": ("right-hand side of an equation", {"Callable[[torch.Tensor, Any], Any]", "Callable[..., Any]"}),
    "generator": ("source of random numbers", {"Generator", "Generator | None"}),
    "grid": ("where the nodes of a solve lie", {"Adaptive | Uniform | Graded | Given | None", "Adaptive | None"}),
    "grid_shape": ("rows and columns of the features of a stencil", {"tuple[int, int]", "tuple[int, int] | None"}),
    "info": ("return a Solution", {"bool"}),
    "initial": ("value that learning starts from", {TENSOR}),
    "keep_interrupted": ("Ctrl-C ends a training and keeps its network", {"bool"}),
    "learn_order": ("make the order a parameter", {"bool", "bool | str"}),
    "learn_steps": ("make the step sizes parameters", {"bool"}),
    "learning_rate_init": ("first rate of Adam, as in MLPClassifier", {"float"}),
    "loss": ("name of what a deviation costs", {"str"}),
    "lr": ("learning rate, as in torch.optim", {"float", "float | torch.Tensor | None"}),
    "max_iter": ("most iterations; in estimators epochs of Adam, as in MLPClassifier", {"int", "int | str"}),
    "max_time": ("seconds after which a training ends", {"float | None"}),
    "model": ("function to fit, of t and parameters", {"Any"}),
    "n": ("how many", {"int"}),
    "n_layers": ("number of layers", {"int"}),
    "n_members": ("networks whose answers are averaged", {"int | str"}),
    "n_nodes": ("orders of a sum over a distribution of them", {"int"}),
    "network": ("network to train", {"FractionalNetwork"}),
    "objective": ("loss with its regularization", {"Objective"}),
    "operator": ("what K of a layer is", {"str"}),
    "optimizer": ("name of a line-search optimizer", {"str"}),
    "options": ("what is rarely needed, by name", {"dict[str, Any] | None"}),
    "order": ("order of the fractional derivative", {"float", "Any", NUMBER, TENSOR, NUMBERS}),
    "parameters": ("start values and bounds by name", {"Any"}),
    "path": ("file", {"str | PathLike", "str | PathLike[str] | None", "str | Path"}),
    "random_state": ("seed, as in scikit-learn", {"int | RandomState | None", "int | Generator | None"}),
    "resume": ("go on from a checkpoint", {"bool"}),
    "right_side": (
        "right-hand side of an equation of one unknown",
        {
            "Callable[[torch.Tensor, tuple[torch.Tensor, ...]], Any]",
            "Callable[[torch.Tensor, torch.Tensor], Any]",
        },
    ),
    "rtol": ("relative error of a solution, for each component", TOLERANCES),
    "side": ("from which end a derivative looks", {"str"}),
    "sigma": ("standard deviations of data", {"Any"}),
    "step_size": ("time from a layer or node to the next", {"float", f"{NUMBER} | None", NUMBER, TENSOR, NUMBERS}),
    "t": ("times", {"Any", TENSOR}),
    "target": ("labels or values to learn", {TENSOR}),
    "times": ("times of measured values", {"Any"}),
    "tolerance_grad": ("norm of the gradient at which optimization ends, as in torch.optim.LBFGS", {"float"}),
    "trajectory": ("return all states", {"bool"}),
    "values": ("values of a function at times", {"Any", "Samples"}),
    "verbose": ("show progress", {"bool"}),
    "weight": ("weights of samples", {"torch.Tensor | None"}),
    "width": ("features of a layer", {"int | None"}),
    "x": ("samples as rows", {TENSOR}),
    "y0": ("state at the start", {"Any", TENSOR}),
}


def public_callables():
    """By identity: what two rooms share counts once."""
    found = {}
    for room in map(import_module, ROOMS):
        for name in room.__all__:
            value = getattr(room, name)
            is_kind = inspect.isclass(value) and issubclass(value, Enum)
            if callable(value) and not is_kind and name not in RESULTS:
                found[id(value)] = value
    return list(found.values())


def annotation(parameter):
    """Its type without the modules that types live in."""
    text = parameter.annotation
    text = text if isinstance(text, str) else inspect.formatannotation(text)
    for prefix in (
        "collections.abc.",
        "numpy.random.mtrand.",
        "numpy.random._generator.",
        "numpy.",
        "pathlib.",
        "os.",
        "~",
    ):
        text = text.replace(prefix, "")
    for prefix in (
        "torch._C.",
        "typing.",
        "os.",
        "~",
        *(f"fracdnn.{part}." for part in ("nn.network", "solver.grids", "training.objective")),
    ):
        text = text.replace(prefix, "")
    return (
        text.replace("fracdnn.training.run.", "")
        .replace("fracdnn.training.checkpoints.", "")
        .replace("fracdnn.training.records.", "")
    )


def method_parameters():
    """Names of parameters of public methods, with the class and method that have them."""
    kinds = [each for each in public_callables() if inspect.isclass(each)]
    found = defaultdict(set)
    for kind in kinds:
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                for parameter in inspect.signature(method).parameters:
                    found[parameter].add(f"{kind.__name__}.{name}")
    return found


def uses():
    """The types of each parameter name, by the callable that has it."""
    found = defaultdict(dict)
    for value in public_callables():
        for parameter in inspect.signature(value).parameters.values():
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                found[parameter.name][value.__name__] = annotation(parameter)
    return found


def test_a_name_that_is_shared_has_one_meaning():
    """A new use of a known name must be of a type that its meaning allows; a name that becomes shared needs one."""
    shared = {name: owners for name, owners in uses().items() if len(owners) > 1}
    assert not shared.keys() - MEANINGS.keys(), "say what these mean, or rename one"
    assert not MEANINGS.keys() - shared.keys(), "no longer shared"
    wrong = {
        (name, owner): kind
        for name, owners in shared.items()
        for owner, kind in owners.items()
        if kind not in MEANINGS[name][1]
    }
    assert wrong == {}


def test_a_meaning_is_said_once():
    meanings = [meaning for meaning, _ in MEANINGS.values()]
    assert len(meanings) == len(set(meanings))


def test_signatures_stay_short():
    """`fdeint` was at 22 parameters once, the estimators at 38."""
    limits = {fracdnn.fdeint: 13, fracdnn.FractionalClassifier: 31, fracdnn.FractionalRegressor: 30}
    for each, most in limits.items():
        assert len(inspect.signature(each).parameters) <= most


def test_words_that_meant_two_things_are_gone():
    gone = {"history", "tolerance", "adjoint", "event", "learning_rate", "iterations", "stencil", "until", "looks"}
    assert not gone & (uses().keys() | method_parameters().keys())


def test_options_of_a_solve_mean_what_parameters_of_that_name_do():
    """Those that are shared: "linear" was also a way to open a network as modules."""
    options = OPTIONS.keys()
    assert options & uses().keys() == {"compress", "compress_tol", "checkpoint", "store"}
    assert options & method_parameters().keys() <= {"compress"}
