"""Operators' door that ends what is cached of a repository or a tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from foretype_wire.errors import InvalidRequestError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.answers.operators import Purge
from foretype_backend.doors.auth import is_owner
from foretype_backend.doors.contract import Asks, DocumentedAnswer, DocumentedApp
from foretype_backend.doors.http import read_body
from foretype_backend.errors import PurgeError
from foretype_backend.identity.directory import Principal
from foretype_backend.prefix.purge_report import Purger

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
        tenant = tenant_of(principal, body.tenant)
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


def tenant_of(principal: Principal, named: str | None) -> str:
    """An administrator sees their own tenant; the owner's token, and a gateway without credentials, any."""
    return named if is_owner(principal) and named is not None else principal.tenant


def _refused(field: str | None, message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": field, "code": "invalid_request"}
    return JSONResponse({"error": error}, status_code=400)
