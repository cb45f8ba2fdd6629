"""Cases with a story, each of which the solver once got wrong, never finished, or answered with a raw error."""

from tests.campaign.hard.case import Case

# Two components 1e6 apart, of which the small one is the nonlinear one.
APART = {
    "linear": [0.1, 0.0],
    "cubic": [0.0, 5.0],
    "forcing": [0.0, 0.0],
    "frequency": [1.0, 1.0],
    "coupling": 0.0,
    "scales": [1e6, 1.0],
    "first": [1.0, 1.0],
}
MILD = {**APART, "linear": [1.0, 0.5], "cubic": [0.0, 0.3], "forcing": [0.3, 0.7]}
CUBIC = {**MILD, "linear": [2.72, 2.67], "cubic": [4.09, 0.262], "frequency": [2.73, 2.41], "scales": [1.0, 1.0]}
FURTHER = {**APART, "scales": [1e8, 1e-4]}

CASES = {
    "a large component, trapezoidal": Case(
        "steps", method="trapezoidal", grid="uniform", n_steps=20, mode="no_grad", given=APART
    ),
    "a large component, implicit L1": Case("steps", method="l1-implicit", grid="graded", n_steps=20, given=FURTHER),
    "a large component, collocation": Case("system", rtol=1e-4, mode="no_grad", given=APART),
    "a large component, collocation on panels": Case(
        "panels", method="collocation", grid="uniform", n_steps=6, given=FURTHER
    ),
    "float32 on panels": Case(
        "panels", order=0.815, method="collocation", grid="graded", n_steps=4, dtype="float32", given=CUBIC
    ),
    "Robertson's reaction in other units": Case(
        "stiff at order 1",
        order=1.0,
        rtol=1e-4,
        outputs="end",
        given={"stiff": 1e4, "length": 267.0, "scales": [537.0, 5e-4, 4e-8]},
    ),
    "Robertson's reaction, which has another root": Case(
        "stiff at order 1",
        order=1.0,
        rtol=9.69e-4,
        outputs="end",
        given={"stiff": 1e4, "length": 1880.0, "scales": [1.0, 1.0, 1.0]},
    ),
    "an output just after a panel": Case(
        "panels", order=0.3, method="collocation", grid="uniform", n_steps=6, given={**MILD, "after": 1e-9}
    ),
    "a transient, one output": Case(
        "transient",
        order=0.9,
        span=1e4,
        outputs="end",
        given={"fall": 1e4, "rate": 1e-3 * 1e4**0.9, "size": 1e4**0.9, "scale": 1.0},
    ),
    "a short pulse, small order": Case(
        "pulse", order=0.26, given={"begin": 0.508, "width": 2e-6, "rate": 0.153, "scale": 1e-3, "told": True}
    ),
    "a pulse of which a millionth is left": Case(
        "pulse",
        order=0.189,
        span=83000.0,
        rtol=9.15e-8,
        outputs="end",
        given={"begin": 0.2566, "width": 1.88e-5, "rate": 5.08, "scale": 4.71e6, "told": True},
    ),
    "a pulse in a very short span": Case(
        "pulse",
        order=0.835,
        span=9.23e-12,
        mode="no_grad",
        rtol=4.78e-6,
        given={"begin": 0.7104, "width": 2.09e-6, "rate": 0.0802, "scale": 0.0142, "told": True},
    ),
    "a transient, small order": Case(
        "transient",
        order=0.231,
        span=4.03e11,
        mode="no_grad",
        rtol=6.93e-7,
        outputs="end",
        given={"fall": 12000.0, "rate": 0.719, "size": 3560.0, "scale": 2.49e-4},
    ),
    "a steep start": Case("steep start", order=1.0, mode="no_grad", given={"small": 1e-12, "size": 1.0}),
    "an integrable singularity": Case("power", order=1.0, given={"p": 0.5, "size": 1.0, "first": 0.0}),
    "a singularity beyond the shortest step": Case(
        "power", order=0.477, span=16.8, rtol=1.12e-5, given={"p": 0.91, "size": 0.191, "first": 0.0}
    ),
    "stiff steps found without a matrix, walked over for a gradient": Case(
        "diffusion", order=0.413, rtol=8.58e-4, outputs="end", given={"cells": 99, "kappa": 0.181, "scale": 87.9}
    ),
    "errors of steps that grow above order 1": Case(
        "chosen",
        order=2.0,
        method="trapezoidal",
        mode="inference",
        rtol=2.7e-5,
        outputs="end",
        given={
            "coefficients": [[0.545]],
            "exponents": [[2.0]],
            "scales": [1.0],
            "first": [1.0],
            "stiff": [0.223],
            "cubic": [0.0],
            "coupling": 0.0,
        },
    ),
    "1/t": Case("power", order=1.0, given={"p": 1.0, "size": 1.0, "first": 0.0}),
    "t^-1.5": Case("power", order=0.7, given={"p": 1.5, "size": 1.0, "first": 0.0}, mode="no_grad"),
    "late times in float32": Case(
        "steps",
        start=1e6,
        span=8.0,
        times="float32",
        method="adams",
        grid="given",
        n_steps=4,
        given={**MILD, "nodes": [0.0, 0.25, 0.5078125, 0.75, 1.0]},
    ),
    "an explosion, adams": Case(
        "explosion", order=0.5, grid="uniform", method="adams", n_steps=40, given={"rates": [50.0], "scales": [1.0]}
    ),
    "an explosion, euler": Case(
        "explosion", order=1.0, grid="uniform", method="euler", n_steps=40, given={"rates": [500.0], "scales": [1e-6]}
    ),
    "an explosion of a small component": Case(
        "explosion",
        order=0.8,
        grid="uniform",
        method="pece",
        n_steps=40,
        given={"rates": [1.0, 1e3], "scales": [1e8, 1.0]},
    ),
    "10 bits": Case("noise", given={"rate": 1.0, "level": 0.5, "bits": 10, "scale": 1.0}),
    "10 bits, no_grad": Case(
        "noise", order=0.5, mode="no_grad", given={"rate": 3.0, "level": 0.1, "bits": 10, "scale": 1e3}
    ),
    "single precision inside": Case(
        "noise", order=0.6, rtol=1e-4, given={"rate": 2.0, "level": 0.3, "bits": 24, "scale": 1.0}
    ),
    "single precision inside, by differences": Case(
        "large and noisy",
        order=0.255,
        mode="inference",
        rtol=1.11e-4,
        given={"rates": [7.18, 3.77], "scales": [291000.0, 1.0], "budget": 1000},
    ),
    "a sign": Case("sign", order=1.0, rtol=1e-4, given={"size": 2.0}),
    "70 cells": Case("diffusion", given={"cells": 70, "kappa": 1.0, "scale": 1.0}),
    "a span of 1e100": Case("decay", span=1e100, given={"rates": [1.0], "scales": [1.0], "answer": "may refuse"}),
    "a span of 1e-300": Case("decay", span=1e-300, given={"rates": [1.0], "scales": [1.0], "answer": "may refuse"}),
    "NaN at the start": Case("bad start", given={"rate": 2.0, "value": "nan"}),
    "a quenching solution": Case("no solution", given={"what": "reciprocal", "size": 5.0}),
}
