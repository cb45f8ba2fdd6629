"""Random cases of every kind, from a generator that is passed in."""

from tests.campaign.hard.case import Case

MODES = ("plain", "no_grad", "inference", "gradient")
FIXED = ("adams", "pece", "euler", "trapezoidal", "l1", "l1-implicit")


def log_uniform(random, low, high):
    return float(f"{10 ** random.uniform(low, high):.3g}")


def some_order(random, low=0.05, high=2.0):
    """Often one of the edges, where formulas change."""
    if low <= 1 <= high and random.random() < 0.2:
        return 1.0
    if high == 2 and random.random() < 0.05:
        return 2.0
    top = high if random.random() < 0.3 else min(high, 1.0)
    return round(random.uniform(low, top), 3)


def some_span(random):
    return 1.0 if random.random() < 0.5 else log_uniform(random, -12, 12)


def scales(random, count):
    """Components of one size, or up to 1e16 apart."""
    if random.random() < 0.3:
        return [1.0] * count
    return [log_uniform(random, -8, 8) for _ in range(count)]


def common(random, *, precise=9, gradient=True, single=True):
    """What every adaptive case has: tolerance, dtype, mode, outputs."""
    dtype = "float32" if single and random.random() < 0.2 else "float64"
    modes = MODES if gradient else MODES[:3]
    return {
        "rtol": log_uniform(random, -4.5 if dtype == "float32" else -precise, -3),
        "dtype": dtype,
        "mode": random.choice(modes),
        "outputs": random.choice(["all", "all", "end"]),
    }


def draw_decay(random):
    count = random.choice([1, 2, 3, 3, 32])
    orders = tuple(some_order(random) for _ in range(count)) if 1 < count < 4 and random.random() < 0.4 else None
    order = some_order(random) if orders is None else orders
    swings = max(orders or (order,)) > 1
    rates = [log_uniform(random, -2, 2 if swings else 8) for _ in range(count)]
    given = {"rates": rates, "scales": scales(random, count)}
    start = random.choice([0.0, 0.0, 0.0, -3.0, 1e6])
    span = round(random.uniform(0.5, 50), 2) if start else some_span(random)
    return Case("decay", order=order, span=span, start=start, given=given, **common(random))


def draw_extreme(random):
    span = random.choice([1e-300, 1e-100, 1e-30, 1e30, 1e100, 1e300])
    order = round(random.uniform(0.1, 1.0), 3)
    given = {"rates": [log_uniform(random, -1, 1)], "scales": [1.0], "answer": "may refuse"}
    return Case("decay", order=order, span=span, given=given, **common(random, single=False))


def draw_late(random):
    """Float32 times that are late, with a room of a few roundings between them; all of them can be represented."""
    nodes = [0.0, 0.25, 0.5078125, 0.75, 1.0]
    method = random.choice(["adams", "pece", "euler", "trapezoidal", "l1", "l1-implicit"])
    given = {**_system(random, 2, mild=True), "nodes": nodes}
    span, start = random.choice([(8.0, 1e6), (32.0, 1e6), (2048.0, 2.0**27)])
    mode, dtype = random.choice(MODES), random.choice(["float64", "float32"])
    return Case(
        "steps",
        order=some_order(random, 0.2, 1.0),
        span=span,
        start=start,
        times="float32",
        method=method,
        grid="given",
        n_steps=4,
        mode=mode,
        dtype=dtype,
        given=given,
    )


def draw_late_decay(random):
    """The same on adaptive grids: func asks for no time, so that only lengths of steps could be spoiled."""
    span, start = random.choice([(8.0, 1e6), (32.0, 1e6), (2048.0, 2.0**27)])
    count = random.choice([1, 2])
    rates = [log_uniform(random, -2, 4) for _ in range(count)]
    given = {"rates": rates, "scales": scales(random, count), "shares": [0.25, 0.5078125, 1.0]}
    order = some_order(random, 0.2, 1.0)
    return Case("decay", order=order, span=span, start=start, times="float32", given=given, **common(random, precise=7))


def draw_transient(random):
    given = {
        "fall": log_uniform(random, 0, 6),
        "rate": log_uniform(random, -2, 4),
        "size": log_uniform(random, 0, 6),
        "scale": log_uniform(random, -8, 8),
    }
    order = some_order(random, 0.1, 1.0)
    return Case("transient", order=order, span=some_span(random), given=given, **common(random, precise=7))


def draw_pulse(random):
    told = random.random() < 0.7
    width = random.choice([0.0, log_uniform(random, -6, -1.5)]) if told else 0.0
    given = {
        "begin": round(random.uniform(0.05, 0.95), 4),
        "width": width,
        "rate": log_uniform(random, -2, 3),
        "scale": log_uniform(random, -8, 8),
        "told": told,
    }
    options = common(random, precise=8 if told else 5, gradient=told, single=told)
    return Case("pulse", order=some_order(random, 0.1, 1.0), span=some_span(random), given=given, **options)


