"""What completions and next edits of one connection of the stream door share: how a request is let in, cancelled and answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import GatewaySession, invalid
from foretype_wire.messages import (
    Complete,
    Delta,
    Done,
    Error,
    ErrorCode,
    Finish,
    GatewayMessage,
    NextEdit,
    RequestClass,
    WireSegment,
)
from foretype_wire.redaction import log_fault

from foretype_backend.config.settings import LimitsConfig
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.completion import Asked, Claim
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.service import CompletionOutcome, CompletionService

_log = logging.getLogger("foretype.gateway")


class RequestHost(Protocol):
    """What requests need of their door."""

    limits: LimitsConfig


class LiveRequest:
    """One request of a connection, from its message to its end: the service that runs it is remembered, so a cancel goes straight there.

    Args:
        key: as of :class:`AdmittedRequest`.
        session: whose it is.
    """

    __slots__ = ("_service", "answered", "key", "session", "stopped")

    def __init__(self, key: str, session: str) -> None:
        self.key = key
        self.session = session
        self.stopped = False
        """It was cancelled or superseded while no service ran it: before its prompt was encoded, or between two pools."""
        self.answered = False
        """The client has text of it."""
        self._service: CompletionService | None = None

    def text_was_sent(self) -> None:
        self.answered = True

    def run_by(self, service: CompletionService) -> Self:
        """Within the block, `service` runs it."""
        self._service = service
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._service = None

    def cancel(self) -> None:
        """End it, also while its prompt is still being encoded."""
        if self._service is None or not self._service.cancel(self.key):
            self.stopped = True

    def supersede(self) -> None:
        """As :meth:`cancel`, for another request of the session."""
        if self._service is None or not self._service.supersede(self.key, self.session):
            self.stopped = True


_Host = TypeVar("_Host", bound=RequestHost)


class StreamAnswers(Generic[_Host]):
    """Requests of one kind.

    Args:
        live: those of the connection by id, of every kind; its session looks here, too.
        send: takes messages to the client; never blocks.
        spawn: runs what outlives the frame, until the connection ends.
    """

    __slots__ = ("_door", "_live", "_loop", "_principal", "_send", "_session", "_spawn")

    kind: ClassVar[str]
    """What the log calls a request."""

    def __init__(
        self,
        door: _Host,
        session: GatewaySession,
        principal: Principal,
        *,
        live: dict[str, LiveRequest],
        send: Callable[..., None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._door = door
        self._session = session
        self._principal = principal
        self._live = live
        self._send = send
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Lets go of the connection, which is over: what it knew is gone with it, not with the collector's next round."""
        self._send = self._spawn = _gone

    def _supersede(self, id: str | None) -> None:
        """As a cancel: before the prompt of its successor is encoded, which the engine need not wait for."""
        live = None if id is None else self._live.get(id)
        if live is not None:
            live.supersede()

    def _let_in(self, message: Complete[WireSegment] | NextEdit, fault: InvalidRequestError | None = None) -> bool:
        """Whether the session's rules take it, which has this fault already; else the client is told."""
        try:
            wanted = self._session.admit(message, self._loop.time())
            if fault is not None:
                raise fault
        except InvalidRequestError as error:
            self._send(invalid(error, id=message.id if message.id not in self._live else None))
            return False
        if not wanted:
            self._send(Done(id=message.id, finish=Finish.CANCELLED))
        return wanted

    def _has_room(self, id: str) -> bool:
        """Whether the connection may have this request, too; else the client is told."""
        if len(self._live) < self._door.limits.live_per_connection:
            return True
        many = f"{self._door.limits.live_per_connection} requests of this connection are live already"
        self._send(Error(code=ErrorCode.OVERLOADED, id=id, message=many, retry_after_ms=100.0))
        return False

    def _asked(
        self,
        message: Complete[WireSegment] | NextEdit,
        class_: RequestClass,
        *,
        received: float,
        deadline: float,
        prefill_only: bool = False,
    ) -> Asked:
        """Of a message of this connection."""
        return Asked(
            key=self._session.key(message.id),
            session=self._session.name,
            received=received,
            deadline=deadline,
            class_=class_,
            document=message.document,
            user="" if self._session.hello is None else self._session.hello.user,
            prefill_only=prefill_only,
            principal=self._principal,
            repository=self._session.repository_of(message.document),
            language=message.language,
            traceparent=message.traceparent,
        )

    def _begin(
        self, id: str, claim: Claim, work: Callable[[LiveRequest], Awaitable[tuple[GatewayMessage, ...]]]
    ) -> None:
        live = self._live[id] = LiveRequest(self._session.key(id), self._session.name)
        self._spawn(self._serve(id, live, claim, work))

    async def _serve(
        self,
        id: str,
        live: LiveRequest,
        claim: Claim,
        work: Callable[[LiveRequest], Awaitable[tuple[GatewayMessage, ...]]],
    ) -> None:
        try:
            with claim:
                answer = await work(live)
        except BudgetExceededError as limited:
            answer = answer_of(id, limited.outcome)
        except InvalidRequestError as error:
            answer = (invalid(error, id=id),)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this request, not the connection
            log_fault(_log, f"{self.kind} failed", error)
            told = "internal error; see the gateway's log"
            answer = (Error(code=ErrorCode.ENGINE_UNAVAILABLE, id=id, message=told),)
        finally:
            del self._live[id]
        self._send(*answer)


def _gone(*_: object) -> None:
    """Where a connection was."""


def delta_of(id: str, delta: TextDelta) -> Delta:
    return Delta(id=id, text=delta.text, logprob=delta.logprob, tokens=delta.tokens)


def answer_of(id: str, outcome: CompletionOutcome | GatewayMessage) -> tuple[GatewayMessage, ...]:
    """What a client is told of an end."""
    if not isinstance(outcome, CompletionOutcome):
        return (outcome,)
    if outcome.refusal is not None:
        refused = outcome.refusal
        error = Error(
            code=refused.code,
            id=id,
            field=refused.field,
            message=refused.message,
            retry_after_ms=refused.retry_after_ms,
        )
        return (error,)
    finish = outcome.finish or Finish.REFUSED
    done = Done(
        id=id,
        finish=finish,
        usage=outcome.usage,
        timings_ms=outcome.timings_ms,
        logprob=outcome.ending.logprob,
        tokens=outcome.ending.tokens,
    )
    return (done,) if outcome.rest is None else (delta_of(id, outcome.rest), done)
