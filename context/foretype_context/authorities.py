"""Whose certificates are trusted: one answer for every door, a WebSocket's and those of HTTP.

The operating system's store, where a company's own authority is put; `SSL_CERT_FILE` and `SSL_CERT_DIR` stand in its place, as in
OpenSSL. Libraries differ: httpx has a list of its own, websockets takes OpenSSL's.
"""

from __future__ import annotations

import ssl
import sys
from functools import cache


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that this machine trusts, read once: it takes some 40 ms. Where it has no store that OpenSSL finds, certifi's."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not (paths.cafile or paths.capath) and sys.platform != "win32":
        import certifi

        context.load_verify_locations(certifi.where())
    return context
