"""One network trained on all samples: for tests of something else than the recipe."""

from fracdnn.tables.column import Numbers
from fracdnn.tables.encoder import Encoder

PLAIN = {"n_members": 1, "early_stopping": False}
# The same on the command line.
PLAIN_OPTIONS = ["--n-members", "1", "--no-early-stopping"]


def plain_encoding(*means):
    """Of columns of numbers, none of them missing, which these would fill in."""
    return Encoder(tuple(Numbers(f"x{j}", float(mean)) for j, mean in enumerate(means)))
