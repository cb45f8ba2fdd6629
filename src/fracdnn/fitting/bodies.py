"""Circuits and viscoelastic bodies: one description gives spectra and responses in time.

The notation, as in `R0-p(R1,CPE1)-W1`, is that of impedance.py: `-` in series, `p(…,…)` in parallel, an element is a
kind with a number.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.fitting.arguments import check_positive
from fracdnn.fitting.laplace import AT_ONCE, as_signal, step_response
from fracdnn.validation import check_numbers

# As AT_ONCE, for networks whose response to a jump is without bound at that moment.
_SOON = 1e-9


class Kind(NamedTuple):
    """What an element is: a word, the endings of its parameters' names and H(s, log s, parameters)."""

    word: str
    suffixes: tuple[str, ...]
    immittance: Callable[..., torch.Tensor]


def _finite(s: torch.Tensor, log_s: torch.Tensor, Z: Any, tau: torch.Tensor, *, is_open: bool) -> torch.Tensor:
    """Z coth(√(s tau))/√(s tau) of an open Warburg element, or with tanh, without overflow."""
    root = torch.exp(0.5 * log_s) * tau.sqrt()
    decayed = torch.exp(-2.0 * root)
    return Z * (((1.0 + decayed) / (1.0 - decayed) if is_open else (1.0 - decayed) / (1.0 + decayed)) / root)


# Impedances; a Warburg element's is σ(1 − j)/√ω, as in impedance.py.
CIRCUIT = {
    "R": Kind("resistor", ("",), lambda s, log_s, R: R + 0.0 * s),
    "C": Kind("capacitor", ("",), lambda s, log_s, C: (C * s) ** -1),
    "L": Kind("inductor", ("",), lambda s, log_s, L: L * s),
    "CPE": Kind("constant-phase element", ("_Q", "_order"), lambda s, log_s, Q, order: torch.exp(-order * log_s) / Q),
    "W": Kind("Warburg", ("",), lambda s, log_s, W: math.sqrt(2.0) * W * torch.exp(-0.5 * log_s)),
    "Wo": Kind("finite Warburg, open", ("_Z", "_tau"), partial(_finite, is_open=True)),
    "Ws": Kind("finite Warburg, short", ("_Z", "_tau"), partial(_finite, is_open=False)),
}
# Moduli.
BODY = {
    "E": Kind("spring", ("",), lambda s, log_s, E: E + 0.0 * s),
    "D": Kind("dashpot", ("",), lambda s, log_s, D: D * s),
    "S": Kind("springpot", ("_V", "_order"), lambda s, log_s, V, order: V * torch.exp(order * log_s)),
}


class Element(NamedTuple):
    """One element of a network: `CPE1` of kind "CPE" with parameters `CPE1_Q` and `CPE1_order`."""

    name: str
    kind: str
    parameters: tuple[str, ...]


class Group(NamedTuple):
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


