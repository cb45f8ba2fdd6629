"""Figures and the HTML report. Matplotlib and Plotly are imported when they are needed, not with the package."""
