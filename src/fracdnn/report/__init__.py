"""Figures and the HTML report. Matplotlib is imported when it is needed, not with the package."""

from fracdnn.extras import require

require("jinja2", "matplotlib", "sklearn")
