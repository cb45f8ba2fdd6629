r"""
Which order suits a table?
==========================

A column of numbers has no past, so it is not clear that a model of a table gains from memory. Take 569 tumors
described by 30 measurements each, benign or malignant: does the order of a ``FractionalClassifier`` change how good its
probabilities are?
"""

# %%
# Cross-validation over the order
# -------------------------------
# Eight folds, the same for all orders, so that orders can be compared fold by fold. The log-loss judges probabilities:
# being sure and wrong is expensive. The baseline always answers with the class frequencies.

import os

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import t as student
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score

from fracdnn import FractionalClassifier
from fracdnn.report.figures import BLUE, GREY

small = bool(os.environ.get("FRACDNN_GALLERY_SMALL"))
orders = [0.1, 0.5, 1.0] if small else [0.1, 0.3, 0.5, 0.8, 1.0]
folds = StratifiedKFold(3 if small else 8, shuffle=True, random_state=0)
X, y = load_breast_cancer(return_X_y=True)


def losses(model):
    """The log-loss of each fold."""
    return -cross_val_score(model, X, y, cv=folds, scoring="neg_log_loss")


baseline = losses(DummyClassifier(strategy="prior")).mean()
settings = {"n_members": 1, "max_iter": 30, "random_state": 0}
models = [FractionalClassifier(order=order, **settings) for order in orders]
by_order = np.array([losses(model) for model in models])
print(f"baseline (class frequencies): {baseline:.3f}")
for order, each in zip(orders, by_order, strict=True):
    print(f"order {order:g}: log-loss {each.mean():.3f}")

# %%
# Differences, paired by fold
# ---------------------------
# The bars are 95 % intervals (Student's t) of the difference to order 1. Folds share training rows, so the intervals
# are too narrow. Do not read significance off them: with eight folds all intervals contain zero, but with three folds
# that of order 0.1 does not.

difference = by_order[:-1] - by_order[-1]
half = student.ppf(0.975, folds.n_splits - 1) * (
    difference.std(1, ddof=1) / np.sqrt(folds.n_splits)
)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].boxplot(by_order.T, tick_labels=[f"{order:g}" for order in orders])
axes[0].set(
    xlabel="order", ylabel="log-loss", title="Held-out folds", ylim=(0, None)
)
axes[1].axhline(0, color=GREY)
axes[1].errorbar(
    orders[:-1], difference.mean(1), half, fmt="o", color=BLUE, capsize=4
)
axes[1].set(
    xlabel="order",
    ylabel="log-loss minus that of order 1",
    title="Differences to a residual network",
)
plt.show()

# %%
# The order matters little here: every order is far better than the baseline, and the orders differ by less than a
# thirtieth of the baseline's loss. If anything, the smallest order is the worst. One table cannot say more;
# :doc:`the study </study>` has many.
#
# What this page claims, checked:

assert by_order.mean(1).max() < 0.3 * baseline
assert np.abs(difference.mean(1)).max() < baseline / 30
assert by_order.mean(1).argmax() == 0
