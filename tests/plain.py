"""One network on features that are only scaled, trained on all samples: for tests of something else than the recipe."""

from fracdnn.columns.column import Numbers
from fracdnn.columns.encoding import Encoding

PLAIN = {"n_members": 1, "early_stopping": False, "n_bins": 0, "clip": None}
# The same on the command line.
PLAIN_OPTIONS = ["--n-members", "1", "--no-early-stopping", "--n-bins", "0", "--clip", "none"]


def plain_encoding(*means):
    """Of columns of numbers, none of them missing, which these would fill in."""
    return Encoding(tuple(Numbers(f"x{j}", float(mean)) for j, mean in enumerate(means)))
