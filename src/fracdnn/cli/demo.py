"""`fracdnn demo`: the paper's network on its level-set data, in seconds."""

from pathlib import Path

import torch
import typer
from rich.console import Console
from rich.table import Table

from fracdnn.cli.messages import written
from fracdnn.experiments.paper_training import level_set_split, normalized, task_of, training_of
from fracdnn.experiments.table import LEVEL_SETS, PAPER
from fracdnn.report.experiment_figures import level_set_figure
from fracdnn.report.figures import save_figure
from fracdnn.training import accuracy, shown_progress

ORDER, SEED, N_POINTS = 0.1, 0, 10_000


def show_demo(out: Path) -> None:
    with written(out):
        out.mkdir(parents=True, exist_ok=True)
    setting = LEVEL_SETS.with_order(ORDER)
    split = level_set_split(N_POINTS, SEED)
    task = task_of(setting, split, SEED)
    typer.echo(
        f"{setting.n_layers} layers of order {ORDER:g}, {N_POINTS:,} points, the class is 1 where x <= y; "
        f"{setting.n_batches} mini-batches, {setting.iterations} BFGS iterations on each",
        err=True,
    )
    with shown_progress(setting.n_batches * setting.iterations) as watch:
        task.watch = watch
        history = training_of(setting).fit(task)
    X_test = normalized(setting, split[1])
    shares = [accuracy(task.network, normalized(setting, split[0]), split[2]), accuracy(task.network, X_test, split[3])]
    table = Table(title="accuracy, %")
    for heading in ("", "here", "paper"):
        table.add_column(heading, justify="right")
    for name, share, paper in zip(("training", "test"), shares, PAPER["CLS", ORDER], strict=True):
        table.add_row(name, f"{100 * share:.2f}", paper)
    with torch.no_grad():
        flow = task.network.trajectory(X_test[:2000]).numpy()
        wrong = (task.network(X_test).argmax(1) != split[3]).numpy()
    figure = level_set_figure(split[1].numpy(), split[3].numpy(), wrong, flow, history.column("loss"))
    with written(out):
        picture = save_figure(out / "level-sets.png", figure)
    Console().print(table)
    typer.echo(f"picture: {picture}")
