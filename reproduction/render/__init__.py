"""Each part's table, figure and claims, made from its numbers alone; what makes these lies beside this folder."""