def draw_diffusion(random):
    given = {"cells": random.randint(10, 100), "kappa": log_uniform(random, -2, 1), "scale": log_uniform(random, -6, 6)}
    return Case("diffusion", order=some_order(random, 0.2, 1.0), given=given, **common(random, precise=6, single=False))


def draw_spiral(random):
    given = {
        "damping": log_uniform(random, -1, 2),
        "turn": log_uniform(random, -1, 1),
        "scales": scales(random, 2),
    }
    return Case("spiral", order=round(random.uniform(0.2, 1.0), 3), given=given, **common(random, precise=7))


def draw_chosen(random):
    count, terms = random.choice([1, 2, 3]), random.choice([1, 2, 3])
    orders = tuple(some_order(random) for _ in range(count))
    if random.random() < 0.5:
        orders = orders[:1] * count
    exponents = [[random.choice([0.0, p, 0.5, 1.0, 2.0]) for _ in range(terms)] for p in orders]
    stiff = [log_uniform(random, -1, 4 if p <= 1 else 1) for p in orders]
    given = {
        "coefficients": [[round(random.uniform(0.2, 1), 3) for _ in range(terms)] for _ in orders],
        "exponents": exponents,
        "scales": scales(random, count),
        "first": [float(random.randint(0, 1)) for _ in orders],
        "stiff": stiff,
        "cubic": [random.choice([0.0, log_uniform(random, -1, 3)]) for _ in orders],
        "coupling": random.choice([0.0, 0.1]) if count > 1 else 0.0,
    }
    order = orders if count > 1 and len(set(orders)) > 1 else orders[0]
    return Case("chosen", order=order, span=some_span(random), given=given, **common(random))


def draw_cubic(random):
    given = {"rate": log_uniform(random, -1, 8), "linear": log_uniform(random, -2, 1), "scales": scales(random, 2)}
    return Case("cubic at order 1", order=1.0, span=some_span(random), given=given, **common(random))


def draw_steep_start(random):
    given = {"small": log_uniform(random, -12, -1), "size": log_uniform(random, -1, 2)}
    order = 1.0 if random.random() < 0.6 else round(random.uniform(0.5, 0.95), 2)
    if order < 1:
        given["small"] = max(given["small"], 0.01)
    return Case("steep start", order=order, given=given, **common(random, precise=5 if order < 1 else 7, single=False))


def _system(random, count, *, mild=False):
    return {
        "linear": [log_uniform(random, -1, 0 if mild else 0.7) for _ in range(count)],
        "cubic": [random.choice([0.0, log_uniform(random, -1, 0 if mild else 0.7)]) for _ in range(count)],
        "forcing": [round(random.uniform(0, 1), 2) for _ in range(count)],
        "frequency": [round(random.uniform(0, 5), 2) for _ in range(count)],
        "coupling": random.choice([0.0, 0.05]) if count > 1 else 0.0,
        "scales": scales(random, count),
        "first": [round(random.uniform(0.3, 1), 2) for _ in range(count)],
    }


def draw_system(random):
    count = random.choice([1, 2, 3])
    order = tuple(round(random.uniform(0.35, 1.9), 2) for _ in range(count))
    order = order[0] if count == 1 or random.random() < 0.6 else order
    options = common(random, precise=4.5, single=False)
    return Case("system", order=order, span=some_span(random), given=_system(random, count), **options)


def draw_brusselator(random):
    given = {
        "b": round(random.uniform(0.5, 3), 2),
        "length": round(random.uniform(0.5, 4), 2),
        "scales": scales(random, 2),
    }
    order = tuple(round(random.uniform(0.5, 1), 2) for _ in range(2))
    options = common(random, precise=4.5, single=False)
    return Case("brusselator", order=order, span=some_span(random), given=given, **options)


def draw_stiff_at_order_1(random):
    if random.random() < 0.5:
        given = {"stiff": 1e4, "length": log_uniform(random, 0, 4), "scales": scales(random, 3)}
    else:
        given = {"stiff": log_uniform(random, 0, 3), "length": log_uniform(random, -1, 1), "scales": scales(random, 2)}
    options = common(random, precise=5, single=False)
    return Case("stiff at order 1", order=1.0, span=some_span(random), given=given, **options)


def draw_logarithm(random):
    count = random.choice([1, 2])
    given = {"rate": log_uniform(random, -1, 4), "first": [log_uniform(random, -8, 1) for _ in range(count)]}
    return Case("logarithm", order=1.0, span=some_span(random), given=given, **common(random, precise=7))


