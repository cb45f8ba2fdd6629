"""Small files from the web, and the folder where they are kept."""

import os
import sys
import tempfile
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fracdnn.exceptions import DownloadError, InvalidArgumentError
from fracdnn.version import __version__

SIZE_LIMIT = 1_000_000


def download(url: str, *, timeout: float = 15.0, remedy: str = "try again later") -> bytes:
    """The content of a web address: at most `SIZE_LIMIT` bytes; an error after `timeout` silent seconds."""
    if not (isinstance(url, str) and url.lower().startswith(("https://", "http://"))):
        raise InvalidArgumentError(f"url must start with https:// or http://, got {url!r}; pass a web address")
    try:
        request = Request(url, headers={"User-Agent": f"fracdnn/{__version__}"})
        with urlopen(request, timeout=timeout) as response:
            content: bytes = response.read(SIZE_LIMIT + 1)
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        why = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
        raise DownloadError(f"{url} could not be downloaded: {why}; {remedy}") from None
    if len(content) > SIZE_LIMIT:
        raise DownloadError(f"{url} could not be downloaded: it is larger than {SIZE_LIMIT} bytes; {remedy}")
    return content


def cache_folder(platform: str = sys.platform) -> Path:
    """Where downloads are kept: the variable FRACDNN_CACHE, else the platform's own place for such files."""
    try:
        if given := os.environ.get("FRACDNN_CACHE"):
            return Path(given).expanduser()
        if platform == "darwin":
            return Path.home() / "Library" / "Caches" / "fracdnn"
        if platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fracdnn"
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the standard has relative paths ignored
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "fracdnn"
    except RuntimeError:  # an account without a home, as in some containers
        return Path(tempfile.gettempdir()) / "fracdnn"
