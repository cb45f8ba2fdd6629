"""The paper's figure of the flow: where a trained network carries the perfumes, and how separable they are there."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from fracdnn.datasets import Perfume
from fracdnn.experiments.jobs import in_parallel
from fracdnn.experiments.paper_training import Setting, normalized, perfume_split, trained
from fracdnn.experiments.part import Numbers, Part, Row, Table, Tick
from fracdnn.experiments.table import PERFUMES
from fracdnn.report.experiment_figures import flow_figure


@dataclass(frozen=True)
class FlowSettings:
    """The residual and the fractional network of Table 2, trained on all 560 samples."""

    networks: tuple[Setting, ...] = (PERFUMES, PERFUMES.with_order(0.9))
    seed: int = 0


def run(settings: FlowSettings, perfume: Perfume | None, tick: Tick) -> Numbers:
    assert perfume is not None
    arguments = [(setting, perfume, settings.seed) for setting in settings.networks]
    flows = in_parallel(_flow, arguments, tick)
    start = normalized(settings.networks[0], torch.from_numpy(perfume.data)).numpy()
    return {
        "target": perfume.target.tolist(),
        "start": start.round(6).tolist(),
        "start_separability": separability(start, perfume.target),
        "networks": flows,
    }


def separability(states: np.ndarray, target: np.ndarray) -> float:
    """The share of samples that a linear classifier (logistic regression, nearly unregularised) gets right."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(states)
    return float(LogisticRegression(C=1e4, max_iter=20_000).fit(scaled, target).score(scaled, target))


def _flow(setting: Setting, perfume: Perfume, seed: int) -> Numbers:
    split = perfume_split(perfume, by_time=False)
    network, outcome = trained(setting, split, seed)
    with torch.no_grad():
        end = network.trajectory(normalized(setting, split[0]))[-1].numpy()
    return {
        "order": setting.order,
        "accuracy": outcome.train,
        "end": end.round(6).tolist(),
        "separability": separability(end, perfume.target),
    }


def rows(numbers: Numbers) -> list[Row]:
    here = [Row("linear classifier on Y_0, % right", "-", f"{100 * numbers['start_separability']:.2f}")]
    for network in numbers["networks"]:
        words = f"linear classifier on Y_N, order {network['order']:g}, % right"
        paper = "overlaps" if network["order"] == 1.0 else "separated"
        here.append(Row(words, paper, f"{100 * network['separability']:.2f}"))
    return here


def tables(numbers: Numbers) -> list[Table]:
    lines = [["Y_0, no network", "-", f"{100 * numbers['start_separability']:.2f}"]]
    for network in numbers["networks"]:
        shares = [f"{100 * network[name]:.2f}" for name in ("accuracy", "separability")]
        lines.append([f"Y_N, order {network['order']:g}", *shares])
    headings = ("states", "network's own class map, %", "linear classifier, %")
    return [Table("Separability of the perfumes before and after the network, on all 560 samples", headings, lines)]


PART = Part(
    name="flow",
    title="Forward propagation of the perfume data",
    full=FlowSettings(),
    quick=FlowSettings(networks=tuple(replace(s, n_batches=10) for s in FlowSettings().networks)),
    units=lambda settings: len(settings.networks),
    run=run,
    figure=flow_figure,
    rows=rows,
    tables=tables,
    needs_perfume=True,
)
