"""Logins of browsers: a cookie stands for a token, so that the page's scripts never hold one.

Nothing is stored: a gateway that starts again asks again. What the cookie stands for is checked anew with each request, so
that a token that was revoked is no more use in a browser than elsewhere.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final

__all__ = ["BrowserLogins", "cookie_name"]

_KEPT_S: Final = 12 * 3600.0
_MOST: Final = 1000


def cookie_name(host: str) -> str:
    """Name of the cookie at a `Host`: browsers keep the ports of a host apart for everything but cookies."""
    port = host.rpartition(":")[2]
    return f"foretype_{port}" if port.isdigit() else "foretype"


class BrowserLogins:
    """Open logins, the oldest of too many forgotten.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def open(self, token: str) -> str:
        """The cookie's value for a token that was found right."""
        value = secrets.token_urlsafe(32)
        self._open[value] = (token, self._clock() + _KEPT_S)
        if len(self._open) > _MOST:
            self._open.popitem(last=False)
        return value

    def token(self, headers: Mapping[str, str]) -> str | None:
        """The token that a request's cookie stands for."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None
        morsel = cookies.get(cookie_name(headers.get("host", "")))
        if morsel is None:
            return None
        token, until_s = self._open.get(morsel.value, ("", 0.0))
        if until_s <= self._clock():
            self._open.pop(morsel.value, None)
            return None
        return token
