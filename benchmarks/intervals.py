"""Intervals that are to hold 90 % of new values: how many they hold, how wide they are, and their pinball loss.

    python -m benchmarks.intervals --out docs/results

runs each model on the report half of the study's tables of numbers, on two thirds of the rows, and looks at the rest.
Widths and losses are in standard deviations of the training targets; the loss is the mean of those at 5 % and 95 %.
Peers are used where they are installed: quantile models of LightGBM and CatBoost with their defaults, and MAPIE, which
conformalizes LightGBM's quantiles (a third of the rows calibrates) or its residuals (CV+ of 8 parts).
"""

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.study.tables import Data, load, tables
from records.keeping import Records, made_with
from records.pages import fill_page, filled

LEVEL, ENDS = 0.9, (0.05, 0.95)
PACKAGES = ("lightgbm", "catboost", "mapie", "scikit-learn")
Ends = tuple[np.ndarray, np.ndarray]


def fracdnn_interval(data: Data, train: np.ndarray, test: np.ndarray, seed: int) -> Ends:
    from fracdnn import FractionalRegressor

    model = FractionalRegressor(random_state=seed).fit(data.X.iloc[train], data.y[train])
    return tuple(model.predict(data.X.iloc[test], interval=LEVEL)[1].T)


def lightgbm_interval(data: Data, train: np.ndarray, test: np.ndarray, seed: int) -> Ends:
    from lightgbm import LGBMRegressor

    models = [LGBMRegressor(objective="quantile", alpha=end, random_state=seed, verbose=-1) for end in ENDS]
    return tuple(model.fit(data.X.iloc[train], data.y[train]).predict(data.X.iloc[test]) for model in models)


def catboost_interval(data: Data, train: np.ndarray, test: np.ndarray, seed: int) -> Ends:
    from catboost import CatBoostRegressor

    X, names = data.X.copy(), data.categories
    X[names] = X[names].astype(object).fillna("missing").astype(str)
    options = {"random_seed": seed, "verbose": False, "allow_writing_files": False, "cat_features": names}
    models = [CatBoostRegressor(loss_function=f"Quantile:alpha={end}", **options) for end in ENDS]
    return tuple(model.fit(X.iloc[train], data.y[train]).predict(X.iloc[test]) for model in models)


def codes(data: Data) -> np.ndarray:
    """Categories as numbers: MAPIE hands arrays on."""
    columns = [
        data.X[name].cat.codes.replace(-1, np.nan) if name in data.categories else data.X[name] for name in data.X
    ]
    return pd.concat(columns, axis=1).to_numpy(dtype=np.float64)


def mapie_quantiles(data: Data, train: np.ndarray, test: np.ndarray, seed: int) -> Ends:
    from lightgbm import LGBMRegressor
    from mapie.regression import ConformalizedQuantileRegressor

    X, third = codes(data), len(train) // 3
    model = LGBMRegressor(objective="quantile", alpha=0.5, random_state=seed, verbose=-1)
    found = ConformalizedQuantileRegressor(model, confidence_level=LEVEL)
    found.fit(X[train[third:]], data.y[train[third:]]).conformalize(X[train[:third]], data.y[train[:third]])
    return tuple(found.predict_interval(X[test])[1][:, :, 0].T)


def mapie_cross(data: Data, train: np.ndarray, test: np.ndarray, seed: int) -> Ends:
    from lightgbm import LGBMRegressor
    from mapie.regression import CrossConformalRegressor

    X, model = codes(data), LGBMRegressor(random_state=seed, verbose=-1)
    found = CrossConformalRegressor(model, confidence_level=LEVEL, method="plus", cv=8, random_state=seed)
    return tuple(found.fit_conformalize(X[train], data.y[train]).predict_interval(X[test])[1][:, :, 0].T)


MODELS: dict[str, tuple[Callable[..., Ends], tuple[str, ...]]] = {
    "fracdnn": (fracdnn_interval, ()),
    "LightGBM quantiles": (lightgbm_interval, ("lightgbm",)),
    "CatBoost quantiles": (catboost_interval, ("catboost",)),
    "MAPIE, LightGBM quantiles": (mapie_quantiles, ("lightgbm", "mapie")),
    "MAPIE, LightGBM CV+": (mapie_cross, ("lightgbm", "mapie")),
}


def pinball(y: np.ndarray, end: np.ndarray, share: float) -> float:
    return float(np.maximum(share * (y - end), (share - 1) * (y - end)).mean())


def work(model: str, table: str, seed: int) -> dict:
    """Of one model on one table."""
    data = load(table)
    rows = np.random.default_rng(seed).permutation(len(data.y))
    train, test = rows[: 2 * len(rows) // 3], rows[2 * len(rows) // 3 :]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        low, high = MODELS[model][0](data, train, test, seed)
    seconds, y, scale = time.process_time() - began, data.y[test], float(data.y[train].std())
    losses = [pinball(y, end, share) / scale for end, share in zip((low, high), ENDS, strict=True)]
    return {
        "rows": len(train),
        "coverage": float(((y >= low) & (y <= high)).mean()),
        "width": float((high - low).mean() / scale),
        "pinball": float(np.mean(losses)),
        "cpu_seconds": round(seconds, 2),
    }


def rendered(records: Records) -> str:
    """A line for each model, over the tables that all of them have."""
    names = list(dict.fromkeys(run["model"] for run in records.runs))
    by_model = {name: {run["table"]: run for run in records.runs if run["model"] == name} for name in names}
    shared = set.intersection(*(set(runs) for runs in by_model.values()))
    lines = [
        "| model | holds | least and most | width | pinball loss | CPU s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in by_model.items():
        each = {key: np.array([runs[table][key] for table in sorted(shared)]) for key in next(iter(runs.values()))
                if key in ("coverage", "width", "pinball", "cpu_seconds")}  # fmt: skip
        held = each["coverage"]
        lines.append(
            f"| {name} | {held.mean():.1%} | {held.min():.0%} to {held.max():.0%} | {each['width'].mean():.3f} | "
            f"{each['pinball'].mean():.4f} | {np.median(each['cpu_seconds']):.1f} |"
        )
    return "\n".join([*lines, "", f"{len(shared)} tables, one split each."])


def records_in(folder: Path) -> Records:
    return Records(folder / "intervals.json", ("model", "table", "seed"), level=LEVEL, ends=list(ENDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--page", type=Path, help="Fill in the table of this page instead of running anything.")
    options = parser.parse_args()
    records = records_in(options.out)
    if options.page:
        fill_page(options.page, lambda text: filled(text, "intervals", lambda _: rendered(records)))
        return
    chosen = [name for name, table in tables().items() if not table.of_classes and table.half == "report"]
    for table in chosen:
        for model, (_, needed) in MODELS.items():
            job = {"model": model, "table": table, "seed": 0}
            if records.get(job) is None and all(find_spec(name) for name in needed):
                records.add({**job, **work(**job), "made_with": made_with(PACKAGES)})
                print(job, records.get(job)["coverage"], flush=True)
    print(rendered(records))


if __name__ == "__main__":
    main()
