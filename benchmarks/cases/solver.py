"""`fdeint`, forward + backward, against solvers of other packages, and a long scalar solve.

The equation is d_t^order y = y A for 256 samples in 32 dimensions with a symmetric A, float32, one thread, to T = 1.
Its solution y_0 E_order(A) and the gradient for A are known in closed form (Mittag-Leffler of the eigenvalues, divided
differences of it), so that every solver answers to the same exact numbers, Euler's to those of order 1.
"""

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import torch

from benchmarks import peers
from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.ways import distance, double_loop
from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.solver import Given

ORDER, BATCH, WIDTH = 0.5, 256, 32
FRACTIONAL = ("ours", "ours, exact", "ours, all times", "ours, PECE", "naive", "fdeint (PyPI)")
PACKAGES = {
    "fdeint (PyPI)": "FDEint",
    "torchdiffeq": "torchdiffeq",
    "torchdiffeq, all times": "torchdiffeq",
    "torchode": "torchode",
}
TARGETS = (
    Target("fdeint, 128 steps: ours / torchdiffeq's Euler, time", "ours", "torchdiffeq", at_most=2),
    Target("fdeint, 128 steps: PyPI's fdeint / ours, time", "fdeint (PyPI)", "ours", at_least=5),
    Target("PECE, 128 steps: PyPI's fdeint / ours, time", "fdeint (PyPI)", "ours, PECE", at_least=20),
    Target("fdeint, 128 steps: PyPI's fdeint / ours, memory", "fdeint (PyPI)", "ours", "memory", at_least=10),
    Target("fdeint, 128 steps: the same, live memory", "fdeint (PyPI)", "ours", "live_memory", at_least=10),
)


class Linear:
    """d_t^order y = y A, and its exact solution and gradient at T = 1 for the loss Σ c y."""

    def __init__(self, n_steps: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.n_steps = n_steps
        self.eigenvalues = np.linspace(-2.0, -0.2, WIDTH)
        basis = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator))[0]
        self.basis = basis.numpy()
        A = self.basis @ np.diag(self.eigenvalues) @ self.basis.T
        self.A = torch.tensor(A, dtype=torch.float32, requires_grad=True)
        self.y0 = torch.randn(BATCH, WIDTH, generator=generator)
        self.c = torch.randn(BATCH, WIDTH, generator=generator)
        self.solve: dict[str, Callable[[], torch.Tensor]] = {
            "ours": partial(self._ours, "auto"),
            "ours, exact": partial(self._ours, False),
            "ours, all times": lambda: self._ours("auto", all_times=True)[-1],
            "ours, PECE": self._ours_pece,
            "naive": lambda: double_loop(lambda j, y: y @ self.A, self.y0, n_steps, ORDER, 1 / n_steps),
            "fdeint (PyPI)": lambda: peers.fdeint_pece(self.field, self.y0, 1.0, n_steps, ORDER),
            "torchdiffeq": partial(peers.torchdiffeq_euler, self.field, self.y0, 1.0, n_steps, all_times=False),
            "torchdiffeq, all times": partial(
                peers.torchdiffeq_euler, self.field, self.y0, 1.0, n_steps, all_times=True
            ),
            "torchode": lambda: peers.torchode_euler(self.field, self.y0, 1.0, n_steps),
        }

    def field(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y @ self.A

    def _ours(self, compress: bool | str, *, all_times: bool = False) -> torch.Tensor:
        t = torch.linspace(0, 1, self.n_steps + 1, dtype=torch.float64)
        way = {"method": "l1", "grid": Given(), "options": {"compress": compress}}
        return fdeint(self.field, self.y0, t, order=ORDER, trajectory=all_times, **way)

    def _ours_pece(self) -> torch.Tensor:
        way = {"method": "pece", "n_steps": self.n_steps, "trajectory": False}
        return fdeint(self.field, self.y0, [0.0, 1.0], order=ORDER, **way)

    def run(self, name: str) -> None:
        (self.solve[name]() * self.c).sum().backward()

    def clear(self) -> None:
        self.A.grad = None

    @cached_property
    def exact(self) -> dict[float, list[torch.Tensor]]:
        return {order: self._exact(order) for order in (ORDER, 1.0)}

    def _exact(self, order: float) -> list[torch.Tensor]:
        """y(1) = y_0 Q E(Λ) Qᵀ; the gradient is Q (F ∘ Qᵀ y_0ᵀ c Q) Qᵀ with F the divided differences of E."""
        values = np.array([mittag_leffler(z, order) for z in self.eigenvalues])
        slopes = np.array([mittag_leffler(z, order, order) / order for z in self.eigenvalues])
        gaps = np.subtract.outer(self.eigenvalues, self.eigenvalues)
        np.fill_diagonal(gaps, 1.0)
        divided = np.subtract.outer(values, values) / gaps + np.diag(slopes)
        Q, y0, c = self.basis, self.y0.double().numpy(), self.c.double().numpy()
        solution = y0 @ Q @ np.diag(values) @ Q.T
        gradient = Q @ (divided * (Q.T @ y0.T @ c @ Q)) @ Q.T
        return [torch.from_numpy(solution).float(), torch.from_numpy(gradient).float()]

    def error(self, name: str) -> float:
        result = self.solve[name]()
        (gradient,) = torch.autograd.grad((result * self.c).sum(), self.A)
        return distance([result, gradient], self.exact[ORDER if name in FRACTIONAL else 1.0])


def rival(name: str, problem: Linear) -> Rival:
    """All schemes here are of first order at least, with error constants below 2 at these eigenvalues."""
    __import__(PACKAGES.get(name, "fracdnn"))
    return Rival(
        partial(problem.run, name), partial(problem.error, name), tolerance=2 / problem.n_steps, prepare=problem.clear
    )


def cases(options: Options) -> list[Case]:
    # Beyond, memory or patience ends.
    reach = {"naive": 128, "fdeint (PyPI)": 256, "torchdiffeq, all times": 256}
    sizes = (16, 32) if options.quick else (32, 64, 128, 256, 512, 1024)
    names = [*FRACTIONAL, "torchdiffeq", "torchdiffeq, all times", "torchode"]
    return [
        Case(
            name=f"{n} steps",
            settings={"steps": n},
            build=partial(Linear, n),
            rivals={name: partial(rival, name) for name in names if n <= reach.get(name, n)},
            turns=2 if options.quick else 9 if n <= 256 else 5,
            limits={"naive": 3, "fdeint (PyPI)": 5 if n <= 128 else 3},
            memory=tuple(name for name in names if n <= reach.get(name, n)) if n >= 32 else (),
            threads=1,
            targets=TARGETS if n in (32, 128) and options.quick == (n == 32) else (),
        )
        for n in sizes
    ]


SOLVER = Group(
    "solver", "fdeint and its peers, d_t^0.5 y = yA, 256 x 32, float32, one thread, forward + backward", cases
)
