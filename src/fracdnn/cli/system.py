"""`fracdnn info --system`: what a bug report needs, in one block; it takes no extra."""

import json
import os
import platform
from importlib import metadata
from typing import Any

from fracdnn.extras import EXTRAS, PACKAGES
from fracdnn.version import __version__

_CORE = ("torch", "numpy", "scipy", "triton")
_SETTINGS = ("FRACDNN_DEBUG", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET")
# Folders, which may name a person: only whether they are set is shown.
_FOLDERS = ("FRACDNN_CACHE", "XDG_CACHE_HOME")


def show_system(*, as_json: bool = False) -> None:
    """Print versions, devices, kernels and settings of this process, as lines or as one JSON document."""
    modules = dict.fromkeys([*_CORE, *(module for extra in EXTRAS.values() for module in extra)])
    installed = {each.name.lower(): each.version for each in metadata.distributions()}
    packages = {name: installed.get(name, "missing") for name in (PACKAGES.get(each, each) for each in modules)}
    settings = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    settings |= {name: "(set)" for name in _FOLDERS if name in os.environ}
    found = {"fracdnn": __version__, "python": platform.python_version(), "platform": platform.platform()}
    document = {**found, "packages": packages, **_devices(), "settings": settings}
    lines = [f"{name}: {_shown(value)}" for name, value in document.items()]
    print(json.dumps(document) if as_json else "\n".join(lines))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "none"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _devices() -> dict[str, Any]:
    """Return the devices and threads, and the kernels that work here; a kernel that fails gives a warning."""
    try:
        import torch

        from fracdnn.kernels import loading
    except (ImportError, OSError) as error:  # a broken installation is what such a report may be about
        return {"devices": f"torch cannot be imported: {error}"}
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    return {
        "devices": [
            f"cpu ({platform.machine()}, {os.cpu_count()} cores)",
            *(f"{gpu} ({torch.cuda.get_device_name(gpu)})" for gpu in gpus),
        ],
        "threads": torch.get_num_threads(),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "kernels": ["triton"] if any(map(loading.triton_history, gpus)) else ["none"],
    }