class _Network:
    """Elements in series and parallel; H(s) is the impedance of a circuit and the modulus of a body."""

    _kinds: ClassVar[dict[str, Kind]]
    _adds_parallel = False

    def __init__(self, description: str) -> None:
        self.description, self._root = description, parsed(description, self._kinds)
        self._elements = elements_of(self._root)
        self.names = tuple(name for element in self._elements for name in element.parameters)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description!r})"

    def _immittance(self, parameters: dict[str, Any], inverse: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
        """H, or 1/H, as a function of s. Parameters of others are left alone."""
        missing = [name for name in self.names if name not in parameters]
        if missing:
            raise InvalidArgumentError(f"parameters must hold {', '.join(self.names)}, got no {missing[0]}; pass all")
        numbers = {name: torch.as_tensor(parameters[name], dtype=torch.float64) for name in self.names}

        def evaluated(part: Element | Group, s: torch.Tensor, log_s: torch.Tensor) -> torch.Tensor:
            if isinstance(part, Element):
                return self._kinds[part.kind].immittance(s, log_s, *(numbers[name] for name in part.parameters))
            values = [evaluated(each, s, log_s) for each in part.parts]
            if part.parallel == self._adds_parallel:
                return torch.stack(values).sum(0)
            # A power costs a third of 1/x in torch's forward derivatives.
            return torch.stack([value**-1 for value in values]).sum(0) ** -1

        if inverse:
            return lambda s: evaluated(self._root, s, torch.log(s)) ** -1
        return lambda s: evaluated(self._root, s, torch.log(s))

    def guess(self, omega: Any, data: Any) -> dict[str, tuple[float, float, float]]:
        """Start values and bounds for `fracdnn.fit`, from a measured spectrum; use them with `n_starts=8` or so.

        Time constants are spread over its frequencies. For a relaxation pass 1/t as omega.
        """
        omega, values = _check_frequencies(omega), check_numbers(data, "data")
        if values.shape != omega.shape:
            raise InvalidArgumentError(
                f"data must have one value for each of the {len(omega)} frequencies, got shape {tuple(values.shape)}; "
                f"pass as many"
            )
        size = values.abs().clamp(min=1e-300)
        is_inductive = self._adds_parallel or any(each.kind == "L" for each in self._elements)
        n_positive = int((values.imag > 0).sum()) if values.is_complex() else 0
        if not is_inductive and n_positive > 0.8 * len(values):
            raise InvalidArgumentError(
                f"data must have negative imaginary parts, as impedances without inductors do, got {n_positive} "
                f"positive ones of {len(values)}; change the sign of the imaginary part"
            )
        stores = [each for each in self._elements if each.kind not in ("R", "E", "L")]
        lowest, highest = float(omega.log().min()), float(omega.log().max())
        middle = float(size.log().mean().exp())
        found: dict[str, tuple[float, float, float]] = {}
        for element in self._elements:
            place = (stores.index(element) + 1) / (len(stores) + 1) if element in stores else 0.5
            w = math.exp(highest - place * (highest - lowest))
            # The first resistor is what the spectrum falls to.
            unit = float(size.min()) if element is self._elements[0] and element.kind == "R" else middle
            choices = {
                **{"C": [1 / (w * unit)], "CPE": [1 / (w**0.8 * unit), 0.8], "W": [unit * math.sqrt(w / 2)]},
                **{"R": [unit], "L": [0.1 * float(size.min() / omega.max())], "Wo": [unit, 1 / w], "Ws": [unit, 1 / w]},
                **{"E": [unit], "D": [unit / w], "S": [unit / w**0.5, 0.5]},
            }
            for name, start in zip(element.parameters, choices[element.kind], strict=True):
                found[name] = (start, 0.02, 1.0) if "order" in name else (start, 0.0, math.inf)
        return found


class Circuit(_Network):
    """A circuit such as `Circuit("R0-p(R1,CPE1)-W1")`, in impedance.py's notation.

    Elements and their parameters: resistor `R1`, capacitor `C1`, inductor `L1`, constant-phase element
    1/(`CPE1_Q` s^`CPE1_order`), Warburg σ(1 − j)/√ω with σ = `W1`; finite ones of size Z and time tau, open
    (`Wo1_Z`, `Wo1_tau`: Z coth(√(s tau))/√(s tau)) and short (`Ws1_Z`, `Ws1_tau`, with tanh). `names` lists them.
    All results are differentiable in the parameters; further parameters are ignored, so that fits can share them.
    """

    _kinds = CIRCUIT

    def impedance(self, omega: Any, **parameters: Any) -> torch.Tensor:
        """Z(jω), complex [n], at angular frequencies omega = 2πf [n]."""
        return self._immittance(parameters)(1j * _check_frequencies(omega))

    def voltage(self, t: Any, current: Any, **parameters: Any) -> torch.Tensor:
        """V(t) [n] for a current, a `Signal` or a pair (times, values), from rest.

        From Z(s) by a contour integral, to about 12 digits; an inductor's spike at a jump of the current is left out.
        """
        root = self._root
        for part in root.parts if isinstance(root, Group) and not root.parallel else (root,):
            self._check_damped(part, "current")
        soon = _SOON if any(each.kind == "L" for each in self._elements) else AT_ONCE
        return as_signal(current, "current").response(self._immittance(parameters), t, soon)

    def current(self, t: Any, voltage: Any, **parameters: Any) -> torch.Tensor:
        """I(t) [n] for a voltage, a `Signal` or a pair (times, values), from rest; see `voltage`."""
        self._check_damped(self._root, "voltage")
        return as_signal(voltage, "voltage").response(self._immittance(parameters, inverse=True), t, _SOON)

    def _check_damped(self, part: Element | Group, name: str) -> None:
        inside = elements_of(part)
        kinds = {each.kind for each in inside}
        if "L" in kinds and kinds - {"L", "R"}:
            raise InvalidArgumentError(
                f"{name} must not drive an inductor together with a capacitor, which may oscillate, got "
                f"{'-'.join(each.name for each in inside)} in {self.description}; solve its equations by fracdnn.fdeint"
            )


class Body(_Network):
    """A viscoelastic body such as the fractional Zener model `Body("p(E0,E1-S1)")`.

    Elements: spring `E1` (its modulus), dashpot `D1` (its viscosity), springpot `S1_V` s^`S1_order`; `-` in series,
    p(…) in parallel. `names` lists the parameters. All results are differentiable in them.
    """

    _kinds, _adds_parallel = BODY, True

    def modulus(self, omega: Any, **parameters: Any) -> torch.Tensor:
        """G*(ω) = G′ + jG″, complex [n], at angular frequencies [n]."""
        return self._immittance(parameters)(1j * _check_frequencies(omega))

    def relaxation(self, t: Any, **parameters: Any) -> torch.Tensor:
        """G(t), the stress [n] after a unit step of strain at 0, at positive times."""
        t = check_positive(t, "t", "relaxation starts after the step at 0")
        return step_response(self._immittance(parameters), t)

    def creep(self, t: Any, **parameters: Any) -> torch.Tensor:
        """J(t), the strain [n] after a unit step of stress at 0, at positive times."""
        t = check_positive(t, "t", "creep starts after the step at 0")
        return step_response(self._immittance(parameters, inverse=True), t)

    def stress(self, t: Any, strain: Any, **parameters: Any) -> torch.Tensor:
        """The stress [n] for a strain, a `Signal` or a pair (times, values), from rest."""
        return as_signal(strain, "strain").response(self._immittance(parameters), t, _SOON)

    def strain(self, t: Any, stress: Any, **parameters: Any) -> torch.Tensor:
        """The strain [n] for a stress, a `Signal` or a pair (times, values), from rest."""
        return as_signal(stress, "stress").response(self._immittance(parameters, inverse=True), t)


def _check_frequencies(omega: Any) -> torch.Tensor:
    return check_positive(omega, "omega", "a spectrum is given at positive frequencies; drop the others")
