"""The commands. Each imports what it needs when it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="fracdnn",
    help="Deep networks with memory: layers as time steps of a fractional differential equation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from fracdnn import __version__

        typer.echo(f"fracdnn {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("fracdnn-demo"),
) -> None:
    """Solve the paper's example d_t^0.5 u = -4u and compare with the exact solution.

    Example: fracdnn demo --out pictures
    """
    from rich.console import Console
    from rich.table import Table

    from fracdnn.experiments.mittag_leffler import Example, solve_all
    from fracdnn.report.figures import solution_figure

    example = Example()
    solutions = solve_all(example)
    shown = next(s for s in solutions if s.step_size == example.step_size)
    table = Table(title=f"d_t^{example.order} u = {example.rate:g} u, u(0) = {example.initial}")
    for heading in ("step size", "steps", "u(1), L1 scheme", "u(1), exact", "error", "order"):
        table.add_column(heading, justify="right")
    previous = None
    for solution in solutions:
        table.add_row(*_demo_row(solution, previous))
        previous = solution
    picture = out / "mittag-leffler.png"
    with _written_to(out):
        solution_figure(
            picture,
            shown.t.numpy(),
            shown.exact.numpy(),
            shown.numerical.numpy(),
            [s.step_size for s in solutions],
            [s.error_at_end for s in solutions],
            title=rf"$d_t^{{{example.order}}}\,u = {example.rate:g}u$, $u(0) = {example.initial}$",
        )
    Console().print(table)
    typer.echo(f"picture: {picture}")


reproduce = typer.Typer(help="Run a numerical result of the paper.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


@reproduce.command("gradient-test")
def gradient_test(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("results"),
) -> None:
    """Compare gradients with central differences: exact adjoint and the paper's printed one.

    Example: fracdnn reproduce gradient-test --out results
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from fracdnn.experiments.gradient_test import GradientTest, run
    from fracdnn.experiments.results import write_result
    from fracdnn.report.figures import gradient_figure

    test = GradientTest()
    comparisons = run(test)
    table = Table(title=f"{test.n_layers} layers; smallest relative difference to central differences")
    for heading in ("order", "adjoint", "W", "K", "b", "cosine (K, b)", "first layer"):
        table.add_column(heading, justify="right")
    for found in comparisons:
        smallest = [f"{min(found.errors[name]):.1e}" for name in ("W", "K", "b")]
        kind = "exact" if found.adjoint == "exact" else "printed"
        table.add_row(f"{found.order:g}", kind, *smallest, f"{found.cosine:.3f}", f"{found.first_layer:.1f} x")
    curves = [(found.order, found.adjoint, found.errors) for found in comparisons]
    results = {"comparisons": [asdict(found) for found in comparisons]}
    with _written_to(out):
        numbers = write_result(out / "gradient-test.json", test, results)
        picture = gradient_figure(out / "gradient-test.png", test.increments, curves)
    Console().print(table)
    typer.echo(f"numbers: {numbers}")
    typer.echo(f"picture: {picture}")


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    """Turn a failure to write into one line that says what to do."""
    try:
        yield
    except OSError as error:
        typer.echo(f"fracdnn: cannot write to {folder}: {error.strerror}; pass another folder with --out", err=True)
        raise typer.Exit(1) from None


def _demo_row(solution: Any, coarser: Any) -> list[str]:
    """One line of the table; the order is the slope of the error from the step size before."""
    import math

    rate = "-"
    if coarser is not None:
        halvings = math.log(coarser.step_size / solution.step_size)
        rate = f"{math.log(coarser.error_at_end / solution.error_at_end) / halvings:.2f}"
    return [
        f"{solution.step_size:g}",
        str(solution.t.numel() - 1),
        f"{float(solution.numerical[-1]):.6f}",
        f"{float(solution.exact[-1]):.6f}",
        f"{solution.error_at_end:.2e}",
        rate,
    ]
