"""Which history sum runs: the one place that decides, and the home of every threshold.

A sum that is requested by name is used; only "auto" is decided here.
"""

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory import triton_sum
from fracdnn.tracing import being_transformed, values_are_unknown

# Deeper than this, far weights by exponentials are faster (docs/benchmarks.md) …
_EXACT_LAYERS = 64
# … but states that are small, with fewer numbers in all, stay in cache, a learned order makes its exponentials anew in
# each pass, and other devices count operations: there it takes more layers.
_SMALL_NUMBERS = 2**15
_EXACT_LAYERS_MOST = 192
# With a kernel a row, exponentials cost next to nothing.
_EXACT_LAYERS_TRITON = 16
# Rows of a block of the compressed sum: few, since a row is summed from half a block on average …
_BLOCK = 8
# … but on other devices the number of operations counts.
_BLOCK_DEVICE = 32


def choose_compression(
    compress: bool | str,
    n_layers: int,
    state: torch.Tensor,
    *,
    equal_steps: bool,
    learned: bool = False,
    transformed: bool | None = None,
) -> bool:
    """Return True if far weights are exponentials, for this depth and state; `transformed` as in `run_chain`."""
    if being_transformed() if transformed is None else transformed:
        return False  # what is traced or transformed runs on plain operations, see `FunctionalSum`
    if learned and values_are_unknown():  # and exponentials are made from the value of the order
        if compress is True:
            raise InvalidArgumentError(
                "compress must be False or 'auto' for a learned order in a CUDA graph, got True; the exponentials are "
                "chosen by the value of the order, which a capture does not know"
            )
        return False
    if compress != "auto":
        return bool(compress)
    if not equal_steps:
        return False
    if not state.is_cpu:
        # The exponentials of a learned order are made on the host in each pass, which waits for their gradients.
        return n_layers > (_EXACT_LAYERS_TRITON if _by_triton(state) and not learned else _EXACT_LAYERS_MOST)
    small = n_layers * state.numel() < _SMALL_NUMBERS
    return n_layers > (_EXACT_LAYERS_MOST if small or learned else _EXACT_LAYERS)


def choose_block(state: torch.Tensor) -> int:
    """Rows of a block of the compressed sum."""
    if state.is_cpu:
        return _BLOCK
    return triton_sum.BLOCK if _by_triton(state) else _BLOCK_DEVICE


def choose_triton(asked: str, state: torch.Tensor, block: int) -> bool:
    """Whether the compressed sum is the one by Triton's kernels, which takes states of 16 bits as they are."""
    if asked == "auto":
        return block == triton_sum.BLOCK and _by_triton(state)
    if asked == "triton" and (block != triton_sum.BLOCK or not triton_sum.can_take(state)):
        raise InvalidArgumentError(
            f"sums must be 'torch' or 'auto' for {state.dtype} on {state.device} in blocks of {block} here, got "
            f"'triton'; Triton's sums need Triton, plain floating tensors on a CUDA device and blocks of "
            f"{triton_sum.BLOCK}"
        )
    return asked == "triton"


def _by_triton(state: torch.Tensor) -> bool:
    """Whether "auto" takes Triton's kernels; its interpreter, on the CPU, has to be requested."""
    return state.is_cuda and not being_transformed() and triton_sum.can_take(state)
