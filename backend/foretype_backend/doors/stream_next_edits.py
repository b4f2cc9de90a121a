"""Questions about the next edit on one connection of the stream door: from a `next_edit` on the wire to its `edited` and `done`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec
from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import GatewaySession, invalid, is_id
from foretype_wire.messages import Done, Edited, Error, ErrorCode, Finish, GatewayMessage, NextEdit
from foretype_wire.redaction import log_fault

from foretype_backend.config.settings import LimitsConfig
from foretype_backend.doors.stream_completions import answer_of
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.completion import Claim
from foretype_backend.serving.next_edits import NO_EDIT_MODEL, NextEditService

_log = logging.getLogger("foretype.gateway")


class NextEditHost(Protocol):
    """What questions need of their door."""

    limits: LimitsConfig
    next_edits: NextEditService | None

    def cancel(self, key: str) -> bool: ...
    def supersede(self, key: str, session: str) -> bool: ...


class StreamNextEdits:
    """See the module.

    Args:
        send: takes messages to the client; never blocks.
        spawn: runs what outlives the frame, until the connection ends.
    """

    __slots__ = ("_door", "_live", "_principal", "_send", "_session", "_spawn", "_unborn")

    def __init__(
        self,
        door: NextEditHost,
        session: GatewaySession,
        principal: Principal,
        *,
        send: Callable[..., None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._door = door
        self._session = session
        self._principal = principal
        self._send = send
        self._spawn = spawn
        self._live: set[str] = set()
        self._unborn: set[str] = set()  # live ids that were cancelled before the service knew them

    def close(self) -> None:
        """Lets go of the connection, which is over."""
        self._send = self._spawn = _gone

    def cancel(self, id: str) -> bool:
        """Cancel a live question, also one whose prompt is still being encoded; False where `id` is none."""
        if id not in self._live:
            return False
        if not self._door.cancel(self._session.key(id)):
            self._unborn.add(id)
        return True

    def take(self, message: NextEdit) -> None:
        """Take a question in the order of the wire."""
        edits = self._door.next_edits
        if edits is None:
            known = is_id(message.id) and message.id not in self._session.live
            self._send(invalid(InvalidRequestError("type", NO_EDIT_MODEL), id=message.id if known else None))
            return
        received = edits.service.clock()
        try:
            wanted = self._session.admit(message, asyncio.get_running_loop().time())
        except InvalidRequestError as error:
            self._send(invalid(error, id=message.id if message.id not in self._session.live else None))
            return
        if not wanted:
            self._send(Done(id=message.id, finish=Finish.CANCELLED))
            return
        if len(self._session.live) > self._door.limits.live_per_connection:
            self._session.ended(message.id)
            many = f"{self._door.limits.live_per_connection} requests of this connection are live already"
            self._send(Error(code=ErrorCode.OVERLOADED, id=message.id, message=many, retry_after_ms=100.0))
            return
        former = message.supersedes
        if former in self._live and not self._door.supersede(self._session.key(former), self._session.name):
            self._unborn.add(former)
        try:
            claim = edits.claim(self._principal, message.question)
        except BudgetExceededError as limited:
            self._session.ended(message.id)
            self._send(*answer_of(message.id, limited.outcome))
            return
        self._live.add(message.id)
        self._spawn(self._serve(edits, message, claim, received))

    async def _serve(self, edits: NextEditService, message: NextEdit, claim: Claim, received: float) -> None:
        try:
            with claim:
                answer = await self._answer(edits, message, claim, received)
        except InvalidRequestError as error:
            answer = (invalid(error, id=message.id),)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this request, not the connection
            log_fault(_log, "next edit failed", error)
            told = "internal error; see the gateway's log"
            answer = (Error(code=ErrorCode.ENGINE_UNAVAILABLE, id=message.id, message=told),)
        finally:
            self._session.ended(message.id)
            self._live.discard(message.id)
            self._unborn.discard(message.id)
        self._send(*answer)

    async def _answer(
        self, edits: NextEditService, message: NextEdit, claim: Claim, received: float
    ) -> tuple[GatewayMessage, ...]:
        prompt = await edits.encode(message.question, tenant=self._principal.tenant)
        if message.id in self._unborn:
            return (Done(id=message.id, finish=Finish.CANCELLED),)
        taken, outcome = await edits.run(
            prompt,
            key=self._session.key(message.id),
            session=self._session.name,
            received=received,
            deadline_ms=message.deadline_ms,
            principal=self._principal,
            claim=claim,
            document=message.document,
            language=message.language,
            repository=self._session.repository_of(message.document),
            traceparent=message.traceparent,
        )
        end = answer_of(message.id, msgspec.structs.replace(outcome, rest=None))
        if outcome.finish in (None, Finish.CANCELLED):
            return end
        return Edited(id=message.id, edit=taken.edit, reason=taken.reason), *end


def _gone(*_: object) -> None:
    """Where a connection was."""
