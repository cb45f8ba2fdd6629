"""`fracdnn warmup`: compile the kernels now, so that no first fit has to wait for them."""

import typer

from fracdnn.kernels.loading import warmup


def show_warmup() -> None:
    for kernels in warmup():
        kind = str(kernels.dtype).removeprefix("torch.")
        typer.echo(f"{kernels.name}, {kind}: {kernels.state} ({kernels.seconds:.1f} s)")
