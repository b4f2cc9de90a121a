"""A gateway's credential: how its address is shown, and over what it may go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from foretype_wire.errors import TokenInClearError

TOKEN_IN_CLEAR: Final = "FORETYPE_TOKEN_IN_CLEAR"
"""The environment variable by which a user of the command line allows it."""

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/]*@")
_CLEAR: Final = frozenset({"ws", "http"})
_YES: Final = frozenset({"1", "true", "yes", "on"})


def allowed_in_clear(environ: Mapping[str, str]) -> bool:
    """Whether the user of a command said that a token may go over the network in clear."""
    return environ.get(TOKEN_IN_CLEAR, "").strip().lower() in _YES


def keep_secret(url: str, token: str | None, *, in_clear: bool) -> None:
    """Called before a credential is sent to `url`: the token, or a user and password in the address itself.

    Args:
        in_clear: the user allows it on any way.

    Raises:
        TokenInClearError: the way is neither encrypted nor inside this machine.
    """
    parts = urlsplit(url)
    if in_clear or parts.scheme not in _CLEAR or (not token and "@" not in parts.netloc) or is_loopback(url):
        return
    shown, safe = without_credentials(url), "wss://" if parts.scheme == "ws" else "https://"
    raise TokenInClearError(
        f"the token is not sent to {shown} in clear, for everybody on the way to read: use {safe}, or allow it "
        f"with the option tokenInClear ({TOKEN_IN_CLEAR}=1 on the command line)"
    )


def is_loopback(url: str) -> bool:
    """Whether `url` names this machine; such a connection must never go through a proxy."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def without_credentials(url: str) -> str:
    """A gateway's address as it may be shown: without a user, a password, and a query that may hold a token."""
    return _CREDENTIALS.sub("", url.partition("?")[0])
