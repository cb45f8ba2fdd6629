"""Small files from the web, and the folder where they are kept."""

import os
import sys
import tempfile
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fracdnn.exceptions import DownloadError, InvalidArgumentError

SIZE_LIMIT = 1_000_000
TIMEOUT = 15.0


def download(url: str, *, limit: int = SIZE_LIMIT, timeout: float = TIMEOUT) -> bytes:
    """The content behind an address: at most `limit` bytes, within `timeout` seconds once the server answers.

    A server also fails when it says nothing for `timeout` seconds. A redirection may lead to https, never away from it.
    """
    if not (isinstance(url, str) and url.lower().startswith(("https://", "http://"))):
        raise InvalidArgumentError(f"url must start with https:// or http://, got {url!r}; pass a web address")
    from fracdnn.version import __version__

    opener = build_opener(_NoDowngrade)
    opener.addheaders = [("User-Agent", f"fracdnn/{__version__}")]
    try:
        with opener.open(Request(url), timeout=timeout) as response:
            return _body(response, limit, timeout)
    except (OSError, HTTPException, ValueError) as error:
        why = f"it took more than {timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        if isinstance(error, HTTPError):
            error.close()
        elif isinstance(error, URLError):
            why = str(error.reason)
        raise DownloadError(f"{url} could not be downloaded: {why}") from None


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


def _body(response: Any, limit: int, timeout: float) -> bytes:
    """Read as it arrives: the socket's own timeout starts anew with each byte, so a slow drip would never end."""
    deadline = time.monotonic() + timeout
    content, announced = b"", response.length
    while len(content) != announced and (part := response.read1(65536)):
        content += part
        if len(content) > limit:
            raise OSError(f"it is larger than {limit} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    if announced is not None and len(content) < announced:
        raise OSError(f"it ended after {len(content)} of {announced} bytes")
    return content


class _NoDowngrade(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if not newurl.startswith(("https:", f"{req.type}:")):
            fp.close()
            raise URLError(f"it leads on to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
