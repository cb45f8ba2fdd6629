"""The playground: a page that trains small networks with memory in the browser, and the server that brings it.

The page is plain files in `static/`, without a build step; its mathematics is `static/fracdnn.js`, which tests hold to
this library. Importing this takes the standard library alone.
"""

from fracdnn.playground.server import STATIC, Server

__all__ = ["STATIC", "Server"]
