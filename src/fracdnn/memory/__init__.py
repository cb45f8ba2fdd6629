"""The history engine: the weighted sum over all earlier states and its transpose."""
