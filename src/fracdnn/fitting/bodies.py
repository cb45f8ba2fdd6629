"""Circuits and viscoelastic bodies: one description gives spectra and responses in time."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.fitting.arguments import check_positive
from fracdnn.fitting.elements import BODY, CIRCUIT, Element, Group, Kind, elements_of, parsed
from fracdnn.fitting.laplace import AT_ONCE, as_signal, step_response
from fracdnn.validation import check_numbers

# As AT_ONCE, for networks whose response to a jump is without bound at that moment.
_SOON = 1e-9


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
        if {"electric", "magnetic"} <= {self._kinds[each.kind].energy for each in inside}:
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
