"""Reports that several tests look at, and how to read them."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris, make_blobs
from sklearn.model_selection import train_test_split

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.datasets import make_level_set, make_peaks

INJECTION = "</script><script>alert(1)</script>"


class Elements(HTMLParser):
    """The elements of a page, and the text that is not in a script or a style."""

    def __init__(self, page):
        super().__init__()
        self.found, self.text, self._inside = [], "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def page_of(path):
    return path.read_text(encoding="utf-8")


def quick(kind=FractionalClassifier, **options):
    return kind(**{"n_members": 2, "n_layers": 3, "max_iter": 8, "random_state": 0, **options})


def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return train_test_split(X, np.array(["setosa", "versicolor", "virginica"])[y], random_state=0)


def level_set():
    return train_test_split(*make_level_set(5000, random_state=0), test_size=0.5, random_state=0)


def blobs(n_features, centers, n=400):
    return train_test_split(*make_blobs(n, n_features, centers=centers, random_state=1), random_state=0)


def peaks():
    return train_test_split(*make_peaks(600, random_state=0), random_state=0)


def prices():
    """Large values with outliers, from two columns of numbers, one of them with holes, and one of categories."""
    X, y = make_peaks(600, random_state=0)
    kind = np.random.default_rng(0).choice(["detached", "flat", "terrace"], 600)
    frame = pd.DataFrame({"area": X[:, 0], "distance": X[:, 1], "kind": kind})
    frame.loc[::11, "distance"] = np.nan
    price = 1.056e7 * (y + (kind == "flat"))
    price[::60] += 1e8
    return train_test_split(frame, price, random_state=0)


def bad_names():
    X, X_test, y, y_test = blobs(2, 2)
    columns, classes = [INJECTION, "$x$"], np.array([INJECTION, "<b>%{x} & y"])
    return pd.DataFrame(X, columns=columns), pd.DataFrame(X_test, columns=columns), classes[y], classes[y_test]


CASES = {
    "iris": (iris, quick(n_layers=4, early_stopping=True, learn_order=True)),
    "level set": (level_set, quick(width=None, n_layers=5)),
    "four classes": (lambda: blobs(3, 4), quick(width=None)),
    "peaks": (peaks, quick(FractionalRegressor)),
    "deep": (lambda: blobs(3, 2), quick(n_layers=9)),
    "prices": (prices, quick(FractionalRegressor, max_iter=60)),
    "twenty": (lambda: blobs(2, 20), quick()),
    "bad names": (bad_names, quick()),
}
