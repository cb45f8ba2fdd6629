"""The version, and what a result was made with."""

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """What a result or a model was made with."""
    import platform
    from importlib import metadata  # 20 ms, which `fracdnn --version` need not wait for

    return {
        "python": platform.python_version(),
        "fracdnn": __version__,
        **{name: metadata.version(name) for name in ("torch", "numpy")},
    }
