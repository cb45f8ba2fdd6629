"""Dataclasses that hold tensors or arrays compare by identity: `==` of tensors is no single answer, so it raises."""

import dataclasses
import inspect
import pkgutil
import re
from importlib import import_module

import torch

import fracdnn
from fracdnn.training.normalization import Standardization

HOLDS_NUMBERS = re.compile(r"\b(Tensor|ndarray)\b")


def dataclasses_of_the_package():
    """Return all dataclasses that are defined in the package, but of modules that need a package that is missing."""
    found = []
    for module in pkgutil.walk_packages(fracdnn.__path__, "fracdnn."):
        if not module.name.endswith("__main__"):
            members = vars(import_module(module.name)).values()
            found += [each for each in members if inspect.isclass(each) and each.__module__ == module.name]
    return [each for each in found if dataclasses.is_dataclass(each)]


def holds_numbers(kind, among):
    """Return True if a field is a tensor or an array, or one of the dataclasses whose names are in `among`."""
    types = [field.type for field in dataclasses.fields(kind) if field.compare]
    annotations = " ".join(each.__name__ if inspect.isclass(each) else str(each) for each in types)
    return HOLDS_NUMBERS.search(annotations) or any(re.search(rf"\b{name}\b", annotations) for name in among)


def test_dataclasses_with_tensors_compare_by_identity():
    """Two of them can be compared, put in sets and looked for in lists."""
    kinds, names = dataclasses_of_the_package(), set()
    while more := {kind.__name__ for kind in kinds if kind.__name__ not in names and holds_numbers(kind, names)}:
        names |= more
    assert {"Standardization", "Solution", "Calibration", "SetResult", "FitResult"} <= names
    wrong = [kind for kind in kinds if kind.__name__ in names and kind.__eq__ is not object.__eq__]
    wrong = [f"{kind.__module__}.{kind.__name__}" for kind in wrong]
    assert not wrong, f"use @dataclass(eq=False) for {', '.join(wrong)}"


def test_equal_numbers_are_no_error():
    first, second = (Standardization(torch.zeros(2), torch.ones(2)) for _ in range(2))
    assert first == first
    assert first != second
    assert second in {first, second}
