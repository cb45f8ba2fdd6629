"""One network on features that are only scaled, trained on all samples: for tests of something else than the recipe."""

PLAIN = {"n_members": 1, "early_stopping": False, "n_bins": 0, "clip": None}
# The same on the command line.
PLAIN_OPTIONS = ["--n-members", "1", "--no-early-stopping", "--n-bins", "0", "--clip", "none"]
