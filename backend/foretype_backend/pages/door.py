"""The door `/admin`: a page for anybody, which holds nothing, and its parts as HTML for who has a key with the scope `admin`.

The page asks for its parts with both halves of a login (:mod:`foretype_backend.identity.logins`), so that no other site can: a part is
never the answer to an address that a browser was sent to. Nothing here changes anything. An administrator of a tenant sees that tenant.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from foretype_backend.config.config import Config
from foretype_backend.doors.auth import is_owner
from foretype_backend.doors.contract import Asks, DocumentedAnswer, DocumentedApp
from foretype_backend.errors import EntryError, StoreError
from foretype_backend.identity.directory import Principal
from foretype_backend.operations.admin import AdminDoor
from foretype_backend.pages import parts
from foretype_backend.reports.page import style
from foretype_backend.reports.period import named

_HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class PagesDoor:
    """Serves the pages.

    Args:
        config: says where the stores are, and what tokens cost.
        fleet: replicas by pool, as :func:`.parts.fleet` shows them.
    """

    def __init__(self, config: Config, admin: AdminDoor, fleet: Callable[[], parts.Fleet]) -> None:
        self._config = config
        self._admin = admin
        self._fleet = fleet
        self._turn = asyncio.Lock()
        static = files("foretype_backend.pages") / "static"
        self._page, self._script = ((static / name).read_bytes() for name in ("index.html", "app.js"))
        self._style = style() + (static / "style.css").read_text("utf-8")

    def register(self, app: DocumentedApp) -> None:
        door = functools.partial(app.door, "GET", tag="operators")
        for path, endpoint, media in (
            ("/admin", self.admin_page, "text/html"),
            ("/admin/app.js", self.admin_script, "text/javascript"),
            ("/admin/style.css", self.admin_style, "text/css"),
        ):
            door(path, endpoint, guarded=False, answers={200: DocumentedAnswer("the file", media=media)})
        html = functools.partial(DocumentedAnswer, media="text/html")
        wrong = {400: html("what was asked for wrongly"), 503: html("a store cannot be read")}
        for name, endpoint in (
            ("status", self.admin_status_part),
            ("fleet", self.admin_fleet_part),
            ("experiments", self.admin_experiments_part),
            ("reports", self.admin_reports_part),
            ("keys", self.admin_keys_part),
            ("usage", self.admin_usage_part),
        ):
            door(f"/admin/parts/{name}", endpoint, answers={200: html("the part"), **wrong})

    async def admin_page(self) -> Response:
        """The pages of operators: this one holds nothing of anybody's and is served without a credential."""
        return Response(self._page, media_type=_HTML, headers=_HEADERS)

    async def admin_script(self) -> Response:
        """What the page runs."""
        return Response(self._script, media_type="text/javascript; charset=utf-8", headers=_HEADERS)

    async def admin_style(self) -> Response:
        """What the page looks like."""
        return Response(self._style, media_type="text/css; charset=utf-8", headers=_HEADERS)

    async def admin_status_part(self, principal: Asks) -> Response:
        """Load, queues, hit rates, what is shed."""
        return _html(parts.status(await self._admin.seen_by(principal)))

    async def admin_fleet_part(self, principal: Asks) -> Response:
        """Replicas and how each stands; their addresses are the owner's to see."""
        return _html(parts.fleet(self._fleet(), addresses=is_owner(principal)))

    async def admin_experiments_part(self, principal: Asks) -> Response:
        """Experiments, their state, and what was found."""
        tenant = None if is_owner(principal) else principal.tenant
        return await self._stored(lambda stored: stored.experiments(self._config, tenant))

    async def admin_reports_part(self, request: Request, principal: Asks) -> Response:
        """What suggestions were worth: `of` a week or month, of a `team`; the owner may name a `tenant`."""
        query, tenant = request.query_params, _tenant(request, principal)
        team = query.get("team", "").strip()
        try:
            period = named(query.get("of", "").strip(), today=datetime.now(UTC).date())
        except ValueError as error:
            return _problem(400, str(error))
        form = parts.report_form(period.name, team, tenant, owner=is_owner(principal))
        return await self._stored(lambda stored: stored.report(self._config, period, tenant, team), before=form)

    async def admin_keys_part(self, principal: Asks) -> Response:
        """Keys: ids, rights and times, never secrets."""
        tenant = None if is_owner(principal) else principal.tenant
        return await self._stored(lambda stored: stored.keys(self._config, tenant))

    async def admin_usage_part(self, request: Request, principal: Asks) -> Response:
        """Tokens, engine-seconds and cost of a `month`."""
        tenant = None if is_owner(principal) else principal.tenant
        month = request.query_params.get("month", "").strip()
        return await self._stored(lambda stored: stored.usage(self._config, month, tenant))

    async def _stored(self, made: Callable[[Any], Coroutine[Any, Any, str]], before: str = "") -> Response:
        """A part from a store: one at a time, in a thread with a loop of its own, so that no completion waits for it."""

        def work() -> str:
            return asyncio.run(made(import_module("foretype_backend.pages.stored")))

        async with self._turn:
            try:
                return _html(before + await asyncio.to_thread(work))
            except EntryError as error:
                return _problem(400, str(error).removeprefix("--"))
            except StoreError as error:
                return _problem(503, str(error))


def _tenant(request: Request, principal: Principal) -> str:
    """An administrator's own; the owner's choice."""
    given = request.query_params.get("tenant", "").strip()
    return given if given and is_owner(principal) else principal.tenant


def _html(body: str, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type=_HTML, headers={**_HEADERS, "Cache-Control": "no-store"})


def _problem(status: int, message: str) -> Response:
    return _html(f'<h1>Not shown</h1><p role="alert">{escape(message)}</p>', status)
