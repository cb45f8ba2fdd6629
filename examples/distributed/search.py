"""A search over settings in several processes: `python examples/distributed/search.py [--jobs 2 | --dask [ADDRESS]]`.

scikit-learn hands the fits to joblib. Its own processes run on this machine; those of Dask on the machines of a
cluster, here one of two processes on this machine, unless the address of a scheduler is given. The scores are the same.
"""

import argparse
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from joblib import parallel_config
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from fracdnn import FractionalClassifier
from fracdnn.estimators import raise_interrupts

SPACE = {"order": [0.3, 0.6, 1.0], "alpha": [1e-3, 1e-2]}


def dask_cluster(address: str) -> AbstractContextManager[Any]:
    """Joblib's work goes to the scheduler at this address, or to two processes here."""
    from dask.distributed import Client, LocalCluster

    with ExitStack() as stack:
        cluster: Any = address
        if address == "local":
            cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        stack.enter_context(Client(cluster))
        stack.enter_context(parallel_config(backend="dask"))
        return stack.pop_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes on this machine")
    parser.add_argument("--dask", nargs="?", const="local", help="a scheduler's address, such as tcp://10.0.0.1:8786")
    options = parser.parse_args()
    X, y = load_iris(return_X_y=True)
    jobs = None if options.dask else options.jobs
    search = GridSearchCV(FractionalClassifier(max_iter=10, random_state=0), SPACE, cv=3, n_jobs=jobs)
    with dask_cluster(options.dask) if options.dask else nullcontext(), raise_interrupts():
        search.fit(X, y)
    for setting, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        print(f"order {setting['order']}, alpha {setting['alpha']}: {score:.6f}")
    print(f"best: {search.best_params_}, accuracy on all rows {search.best_estimator_.score(X, y):.6f}")


if __name__ == "__main__":  # each process imports this file
    main()
