"""Searches in several processes through joblib: the same numbers, no more threads than cores, Ctrl-C, usable models."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "distributed" / "search.py"
# As a user has it: how many threads torch takes is not said.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}

ALIKE = """
import joblib, numpy as np, torch
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from fracdnn import FractionalClassifier

def threads(estimator, X, y):
    return torch.get_num_threads()

def accuracy(estimator, X, y):
    return estimator.score(X, y)

if __name__ == "__main__":
    X, y = load_iris(return_X_y=True)
    scoring = {"threads": threads, "accuracy": accuracy}
    model, space = FractionalClassifier(max_iter=5, n_members=2, random_state=0), {"order": [0.3, 1.0]}
    one, two = (
        GridSearchCV(model, space, cv=2, n_jobs=jobs, scoring=scoring, refit="accuracy").fit(X, y) for jobs in (1, 2)
    )
    for name in ("split0_test_accuracy", "split1_test_accuracy"):
        assert (one.cv_results_[name] == two.cv_results_[name]).all(), name
    assert one.best_params_ == two.best_params_
    assert torch.get_num_threads() > 1 or joblib.cpu_count() == 1
    found = [max(each.cv_results_["mean_test_threads"]) for each in (one, two)]
    print(found[0] <= joblib.cpu_count(), 2 * found[1] <= max(joblib.cpu_count(), 2))
    made = [FractionalClassifier(max_iter=5, n_members=2, random_state=0, order=order) for order in (0.3, 1.0)]
    models = joblib.Parallel(n_jobs=2)(joblib.delayed(each.fit)(X, y) for each in made)
    for each, own in zip(models, made):
        # In float32, a sum's last digit may depend on the number of threads.
        np.testing.assert_allclose(each.predict_proba(X), own.fit(X, y).predict_proba(X), rtol=0, atol=1e-5)
    print(*[(each.order_, each.n_iter_) for each in models])
"""


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    """The same scores; threads of two processes fit on the cores; models that come back work."""
    script = tmp_path / "alike.py"
    script.write_text(ALIKE, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True", "(0.3, 5) (1.0, 5)"]


ENDLESS = """
import signal, sys
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from fracdnn import FractionalClassifier
from fracdnn.estimators import raise_interrupts

class Told(FractionalClassifier):
    def fit(self, X, y):
        print("fits", flush=True)
        return super().fit(X, y)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    X, y = load_iris(return_X_y=True)
    try:
        with raise_interrupts():
            search = GridSearchCV(Told(max_iter=10**7), {"order": [0.3, 1.0]}, cv=2, n_jobs=int(sys.argv[1]))
            search.fit(X, y)
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_search(jobs, tmp_path):
    """A terminal sends the signal to all processes; fits that take hours are under way in each."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-u", script, jobs], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
    )
    try:
        for _ in range(int(jobs)):
            assert process.stdout.readline() == "fits\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[0].endswith("ended\n")
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def example(*options):
    done = subprocess.run([sys.executable, EXAMPLE, *options], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_example_on_a_dask_cluster():
    pytest.importorskip("distributed", reason="Dask is not installed")
    expected = example("--jobs", "1")
    assert len(expected) == 7
    assert expected[-1].startswith("best: {'alpha': ")
    assert example("--dask") == expected
