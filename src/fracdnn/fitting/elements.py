"""Elements of circuits and of viscoelastic bodies, and the strings that connect them: `R0-p(R1,CPE1)-W1`.

The notation is that of impedance.py: `-` in series, `p(…,…)` in parallel, an element is a kind with a number.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError

Values = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Kind:
    """What an element is: the endings of its parameters' names and H(s, log s, parameters).

    `energy` is "electric" where it stores charge, "magnetic" where it keeps a current going: a part that has both can
    oscillate.
    """

    suffixes: tuple[str, ...]
    immittance: Callable[..., torch.Tensor]
    energy: str = ""


def _finite(log_s: torch.Tensor, tau: torch.Tensor, *, is_open: bool) -> torch.Tensor:
    """coth(√(s tau))/√(s tau) of an open Warburg element, or with tanh, without overflow."""
    root = torch.exp(0.5 * log_s) * tau.sqrt()
    decayed = torch.exp(-2.0 * root)
    return ((1.0 + decayed) / (1.0 - decayed) if is_open else (1.0 - decayed) / (1.0 + decayed)) / root


# Impedances.
CIRCUIT = {
    "R": Kind(("",), lambda s, log_s, R: R + 0.0 * s),
    "C": Kind(("",), lambda s, log_s, C: (C * s) ** -1, "electric"),
    "L": Kind(("",), lambda s, log_s, L: L * s, "magnetic"),
    "CPE": Kind(("_Q", "_order"), lambda s, log_s, Q, order: torch.exp(-order * log_s) / Q, "electric"),
    # σ(1 − j)/√ω, as in impedance.py
    "W": Kind(("",), lambda s, log_s, W: math.sqrt(2.0) * W * torch.exp(-0.5 * log_s), "electric"),
    "Wo": Kind(("_Z", "_tau"), lambda s, log_s, Z, tau: Z * _finite(log_s, tau, is_open=True), "electric"),
    "Ws": Kind(("_Z", "_tau"), lambda s, log_s, Z, tau: Z * _finite(log_s, tau, is_open=False), "electric"),
}
# Moduli: a spring E, a dashpot D (its viscosity), a springpot S (V s^order).
BODY = {
    "E": Kind(("",), lambda s, log_s, E: E + 0.0 * s),
    "D": Kind(("",), lambda s, log_s, D: D * s),
    "S": Kind(("_V", "_order"), lambda s, log_s, V, order: V * torch.exp(order * log_s)),
}
_WORDS = {
    **{"R": "resistor", "C": "capacitor", "L": "inductor", "CPE": "constant-phase element", "W": "Warburg"},
    **{"Wo": "finite Warburg, open", "Ws": "finite Warburg, short", "E": "spring", "D": "dashpot", "S": "springpot"},
}


@dataclass(frozen=True)
class Element:
    """One element of a network: `CPE1` of kind "CPE" with parameters `CPE1_Q` and `CPE1_order`."""

    name: str
    kind: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Parts in series or parallel."""

    parallel: bool
    parts: tuple["Element | Group", ...]


def elements_of(part: Element | Group) -> Iterator[Element]:
    """All elements, in the order of the string."""
    if isinstance(part, Element):
        yield part
    else:
        for each in part.parts:
            yield from elements_of(each)


def parsed(description: str, kinds: dict[str, Kind]) -> Element | Group:
    """The network that a string describes."""
    if not isinstance(description, str):
        raise InvalidTypeError(
            f"description must be a string such as 'R0-p(R1,CPE1)', got {type(description).__name__}; pass a string"
        )
    text = re.sub(r"\s", "", description)
    network, end = _series(text, 0, kinds)
    if end < len(text):
        raise _wrong(text, end)
    names = [element.name for element in elements_of(network)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(
                f"description must name each element once, got {name!r} in {text!r} {names.count(name)} times; "
                f"number them"
            )
    return network


def _series(text: str, at: int, kinds: dict[str, Kind]) -> tuple[Element | Group, int]:
    part, at = _part(text, at, kinds)
    parts = [part]
    while text[at : at + 1] == "-":
        part, at = _part(text, at + 1, kinds)
        parts.append(part)
    return (part if len(parts) == 1 else Group(False, tuple(parts))), at


def _part(text: str, at: int, kinds: dict[str, Kind]) -> tuple[Element | Group, int]:
    if text.startswith("p(", at):
        closing, parts = ",", []
        at += 1
        while closing == ",":
            part, at = _series(text, at + 1, kinds)
            parts.append(part)
            closing = text[at : at + 1]
        if closing != ")" or len(parts) < 2:
            raise _wrong(text, at)
        return Group(True, tuple(parts)), at + 1
    found = re.compile(r"([A-Za-z]+)_?(\d*)").match(text, at)
    if found is None:
        raise _wrong(text, at)
    name, kind = found[0], found[1]
    if kind not in kinds:
        known = ", ".join(f"{each} ({_WORDS[each]})" for each in kinds)
        raise InvalidArgumentError(f"description must consist of {known}, got {name!r} in {text!r}; use one of these")
    return Element(name, kind, tuple(name + suffix for suffix in kinds[kind].suffixes)), found.end()


def _wrong(text: str, at: int) -> InvalidArgumentError:
    got = repr(text[at:]) if at < len(text) else "its end"
    return InvalidArgumentError(
        f"description must read like 'R0-p(R1,CPE1)', got {text!r} with {got} at character {at + 1}; "
        f"join parts by '-', or by ',' in p(…)"
    )
