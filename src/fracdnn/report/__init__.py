"""Figures and the HTML report. Matplotlib and Plotly are imported when they are needed, not with the package."""

from fracdnn.extras import require

require("jinja2", "matplotlib", "plotly", "sklearn")
