"""Who may talk to the gateway: Host, Origin, and the credential. Pure decisions, and the middleware that applies them.

Host and Origin are checked on every door and on loopback too: any web page can open `ws://127.0.0.1:7878`, and DNS
rebinding lets it send requests that look same-origin. A browser always sends `Origin` and cannot forge `Host`; editors send
no `Origin`. An IP address in `Host` cannot be the result of rebinding, so a gateway bound to every interface takes any.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from foretype_backend.admission.bounds import Bound
from foretype_backend.config.config import Config
from foretype_backend.config.load import is_loopback
from foretype_backend.identity.directory import Denial, Principal, Scope
from foretype_backend.identity.logins import BrowserLogins
from foretype_backend.serving.fair_turns import Turn, Turns

if TYPE_CHECKING:  # it brings the database's libraries, which a gateway with one token never loads
    from foretype_backend.identity.identity import Identity

CLOSE_CREDENTIALS: Final = 4401
CLOSE_FORBIDDEN: Final = 4403

_PROBES: Final = frozenset({"/livez", "/readyz"})
"""They answer under any Host: a kubelet asks the pod by its address, a load balancer under a name of its own. They tell one word."""
_PAGES: Final = frozenset(
    {
        *("/playground", "/playground/app.js", "/playground/style.css", "/playground/login"),
        *("/admin", "/admin/app.js", "/admin/style.css"),
    }
)
_OPEN_PATHS: Final = _PROBES | _PAGES | {"/healthz", "/health"}
_DOCUMENT: Final = frozenset({"/openapi.json", "/docs"})
"""Open on a private gateway, which is on loopback; what a team's is made of is its operators' to read."""
_SCOPES: Final = (
    ("/metrics", Scope.METRICS),
    ("/v1/fleet/", Scope.METRICS),
    ("/admin/", Scope.ADMIN),
    ("/v1/chat/", Scope.CHAT),
    *((path, Scope.ADMIN) for path in sorted(_DOCUMENT)),
)
_OPERATORS: Final = ("/metrics", "/v1/fleet/", "/admin/")
"""Paths for operators who look for a fault; they are not counted among the requests that are bounded."""
_PRINCIPAL: Final = "foretype.principal"
_TURN: Final = "foretype.turn"
_HEADERS: Final = "foretype.headers"
_REQUEST_S: Final = 0.0004
"""Of the event loop, that an HTTP request takes at least."""
_STRANGER: Final = ""
"""In whose turn requests are refused that nobody's credential came with."""
_ANYBODY: Final = Principal()
_OWNER: Final = Principal(credential="token")


def principal_of(scope: Mapping[str, object]) -> Principal:
    """Whom :class:`GuardMiddleware` let in."""
    principal = scope.get(_PRINCIPAL)
    return principal if isinstance(principal, Principal) else _ANYBODY


def headers_of(scope: Mapping[str, object]) -> Mapping[str, str]:
    """By lower-case names, of each the first; of a request that :class:`GuardMiddleware` let in."""
    return cast("Mapping[str, str]", scope[_HEADERS])


def is_owner(principal: Principal) -> bool:
    """Whether this is the gateway's own token, or no token is asked for. Users with a key of their own have a tenant."""
    return principal.credential in ("", _OWNER.credential)


def turn_of(scope: Mapping[str, object]) -> Turn | None:
    """Whose time on the event loop a request takes."""
    turn = scope.get(_TURN)
    return turn if isinstance(turn, Turn) else None


