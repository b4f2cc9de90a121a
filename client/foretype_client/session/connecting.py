"""Reaching a gateway: its URL, when to try again, and what a failure means to a person."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from foretype_context.authorities import trusted
from foretype_wire.credentials import is_loopback, without_credentials
from foretype_wire.errors import GatewayGoneError, TokenInClearError
from websockets.exceptions import ConnectionClosed, InvalidProxy, InvalidStatus, InvalidURI, WebSocketException

if TYPE_CHECKING:
    import httpx

__all__ = [
    "Backoff",
    "as_gateway_gone",
    "check_url",
    "gateways_in",
    "http_base",
    "http_client",
    "is_loopback",
    "without_credentials",
]

_REFUSED: Final = {
    **dict.fromkeys(
        (401, 4401),
        "check the token: none came, or one that is wrong, expired or revoked (--token-file, FORETYPE_TOKEN, an editor's tokenFile)",
    ),
    **dict.fromkeys(
        (403, 4403),
        "it serves nobody under this name; gateway.hosts of its profile lists the names that a URL may have",
    ),
}


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: attempt `n` waits a uniform share of `min(cap_s, base_s * 2**n)`.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015; of its variants the one with least work.
    """

    base_s: float = 0.25
    cap_s: float = 15.0

    def delay_s(self, attempt: int, rng: random.Random) -> float:
        return rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(attempt, 30)))


def check_url(url: str) -> str:
    """`url` itself.

    Raises:
        ValueError: it is not the WebSocket URL of a gateway; the message says what one looks like.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        told = without_credentials(url)
        raise ValueError(f"gateway {told!r} is not a WebSocket URL; it looks like ws://127.0.0.1:7878/v1/stream")
    return url


def gateways_in(text: str) -> tuple[str, ...]:
    """The URLs of one gateway or, between spaces, of several.

    Raises:
        ValueError: one of them is not the WebSocket URL of a gateway, or stands there twice.
    """
    found = tuple(check_url(url) for url in text.split()) or (check_url(text),)
    if len(set(found)) < len(found):
        raise ValueError("a gateway is named twice; name each one once")
    return found


def http_base(url: str) -> str:
    """`http(s)://host[:port][/prefix]` of a gateway from the WebSocket URL of its `/v1/stream`."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path.removesuffix("/").removesuffix("/v1/stream"), "", ""))


@contextmanager
def as_gateway_gone() -> Generator[None]:
    """Whatever ends a connection comes out as `GatewayGoneError` with what a person can do about it."""
    try:
        yield
    except ConnectionClosed as error:
        code = None if error.rcvd is None else error.rcvd.code
        if code in _REFUSED:
            raise GatewayGoneError(f"the gateway refused this client ({code}): {_REFUSED[code]}") from error
        raise GatewayGoneError(f"the connection to the gateway was lost: {error}") from error
    except InvalidStatus as error:
        status = error.response.status_code
        if status in _REFUSED:
            raise GatewayGoneError(f"the gateway refused this client ({status}): {_REFUSED[status]}") from error
        raise GatewayGoneError(
            f"the gateway answered {status} instead of opening a WebSocket: check the URL"
        ) from error
    except TokenInClearError as error:
        raise GatewayGoneError(str(error)) from error
    except (InvalidURI, InvalidProxy) as error:  # their own messages quote the URL, which may hold a password
        whose = "gateway's" if isinstance(error, InvalidURI) else "proxy's"
        raise GatewayGoneError(f"the {whose} URL cannot be used: {error.msg}") from error
    except (OSError, TimeoutError, WebSocketException) as error:
        reason = str(error) or type(error).__name__
        raise GatewayGoneError(
            f"the gateway cannot be reached: {reason}: does it run, and is its URL right?"
        ) from error


def http_client(url: str, timeout: httpx.Timeout | float) -> httpx.AsyncClient:
    """For a gateway's other doors; `url` may be its WebSocket's too. One on this machine is asked past any proxy."""
    import httpx  # most editors never need it

    local = is_loopback(url)
    verify = trusted() if not local or url.startswith(("https:", "wss:")) else False
    return httpx.AsyncClient(timeout=timeout, trust_env=not local, verify=verify)
