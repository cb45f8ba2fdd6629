"""What the engines of a GPU refuse; `tests.kernels.test_triton` runs their cases."""

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError
from tests.nn.problems import batch, network


@pytest.mark.parametrize(
    ("engine", "options", "reason"),
    [
        (
            "triton-wide",
            {"operator": "nine-point", "n_features": 4, "grid_shape": (2, 2)},
            "its operator is a stencil, no dense matrix",
        ),
        ("triton-wide", {"activation": "gelu"}, "its activation is 'gelu', none of"),
        ("triton-wide", {"residual": False}, "it has no skip connections"),
        ("triton-wide", {"learn_order": True}, "its order or steps are learned"),
        ("triton-wide", {"learn_steps": True}, "its order or steps are learned"),
        ("triton-wide", {"order": 1.0}, "it sums by exponentials, which need one order below 1 and equal steps"),
        (
            "triton-wide",
            {"step_size": [0.1] * 5},
            "it sums by exponentials, which need one order below 1 and equal steps",
        ),
        ("triton-wide", {"order": [0.5] * 5}, "it sums by exponentials, which need one order below 1 and equal steps"),
        ("triton-wide", {"compress": False}, "it sums by exponentials, and compress is False"),
        (
            "triton",
            {"operator": "nine-point", "n_features": 4, "grid_shape": (2, 2)},
            "its operator is a stencil, no dense matrix",
        ),
        ("triton", {"width": 65}, "its width is 65, above 64"),
        ("triton", {"residual": False}, "it has no skip connections"),
        ("triton", {"compress": True}, "it sums over all pairs of layers, and compress is True"),
    ],
    ids=str,
)
def test_a_network_it_cannot_serve_is_refused_at_once(engine, options, reason):
    with pytest.raises(InvalidArgumentError, match=f"engine='{engine}' cannot run this network: {reason}"):
        network(**options, engine=engine)


@pytest.mark.parametrize(
    ("engine", "dtypes"), [("triton-wide", "float32, float64, bfloat16, float16"), ("triton", "float32, float64")]
)
def test_a_batch_it_cannot_serve_is_refused(engine, dtypes):
    net = network(engine=engine)
    with pytest.raises(InvalidArgumentError, match=rf"x is torch.float64 on cpu, not one of {dtypes} on a CUDA device"):
        net(batch())
    with pytest.raises(InvalidArgumentError, match=rf"engine=\'{engine}\' cannot run this network: x has shape \(3,\)"):
        net(torch.zeros(3, dtype=torch.float64))
