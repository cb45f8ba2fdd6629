"""`fracdnn warmup`: compile the kernel now, so that no first fit has to wait for it."""

from importlib.util import find_spec

import typer

from fracdnn.extras import missing
from fracdnn.kernels.loading import warmup


def show_warmup() -> None:
    if find_spec("numba") is None:
        typer.echo(f"nothing to compile: {missing('numba', 'fast')}")
        typer.echo("until then small networks train on torch's operations, which is several times slower")
        return
    for kernel in warmup():
        kind = str(kernel.dtype).removeprefix("torch.")
        typer.echo(f"small network, {kind}: {kernel.state} ({kernel.seconds:.1f} s)")
