"""Who may talk to the gateway: Host, Origin and bearer token. Pure decisions, and the middleware that applies them.

Host and Origin are checked on every door and on loopback too: any web page can open `ws://127.0.0.1:7878`, and DNS
rebinding lets it send requests that look same-origin. A browser always sends `Origin` and cannot forge `Host`; editors send
no `Origin`. An IP address in `Host` cannot be the result of rebinding, so a gateway bound to every interface takes any.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from foretype_backend.config import Config, is_loopback

__all__ = ["CLOSE_CREDENTIALS", "CLOSE_FORBIDDEN", "Gatekeeper", "GuardMiddleware"]

CLOSE_CREDENTIALS: Final = 4401
CLOSE_FORBIDDEN: Final = 4403

_OPEN_PATHS: Final = frozenset({"/healthz", "/health"})


class Gatekeeper:
    """The rules of one configuration."""

    def __init__(self, config: Config) -> None:
        self._token = config.token.encode() if config.token is not None else None
        bound = config.gateway.host.strip("[]").lower()
        self._hosts = {"localhost", bound, *(host.strip("[]").lower() for host in config.gateway.hosts)}
        self._origins = {origin.rstrip("/").lower() for origin in config.gateway.origins}
        self._any_address = not is_loopback(config.gateway.host)

    def listed(self, headers: Mapping[str, str]) -> bool:
        """Whether Host is this gateway's and Origin, if there is one, is listed."""
        origin = headers.get("origin")
        if origin is not None and origin.rstrip("/").lower() not in self._origins:
            return False
        host = _hostname(headers.get("host", ""))
        if host is None:
            return False
        if host in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or self._any_address

    def authorized(self, headers: Mapping[str, str]) -> bool:
        """Whether the bearer token is right, compared in constant time; True when the gateway asks for none."""
        return self._token is None or self.verified(headers)

    def verified(self, headers: Mapping[str, str]) -> bool:
        """Whether a right token was presented. False when the gateway has none."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        presented = token.strip().encode("utf-8", "surrogatepass")
        return self._token is not None and scheme.lower() == "bearer" and hmac.compare_digest(presented, self._token)


class GuardMiddleware:
    """Applies the rules to every HTTP door; `/v1/stream` applies them itself, with close codes."""

    def __init__(self, app: ASGIApp, *, keeper: Gatekeeper, max_body_bytes: int) -> None:
        self._app = app
        self._keeper = keeper
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._keeper.listed(headers):
            await _refuse(403, "forbidden", "this Host or Origin is not listed; see gateway.hosts and gateway.origins")(
                scope, receive, send
            )
        elif scope["path"] not in _OPEN_PATHS and not self._keeper.authorized(headers):
            response = _refuse(401, "invalid_api_key", "no or wrong bearer token; send `Authorization: Bearer TOKEN`")
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)
        elif (
            (declared := headers.get("content-length")) and declared.isdigit() and int(declared) > self._max_body_bytes
        ):
            await _refuse(413, "request_too_large", f"the body is larger than {self._max_body_bytes} bytes")(
                scope, receive, send
            )
        else:
            await self._app(scope, receive, send)


def _refuse(status: int, code: str, message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status_code=status)


def _hostname(host: str) -> str | None:
    """The name in a Host header, lower case, without port and brackets; None when there is none."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0] or None
    return host.partition(":")[0] or None
