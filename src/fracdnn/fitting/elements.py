"""Elements of circuits and of viscoelastic bodies, and the strings that connect them: `R0-p(R1,CPE1)-W1`.

The notation is that of impedance.py: `-` in series, `p(…,…)` in parallel, an element is a kind with a number.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError


@dataclass(frozen=True)
class Kind:
    """What an element is: a word, the endings of its parameters' names and H(s, log s, parameters).

    `energy` is "electric" where it stores charge, "magnetic" where it keeps a current going: a part that has both can
    oscillate.
    """

    word: str
    suffixes: tuple[str, ...]
    immittance: Callable[..., torch.Tensor]
    energy: str = ""


def _finite(s: torch.Tensor, log_s: torch.Tensor, Z: Any, tau: torch.Tensor, *, is_open: bool) -> torch.Tensor:
    """Z coth(√(s tau))/√(s tau) of an open Warburg element, or with tanh, without overflow."""
    root = torch.exp(0.5 * log_s) * tau.sqrt()
    decayed = torch.exp(-2.0 * root)
    return Z * (((1.0 + decayed) / (1.0 - decayed) if is_open else (1.0 - decayed) / (1.0 + decayed)) / root)


# Impedances; a Warburg element's is σ(1 − j)/√ω, as in impedance.py.
CIRCUIT = {
    "R": Kind("resistor", ("",), lambda s, log_s, R: R + 0.0 * s),
    "C": Kind("capacitor", ("",), lambda s, log_s, C: (C * s) ** -1, "electric"),
    "L": Kind("inductor", ("",), lambda s, log_s, L: L * s, "magnetic"),
    "CPE": Kind(
        "constant-phase element", ("_Q", "_order"), lambda s, log_s, Q, order: torch.exp(-order * log_s) / Q, "electric"
    ),
    "W": Kind("Warburg", ("",), lambda s, log_s, W: math.sqrt(2.0) * W * torch.exp(-0.5 * log_s), "electric"),
    "Wo": Kind("finite Warburg, open", ("_Z", "_tau"), partial(_finite, is_open=True), "electric"),
    "Ws": Kind("finite Warburg, short", ("_Z", "_tau"), partial(_finite, is_open=False), "electric"),
}
# Moduli.
BODY = {
    "E": Kind("spring", ("",), lambda s, log_s, E: E + 0.0 * s),
    "D": Kind("dashpot", ("",), lambda s, log_s, D: D * s),
    "S": Kind("springpot", ("_V", "_order"), lambda s, log_s, V, order: V * torch.exp(order * log_s)),
}


@dataclass(frozen=True)
class Element:
    """One element of a network: `CPE1` of kind "CPE" with parameters `CPE1_Q` and `CPE1_order`."""

    name: str
    kind: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    parallel: bool
    parts: tuple["Element | Group", ...]


def elements_of(part: Element | Group) -> list[Element]:
    """All elements, in the order of the string."""
    return [part] if isinstance(part, Element) else [each for inner in part.parts for each in elements_of(inner)]


def parsed(description: str, kinds: dict[str, Kind]) -> Element | Group:
    if not isinstance(description, str):
        raise InvalidTypeError(
            f"description must be a string such as 'R0-p(R1,CPE1)', got {type(description).__name__}; pass a string"
        )
    text = re.sub(r"\s", "", description)
    network, end = _joined(text, 0, kinds, "-")
    if end < len(text):
        raise _wrong(text, end)
    for name, n in Counter(element.name for element in elements_of(network)).items():
        if n > 1:
            raise InvalidArgumentError(
                f"description must name each element once, got {name!r} in {text!r} {n} times; number them"
            )
    return network


def _joined(text: str, at: int, kinds: dict[str, Kind], mark: str) -> tuple[Element | Group, int]:
    """What marks join from a place on, in series by "-", else in parallel, and the place behind it."""
    parts: list[Element | Group] = []
    while not parts or text[at : at + 1] == mark:
        at += bool(parts)
        part, at = _element(text, at, kinds) if mark == "-" else _joined(text, at, kinds, "-")
        parts.append(part)
    return parts[0] if len(parts) == 1 else Group(mark == ",", tuple(parts)), at


def _element(text: str, at: int, kinds: dict[str, Kind]) -> tuple[Element | Group, int]:
    """An element or p(…,…), and the place behind it."""
    if text.startswith("p(", at):
        group, end = _joined(text, at + 2, kinds, ",")
        if text[end : end + 1] != ")" or not (isinstance(group, Group) and group.parallel):
            raise _wrong(text, end)
        return group, end + 1
    found = re.compile(r"([A-Za-z]+)_?(\d*)").match(text, at)
    if found is None:
        raise _wrong(text, at)
    name, kind = found[0], found[1]
    if kind not in kinds:
        known = ", ".join(f"{each} ({kinds[each].word})" for each in kinds)
        raise InvalidArgumentError(f"description must consist of {known}, got {name!r} in {text!r}; use one of these")
    return Element(name, kind, tuple(name + suffix for suffix in kinds[kind].suffixes)), found.end()


def _wrong(text: str, at: int) -> InvalidArgumentError:
    got = repr(text[at:]) if at < len(text) else "its end"
    return InvalidArgumentError(
        f"description must read like 'R0-p(R1,CPE1)', got {text!r} with {got} at character {at + 1}; "
        f"join parts by '-', or by ',' in p(…)"
    )