class Gatekeeper:
    """The rules of one configuration.

    Args:
        identity: knows everybody's own credentials; without it the gateway has one token, or none.
        denied: told of every credential that was not taken, for the metric.
        measured: told how long each look at a credential took, in seconds.
        logins: of browsers.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity | None = None,
        denied: Callable[[Denial], None] = lambda _: None,
        measured: Callable[[float], None] = lambda _: None,
        logins: BrowserLogins | None = None,
    ) -> None:
        self.identity = identity
        self.logins = logins or BrowserLogins()
        self._denied = denied
        self._measured = measured
        self.use(config)

    def use(self, config: Config) -> None:
        """Take another configuration: token, hosts and origins."""
        self._token = config.token.encode() if config.token is not None else None
        bound = config.gateway.host.strip("[]").lower()
        self._hosts = {"localhost", bound, *(host.strip("[]").lower() for host in config.gateway.hosts)}
        self._origins = {origin.rstrip("/").lower() for origin in config.gateway.origins}
        self._any_address = not is_loopback(config.gateway.host)
        self._open = _OPEN_PATHS | _DOCUMENT if config.private else _OPEN_PATHS

    def opens(self, path: str) -> bool:
        """Whether a path asks for no credential."""
        return path in self._open

    def listed(self, headers: Mapping[str, str], *, any_host: bool = False) -> bool:
        """Whether Host is this gateway's, or does not matter, and Origin, if there is one, is listed."""
        origin = headers.get("origin")
        if origin is not None:
            origin = origin.rstrip("/").lower()
            # The gateway's own page is of the same origin; what is rebound to this address fails by its Host below.
            own = origin.partition("://")[2] == headers.get("host", "").strip().lower()
            if origin not in self._origins and not own:
                return False
        if any_host:
            return True
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

    @property
    def has_token(self) -> bool:
        """Of the gateway's own."""
        return self._token is not None

    def authenticate(self, headers: Mapping[str, str], scope: Scope | None = None) -> Principal | Denial:
        """Who presents this credential, if they may do what `scope` names."""
        began = time.perf_counter()
        found = self._authenticate(headers)
        self._measured(time.perf_counter() - began)
        if isinstance(found, Principal) and scope is not None and not found.scopes & {scope, Scope.ADMIN}:
            found = Denial.SCOPE
        if isinstance(found, Denial):
            self._denied(found)
        return found

    def still(self, principal: Principal) -> bool:
        """Whether somebody who was let in earlier may go on."""
        if self.identity is None or principal.credential == _OWNER.credential:
            return True
        denial = self.identity.still(principal)
        if denial is not None:
            self._denied(denial)
        return denial is None

    def authorized(self, headers: Mapping[str, str]) -> bool:
        """Whether the credential is right; True when the gateway asks for none."""
        return isinstance(self._authenticate(headers), Principal)

    def _authenticate(self, headers: Mapping[str, str]) -> Principal | Denial:
        if self._token is None and self.identity is None:
            return _ANYBODY
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if not scheme:  # a browser
            scheme, token = "bearer", self.logins.token(headers) or ""
        if scheme.lower() != "bearer" or not token:
            return Denial.MISSING
        # Compared in constant time, and whatever comes after.
        if self._token is not None and hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._token):
            return _OWNER
        return Denial.WRONG if self.identity is None else self.identity.authenticate(token)


class GuardMiddleware:
    """Applies the rules to every HTTP door, in the asking tenant's turn; `/v1/stream` applies them itself, with close codes.

    Args:
        requests: that are being answered.
    """

    def __init__(self, app: ASGIApp, *, keeper: Gatekeeper, max_body_bytes: int, requests: Bound, turns: Turns) -> None:
        self._app = app
        self._keeper = keeper
        self._max_body_bytes = max_body_bytes
        self._requests = requests
        self._turns = turns

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = scope[_HEADERS] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])
        }
        if not self._keeper.listed(headers, any_host=scope["path"] in _PROBES):
            await self._turns.come(_STRANGER, _REQUEST_S)
            await refusal(403, "forbidden", "this Host or Origin is not listed; see gateway.hosts and gateway.origins")(
                scope, receive, send
            )
            return
        known = not self._keeper.opens(scope["path"])
        principal = self._keeper.authenticate(headers, needed(scope["path"])) if known else _ANYBODY
        tenant = principal.tenant if known and isinstance(principal, Principal) else _STRANGER
        await self._turns.come(tenant, _REQUEST_S)
        if principal is Denial.SCOPE:
            message = "this credential lacks the scope for it; see `foretype keys list`"
            await refusal(403, "forbidden", message)(scope, receive, send)
        elif isinstance(principal, Denial):
            response = refusal(401, "invalid_api_key", "no or wrong credential; send `Authorization: Bearer KEY`")
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)
        elif (
            (declared := headers.get("content-length")) and declared.isdigit() and int(declared) > self._max_body_bytes
        ):
            await refusal(413, "request_too_large", f"the body is larger than {self._max_body_bytes} bytes")(
                scope, receive, send
            )
        else:
            scope[_PRINCIPAL] = principal
            scope[_TURN] = self._turns.of(principal.tenant)
            with contextlib.suppress(ClientDisconnect):  # it left before its body was here: nobody is to be answered
                if known and not scope["path"].startswith(_OPERATORS):
                    await self._counted(principal.tenant, scope, receive, send)
                else:
                    await self._app(scope, receive, send)

    async def _counted(self, tenant: str, scope: AsgiScope, receive: Receive, send: Send) -> None:
        requests = self._requests
        if requests.full(tenant):
            own = requests.own_full(tenant)
            whose = "your tenant has" if own else "this gateway has"
            status, code = (429, "rate_limited") if own else (503, "overloaded")
            response = refusal(status, code, f"{whose} as many requests under way as it may; try again shortly")
            response.headers["Retry-After"] = "1"
            await response(scope, receive, send)
            return
        requests.add(tenant)
        try:
            await self._app(scope, receive, send)
        finally:
            requests.add(tenant, -1)


def needed(path: str) -> Scope:
    """The scope that a path asks for."""
    return next((scope for start, scope in _SCOPES if path.startswith(start)), Scope.COMPLETE)


def refusal(status: int, code: str, message: str) -> JSONResponse:
    """An error in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status_code=status)


def _hostname(host: str) -> str | None:
    """The name in a Host header, lower case, without port and brackets; None when there is none."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0] or None
    return host.partition(":")[0] or None
