"""Operators' door to the prefix cache: what is cached for a repository, how much, since when; and its purge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from foretype_wire.errors import InvalidRequestError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.answers.operators import Cached, Purge
from foretype_backend.doors.auth import is_owner
from foretype_backend.doors.contract import Asks, DocumentedAnswer, DocumentedApp
from foretype_backend.doors.http import read_body
from foretype_backend.errors import PurgeError
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.identity.directory import Principal
from foretype_backend.prefix.directory import HeldDocument
from foretype_backend.prefix.purge_report import Purger
from foretype_backend.prefix.rights import CacheRights

_MAX_BODY_BYTES: Final = 64 * 1024


class PurgeRequest(msgspec.Struct, frozen=True):
    """`tenant` counts from the gateway's owner alone; everybody else purges their own."""

    repository: str = ""
    tenant: str | None = None


class PurgeDoor:
    """`POST /admin/prefix/purge`: 200 where every gateway and worker has followed, 202 where not; the answer names them.

    Args:
        purger: ends the epoch.
        blocks: how many are believed to be cached of a tenant's repository; None where nobody keeps count.
    """

    def __init__(self, purger: Purger, blocks: Callable[[str, str], int] | None = None) -> None:
        self._purger = purger
        self.blocks = blocks

    def register(self, app: DocumentedApp) -> None:
        answers = {
            200: DocumentedAnswer("every gateway and worker has followed", [Purge]),
            202: DocumentedAnswer("kept for good, and not everybody has followed yet", [Purge]),
            400: DocumentedAnswer("a field is wrong, and which", [GatewayError]),
            503: DocumentedAnswer("nothing was purged", [GatewayError]),
        }
        app.door("POST", "/admin/prefix/purge", self.purge, tag="operators", takes=PurgeRequest, answers=answers)

    async def purge(self, request: Request, principal: Asks) -> Response:
        """Make everything cached of a repository, or without one of the whole tenant, unreachable.

        Of a gateway that keeps tenants apart.
        """
        try:
            body = await read_body(request, PurgeRequest, max_bytes=_MAX_BODY_BYTES)
        except InvalidRequestError as error:
            return _refused(error.field, str(error))
        tenant = _tenant(principal, body.tenant)
        blocks = None if self.blocks is None else self.blocks(tenant, body.repository)
        try:
            done = await self._purger.purge(tenant, body.repository, actor=principal.credential)
        except PurgeError as error:
            if error.field is not None:
                return _refused(error.field, str(error))
            told: GatewayError = {
                "error": {
                    "message": f"nothing was purged: {error}",
                    "type": "server_error",
                    "param": None,
                    "code": "unavailable",
                }
            }
            return JSONResponse(told, status_code=503)
        answer = {"tenant": tenant, "repository": body.repository, "blocks": blocks, "epoch": done.epoch}
        return JSONResponse(answer | done.report(), status_code=200 if done.complete else 202)


class PrefixDoor:
    """`GET /admin/prefix?repository=…`.

    Args:
        pool: keeps the book of caches.
        clock: the pool's, seconds.
        rights: of the teams, now.
    """

    def __init__(
        self,
        pool: ReplicaPool,
        *,
        clock: Callable[[], float] = time.monotonic,
        rights: Callable[[], CacheRights] = CacheRights,
    ) -> None:
        self._pool = pool
        self._rights = rights
        self._clock = clock

    def register(self, app: DocumentedApp) -> None:
        app.door(
            "GET", "/admin/prefix", self.show, tag="operators", answers={200: DocumentedAnswer("by document", [Cached])}
        )

    async def show(self, principal: Asks, repository: str = "", tenant: str | None = None) -> Response:
        """What is cached of a repository, by document, largest first.

        Believed, or known by the replicas' events. Of a gateway with a pool of replicas; `tenant` counts from its owner alone.
        """
        tenant = _tenant(principal, tenant)
        held = self._pool.book.contents(tenant, repository)
        now = self._clock()
        statistics = self._pool.pool_statistics()
        named = _shown_as(principal, list(statistics.replicas))
        replicas = {named[name]: one._asdict() for name, one in statistics.replicas.items()}
        if not is_owner(principal):
            replicas = {name: {**one, "reason": ""} for name, one in replicas.items()}
        return JSONResponse(
            {
                "tenant": tenant,
                "repository": repository,
                "tokens": sum(one.tokens for one in held),
                "block_tokens": self._pool.book.block_tokens,
                "documents": [_row(one, now, named) for one in held],
                "sharing": _sharing(
                    self._rights().of_tenant(tenant), self._pool.book.directory.apart(tenant), repository
                ),
                "replicas": replicas,
                "agreement": statistics.agreement._asdict(),
            }
        )


def _sharing(teams: Mapping[str, list[str]], apart: Mapping[str, list[str]], repository: str) -> list[dict[str, Any]]:
    """Of one repository, or of all that have rights or caches of somebody's own."""
    names = [repository] if repository else sorted({*teams, *apart})
    return [{"repository": name, "teams": teams.get(name), "apart": apart.get(name, [])} for name in names]


def _tenant(principal: Principal, named: str | None) -> str:
    """An administrator sees their own tenant; the owner's token, and a gateway without credentials, any."""
    return named if is_owner(principal) and named is not None else principal.tenant


def _shown_as(principal: Principal, names: list[str]) -> dict[str, str]:
    """The owner sees addresses; a tenant's administrator tells replicas apart by their numbers."""
    return {name: name if is_owner(principal) else f"replica {at}" for at, name in enumerate(names)}


def _refused(field: str | None, message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": field, "code": "invalid_request"}
    return JSONResponse({"error": error}, status_code=400)


def _row(held: HeldDocument, now: float, named: dict[str, str]) -> dict[str, Any]:
    return {
        "document": held.document,
        "scope": held.scope.value,
        "blocks": held.blocks,
        "tokens": held.tokens,
        "retired_blocks": held.retired_blocks,
        "sessions": held.sessions,
        "replicas": [named.get(name, name) for name in held.replicas],
        "since_s": round(now - held.since, 1),
        "last_used_s": round(now - held.last_used, 1),
    }
