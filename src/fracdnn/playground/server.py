"""A server of the playground's files for this machine alone."""

import json
import re
import sys
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from fracdnn.exceptions import InvalidArgumentError

HOST = "127.0.0.1"
PORT = 8642
STATIC = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
TYPES |= {f".{kind}": f"text/{kind}" for kind in ("css", "html")}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def _documentation() -> str:
    """The address of the documentation, by the package's metadata."""
    with suppress(PackageNotFoundError):
        places = dict(entry.split(", ", 1) for entry in metadata("fracdnn").get_all("Project-URL", []))
        return places.get("Documentation", "").rstrip("/")
    return ""


class Server(ThreadingMixIn, TCPServer):
    """The playground on 127.0.0.1, with a table as /table.json where one is given.

    Every answer is made before the first request: a path is looked up, never opened, so none leads elsewhere.
    `port` None takes 8642, or any free one where that is taken; 0 takes any free one; another is taken or refused.
    """

    daemon_threads = True
    allow_reuse_address = True  # an address is free again as soon as its server has ended
    request_queue_size = 32

    def __init__(self, table: Any = None, port: int | None = None) -> None:
        self.answers = {}
        for path in (path for path in STATIC.rglob("*") if path.is_file()):
            self.answers[f"/{path.relative_to(STATIC).as_posix()}"] = path.read_bytes(), TYPES[path.suffix]
        self.answers["/"] = self.answers["/index.html"]
        linked = re.findall(r'href="\.\.(/[\w/-]+\.html)"', self.answers["/"][0].decode())  # as on the site
        site = _documentation()
        self.elsewhere = {path: f"{site}{path}" for path in linked if site}
        if table is not None:
            self.answers["/table.json"] = json.dumps(table, allow_nan=False).encode(), TYPES[".json"]
        try:
            super().__init__((HOST, PORT if port is None else port), _Handler)
        except OSError as error:
            if port is not None:
                raise InvalidArgumentError(
                    f"port must be a free one, got {port} ({error.strerror}); pass another, or 0 for any that is free"
                ) from None
            super().__init__((HOST, 0), _Handler)
        self.port = int(self.server_address[1])
        self.address = f"http://{HOST}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has closed the connection is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "fracdnn", ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        status, (content, kind) = HTTPStatus.NOT_FOUND, (b"no such page\n", "text/plain")
        path, elsewhere = self.path.partition("?")[0], self.server.elsewhere.get(self.path)
        # Under another name, a page from elsewhere could have led the browser here, to read the table.
        if self.headers.get("Host") not in {f"{name}:{self.server.port}" for name in (HOST, "localhost")}:
            status, content, elsewhere = HTTPStatus.FORBIDDEN, b"only for this machine\n", None
        elif path in self.server.answers:
            status, (content, kind) = HTTPStatus.OK, self.server.answers[path]
        elif elsewhere:
            status = HTTPStatus.FOUND
        self.send_response(status)
        if elsewhere:
            self.send_header("Location", elsewhere)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        """Say nothing: who looks at the terminal wants the address."""
