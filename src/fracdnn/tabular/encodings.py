"""Text that is not in UTF-8: read through its encoding, and guessed where none was named."""

import codecs
from io import TextIOWrapper
from types import TracebackType
from typing import IO

from fracdnn.exceptions import InvalidArgumentError

UTF_8 = "utf-8"
# What a file may begin with; the longer ones first, of which others are a part.
_BEGINNINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def checked_encoding(name: str) -> str:
    """As Python calls it; with or without a mark at its beginning, UTF-8 is one."""
    try:
        "a".encode(name)
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise InvalidArgumentError(
            f"encoding must be one of text that Python knows, got {name!r:.40}; such as latin-1, cp1252 or utf-16"
        ) from None
    return UTF_8 if found == "utf-8-sig" else found


def guessed_encoding(content: bytes) -> str | None:
    """What text that is not UTF-8 looks like; None where that cannot be told."""
    for beginning, name in _BEGINNINGS.items():
        if content.startswith(beginning):
            return name
    if b"\0" in content[:2]:
        return "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    # From 0x80 to 0x9f latin-1 has nothing that is printed.
    name = "cp1252" if any(0x80 <= byte < 0xA0 for byte in set(content)) else "latin-1"
    try:
        content.decode(name)
    except UnicodeDecodeError:
        return None
    return name


class Recoded:
    """A stream of bytes in another encoding, as UTF-8; reading raises UnicodeError where it is none."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self.encoding = encoding
        self._text = TextIOWrapper(stream, encoding=encoding, newline="")

    def read(self, size: int) -> bytes:
        """So many characters."""
        return self._text.read(size).encode(UTF_8)

    def __enter__(self) -> "Recoded":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._text.close()
