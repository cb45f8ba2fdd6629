"""Figures. Matplotlib is imported when a figure is drawn, not when the package is."""
