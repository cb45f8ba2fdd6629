"""Every figure and table of the paper, each a small configuration and the code that runs it."""

from fracdnn.extras import require

require("joblib")