def draw_steps(random):
    """Every method of fixed steps, on each of its grids."""
    method = random.choice(FIXED)
    count = random.choice([1, 2, 3])
    implicit = method in ("trapezoidal", "l1-implicit")
    grid = random.choice(["uniform", "graded", "given"])
    top = 1.0 if method.startswith("l1") or grid == "graded" else 1.9
    order = some_order(random, 0.15, top)
    if count > 1 and method != "l1" and random.random() < 0.3:
        order = tuple(some_order(random, 0.15, top) for _ in range(count))
    given = _system(random, count, mild=not implicit)
    if implicit:
        given["cubic"] = [random.choice([0.0, log_uniform(random, 0, 4)]) for _ in range(count)]
    dtype = random.choice(["float64", "float64", "float32"])
    return Case(
        "steps",
        order=order,
        span=some_span(random) if dtype == "float64" else 1.0,
        method=method,
        grid=grid,
        n_steps=random.randint(8, 60),
        dtype=dtype,
        mode=random.choice(MODES),
        given=given,
    )


def draw_panels(random):
    """Collocation on panels that are not its own choice."""
    count = random.choice([1, 2, 3])
    grid = random.choice(["uniform", "graded", "given"])
    given = _system(random, count)
    given["cubic"] = [random.choice([0.0, log_uniform(random, -1, 3)]) for _ in range(count)]
    dtype = random.choice(["float64", "float64", "float32"])
    if random.random() < 0.3:
        given["after"] = log_uniform(random, -14, -8)
    return Case(
        "panels",
        order=some_order(random, 0.3, 1.0 if grid == "graded" else 1.9),
        span=some_span(random) if dtype == "float64" else 1.0,
        method="collocation",
        grid=grid,
        n_steps=random.randint(1, 12),
        dtype=dtype,
        mode=random.choice(MODES),
        given=given,
    )


def draw_explosion(random):
    count = random.choice([1, 2])
    given = {"rates": [log_uniform(random, -1, 4) for _ in range(count)], "scales": scales(random, count)}
    return Case(
        "explosion",
        order=some_order(random, 0.2, 1.0),
        method=random.choice(["adams", "pece", "euler", "l1"]),
        grid=random.choice(["uniform", "graded"]),
        n_steps=random.randint(10, 80),
        mode=random.choice(MODES[:3]),
        given=given,
    )


def draw_power(random):
    p = random.choice([round(random.uniform(0.05, 0.95), 2), 1.0, 1.5])
    order = some_order(random, 0.3, 1.0)
    given = {"p": p, "size": log_uniform(random, -3, 3), "first": random.choice([0.0, 1.0])}
    return Case("power", order=order, span=some_span(random), given=given, **common(random, precise=7, single=False))


def draw_no_solution(random):
    given = {"what": random.choice(["square", "exponential", "reciprocal"]), "size": log_uniform(random, 0.7, 2)}
    options = common(random, precise=6, gradient=False, single=False)
    return Case("no solution", order=some_order(random, 0.3, 1.0), span=some_span(random), given=given, **options)


def draw_bad_start(random):
    given = {"rate": log_uniform(random, -1, 2), "value": random.choice(["nan", "inf", "-inf"])}
    return Case("bad start", order=some_order(random, 0.2, 1.0), given=given, **common(random, precise=7))


def draw_noise(random):
    given = {
        "rate": log_uniform(random, -1, 2),
        "level": round(random.uniform(0.1, 0.9), 2),
        "bits": random.choice([8, 10, 12, 16, 20, 24, 24, 30, 40]),
        "scale": log_uniform(random, -6, 6),
    }
    options = common(random, precise=7, single=False, gradient=False)
    return Case("noise", order=some_order(random, 0.2, 1.0), span=some_span(random), given=given, **options)


def draw_large_and_noisy(random):
    given = {"rates": [log_uniform(random, -1, 1) for _ in range(2)], "scales": [log_uniform(random, 3, 8), 1.0]}
    options = common(random, precise=6, single=False, gradient=False)
    return Case("large and noisy", order=some_order(random, 0.2, 1.0), given=given, **options)


def draw_sign(random):
    options = common(random, precise=6, single=False, gradient=False)
    return Case("sign", order=some_order(random, 0.3, 1.0), given={"size": log_uniform(random, -1, 1)}, **options)


def draw_kink(random):
    given = {
        "level": round(random.uniform(0.1, 0.9), 2),
        "rate": log_uniform(random, -1, 2),
        "size": log_uniform(random, -0.5, 1),
        "scale": log_uniform(random, -8, 8),
    }
    return Case("kink", order=1.0, given=given, **common(random, precise=7, gradient=False))


DRAWS = [value for name, value in sorted(globals().items()) if name.startswith("draw_")]
