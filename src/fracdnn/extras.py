"""Optional packages: which extra of fracdnn brings each one, and the line that says so where it is missing."""

from importlib.util import find_spec

from fracdnn.exceptions import MissingExtraError

# Modules by the extra that lists them in pyproject.toml. `cli` brings what every command needs, `all` everything.
EXTRAS = {
    "estimators": ("polars", "rich", "safetensors", "sklearn"),
    "tables": ("fastexcel",),
    "report": ("jinja2", "matplotlib"),
    "cli": ("joblib", "typer"),
    "onnx": ("onnx", "onnxscript"),
    "fit": ("lmfit",),
}
# Modules that are called something else where they are installed from.
PACKAGES = {"sklearn": "scikit-learn"}


def require(*modules: str) -> None:
    """Raise `MissingExtraError` for the first of these modules that is not installed. None of them is imported."""
    for module in modules:
        if find_spec(module) is None:
            extra = next(extra for extra, brought in EXTRAS.items() if module in brought)
            raise MissingExtraError(missing(module, extra), name=module)


def missing(module: str, extra: str) -> str:
    return f"{PACKAGES.get(module, module)} is missing: run pip install 'fracdnn[{extra}]'"
