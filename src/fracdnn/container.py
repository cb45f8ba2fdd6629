"""Documents with tensors as one file: safetensors with a JSON document in its metadata. No pickle, so safe to open."""

import hashlib
import json
import os
import reprlib
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fracdnn.exceptions import FileContentError
from fracdnn.extras import require
from fracdnn.files import write_whole

FORMAT = 5
_PLACE = "tensor at"
# The checksum in the header, and zeros that stand for it while it is computed. No text of a document reads like this:
# quotes are escaped there.
_SEAL, _NO_CHECKSUM = '"sha256":"{}"', "0" * 64


class DamagedFileError(FileContentError):
    """A file that was cut short or changed."""


def write_document(path: str | os.PathLike, kind: str, document: dict[str, Any]) -> Path:
    """Write nested dicts and lists of plain values and tensors; the file is whole or absent.

    `kind` ("model", "checkpoint") and a checksum over the whole file go with it.
    """
    content = document_bytes(kind, document)
    return write_whole(Path(path), lambda temporary: temporary.write_bytes(content))


def document_bytes(kind: str, document: dict[str, Any]) -> bytes:
    """The file that `write_document` writes; `read_document` takes it as `content`."""
    require("safetensors")
    tensors: dict[str, Any] = {}
    text = json.dumps(_without_tensors(document, "", tensors), ensure_ascii=False)
    return _sealed(tensors, {"fracdnn": kind, "format": str(FORMAT), "document": text})


def _sealed(tensors: dict[str, Any], metadata: dict[str, str]) -> bytes:
    from safetensors.torch import save

    content = save(tensors, metadata | {"sha256": _NO_CHECKSUM})
    return _with_checksum(content, _NO_CHECKSUM, hashlib.sha256(content).hexdigest())


def _with_checksum(content: bytes, old: str, new: str) -> bytes:
    return content.replace(_SEAL.format(old).encode(), _SEAL.format(new).encode(), 1)


def read_document(
    path: str | os.PathLike, kind: str, content: bytes | None = None, *, plain: bool = False
) -> dict[str, Any]:
    """What `write_document` wrote, tensors on the CPU; anything else in the file is a `FileContentError`.

    `content` is the file's where somebody has read it already. `plain` leaves tensors as their places, and so does
    without torch, which takes seconds to import.
    """
    require("safetensors")
    path, tensors = Path(path), {}
    # Read once: a file that another process puts in its place meanwhile is not mixed with this one. A folder, a missing
    # file or one that may not be read says so here, as Python does it.
    content = path.read_bytes() if content is None else content
    text = _checked_text(path, kind, content)
    with checked(path, kind):
        if not plain:
            from safetensors.torch import load

            tensors = {name: value.clone() for name, value in load(content).items()}  # where torch would place them
        hook = None if plain else lambda value: tensors[value[_PLACE]] if value.keys() == {_PLACE} else value
        document = json.loads(text, object_hook=hook)
        if not isinstance(document, dict):
            raise TypeError(f"a {type(document).__name__} in place of a document")
        return document


def _checked_text(path: Path, kind: str, content: bytes) -> str:
    from safetensors import SafetensorError, deserialize

    try:
        deserialize(content)  # which compares all sizes
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]  # behind its length
        metadata = json.loads(header).get("__metadata__") or {}
    except (SafetensorError, ValueError) as error:
        raise DamagedFileError(
            f"{path} must be a fracdnn {kind}, got a file that cannot be read as one ({_line(error)}); "
            f"it is cut short or of another program, so save it again"
        ) from None
    if not {"fracdnn", "format", "document", "sha256"} <= metadata.keys():
        raise FileContentError(
            f"{path} must be a fracdnn {kind}, got a safetensors file of another program; pass one of fracdnn"
        )
    if metadata["format"] != str(FORMAT):
        raise FileContentError(
            f"{path} must have format {FORMAT}, got format {_shown(metadata['format'])} of another fracdnn; "
            f"upgrade fracdnn, or train again"
        )
    if metadata["fracdnn"] != kind:
        found = _shown(metadata["fracdnn"])
        raise FileContentError(f"{path} must be a fracdnn {kind}, got a {found}; pass the {kind}'s file")
    checksum = metadata["sha256"]
    if hashlib.sha256(_with_checksum(content, checksum, _NO_CHECKSUM)).hexdigest() != checksum:
        raise DamagedFileError(
            f"{path} must be as it was saved, got other content than its checksum says; restore it or save it again"
        )
    return metadata["document"]


@contextmanager
def checked(path: str | os.PathLike, kind: str) -> Iterator[None]:
    """Whatever an inconsistent document raises, as one kind of error."""
    try:
        yield
    except FileContentError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FileContentError(
            f"{path} must hold a whole {kind}, got an inconsistent document ({_line(error)}); save it again"
        ) from error


def _line(error: Exception) -> str:
    return textwrap.shorten(str(error), 300, placeholder="…")


def _shown(word: str) -> str:
    return word if word.isalnum() and len(word) <= 20 else reprlib.repr(word)


def _without_tensors(value: Any, place: str, tensors: dict[str, Any]) -> Any:
    """The same structure with each tensor replaced by its place, and the tensor put into `tensors`."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors[place] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {_PLACE: place}
    # Plain values as they are, without a call for each: a history has thousands.
    walked = (torch.Tensor, dict, list, tuple)
    items = {
        str(key): _without_tensors(item, f"{place}/{key}", tensors) if isinstance(item, walked) else item
        for key, item in (value.items() if isinstance(value, dict) else enumerate(value))
    }
    return items if isinstance(value, dict) else list(items.values())
