"""One network on features that are only scaled, trained on all samples: for tests of something else than the recipe."""

PLAIN = {"n_members": 1, "early_stopping": False, "n_bins": 0, "clip": None}
