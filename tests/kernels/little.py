"""The package with a kernel that compiles in a second, where the whole one takes half a minute."""

import shutil
from pathlib import Path

import fracdnn

KERNEL = """

@inlined
def pass_tile(network, task, W, samples, cotangent, start, first, room, sums):
    sums[0] = first
"""


def package_with_a_little_kernel(folder):
    """A copy of the package in a folder; the path of its kernel."""
    package = folder / "fracdnn"
    shutil.copytree(Path(fracdnn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    source = package / "kernels" / "small_network.py"
    source.write_text(source.read_text(encoding="utf-8") + KERNEL, encoding="utf-8")
    return source
