"""The stream door: one long-lived WebSocket per client at `/v1/stream` (design, section 3).

A shell around :mod:`foretype_backend.sessions`: it reads frames, writes messages, and owns one task per live completion.
Nothing a client sends ends the connection, except a wrong Origin, Host or token (before the first frame), and a frame so
large that the transport refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from foretype_client.segment_cache import SegmentCache
from foretype_client.wire import (
    Ack,
    Cancel,
    Changed,
    ClientMessage,
    Complete,
    Delta,
    Done,
    Error,
    ErrorCode,
    Feedback,
    Finish,
    GatewayMessage,
    Goaway,
    Have,
    Hello,
    Need,
    Profile,
    RequestClass,
)
from foretype_context.segments import Segment
from starlette.websockets import WebSocket, WebSocketDisconnect

from foretype_backend.admission.outcomes import InvalidRequest, Reason
from foretype_backend.config import LimitsConfig
from foretype_backend.doors.auth import CLOSE_CREDENTIALS, CLOSE_FORBIDDEN, Gatekeeper
from foretype_backend.identity.directory import Denial, Principal, Scope
from foretype_backend.logs import log_fault
from foretype_backend.memo import MemoTokenizer
from foretype_backend.output import TextDelta
from foretype_backend.render import Renderer, resolve
from foretype_backend.serve import Job, Outcome, Service
from foretype_backend.sessions import BadFrame, Inbox, Outbox, Session, invalid
from foretype_backend.telemetry.intake import Sender
from foretype_backend.telemetry.sink import Receipt

if TYPE_CHECKING:  # it brings an HTTP client, which a gateway with one pool never loads
    from foretype_backend.chat.pool import BlockPool

__all__ = ["ChangeSink", "FeedbackSink", "Sender", "StreamDoor"]

HELLO_S: float = 30.0
"""Who connects and says nothing holds a connection no longer than this."""
CLOSE_POLICY: Final = 1008
CLOSE_RESTART: Final = 1012
CLOSE_TRY_LATER: Final = 1013
_OUTBOX_MESSAGES: Final = 512
_MAX_FEEDBACK_EVENTS: Final = 1000
_MAX_BATCHES: Final = 8

_log = logging.getLogger("foretype.gateway")


class FeedbackSink(Protocol):
    """Where feedback goes. Returning means that the batch is safe; raising leaves it with the client.

    The answer names events that were refused, each by its field, and says whether the sender's tenant wants texts.
    """

    async def __call__(self, sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> Receipt | None: ...


class ChangeSink(Protocol):
    """Told about changed documents, so that caches can retire what they hold of them."""

    def __call__(self, session: str, change: Changed) -> None: ...


class StreamDoor:
    """All stream connections of a gateway."""

    def __init__(
        self,
        service: Service,
        renderer: Renderer,
        profile: Profile,
        keeper: Gatekeeper,
        *,
        limits: LimitsConfig,
        feedback: FeedbackSink,
        changed: ChangeSink,
        max_connections: int = 20_000,
        block: BlockPool | None = None,
    ) -> None:
        self.service = service
        self.renderer = renderer
        self.profile = profile
        self.keeper = keeper
        self.limits = limits
        self.max_connections = max_connections
        self.draining = False
        """No connection is taken any more; those that are open were asked to move on."""
        self.block = block
        self.feedback = feedback
        self.changed = changed
        self.left: Callable[[str], None] = lambda _session: None
        """Told when a session has ended."""
        self.feedback_failing = False
        self.connections: set[Connection] = set()
        self.activity = asyncio.Event()
        """Set whenever a connection came or left."""
        self._names = itertools.count(1)

    async def __call__(self, websocket: WebSocket) -> None:
        """Serve one connection until it ends."""
        admitted = self._admit(websocket)
        await websocket.accept()
        if isinstance(admitted, tuple):
            code, reason = admitted
            await websocket.close(code, reason)
            return
        connection = Connection(self, websocket, f"c{next(self._names)}", admitted)
        self.connections.add(connection)
        self.activity.set()
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self.activity.set()

    def cancel(self, key: str) -> bool:
        """End a live request, in whatever pool it is; False when there is none of that key."""
        return self.service.cancel(key) or (self.block is not None and self.block.service.cancel(key))

    def is_live(self, key: str) -> bool:
        return self.service.is_live(key) or (self.block is not None and self.block.service.is_live(key))

    def disconnect(self, session: str) -> None:
        self.service.disconnect(session)
        if self.block is not None:
            self.block.service.disconnect(session)

    def update_profile(self, profile: Profile) -> None:
        """Use another profile from now on, and tell every client."""
        self.profile = profile
        for connection in self.connections:
            if connection.session.hello is not None:
                connection.send(profile)

    def goaway(self, grace_ms: float) -> None:
        """Ask every client to move on within `grace_ms`, and take no new one."""
        self.draining = True
        for connection in self.connections:
            connection.send(Goaway(grace_ms=grace_ms))

    def recheck(self) -> None:
        """Close every connection whose credential is no longer taken."""
        for connection in list(self.connections):
            if not self.keeper.still(connection.principal):
                connection.close(CLOSE_CREDENTIALS, "the credential was revoked or has expired")

    def _admit(self, websocket: WebSocket) -> Principal | tuple[int, str]:
        """Who connects, or the code and reason to close with."""
        if not self.keeper.listed(websocket.headers):
            return CLOSE_FORBIDDEN, "this Host or Origin is not listed"
        principal = self.keeper.authenticate(websocket.headers, Scope.COMPLETE)
        if isinstance(principal, Denial):
            return CLOSE_CREDENTIALS, "no or wrong credential"
        if self.draining:
            return CLOSE_RESTART, "this gateway is going away; connect again"
        if len(self.connections) >= self.max_connections:
            return CLOSE_TRY_LATER, "this gateway has all the connections it takes; try again later"
        return principal


class Connection:
    """One open WebSocket."""

    def __init__(self, door: StreamDoor, websocket: WebSocket, name: str, principal: Principal) -> None:
        self.door = door
        self.principal = principal
        self.session = Session(name, limits=door.limits)
        self._websocket = websocket
        self._inbox = Inbox(max_frame_bytes=door.limits.max_frame_bytes)
        self._outbox = Outbox(capacity=_OUTBOX_MESSAGES)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._memo = MemoTokenizer(door.renderer.tokenizer)
        self._batches = 0
        self._closing = False
        self._unborn: set[str] = set()  # live ids that were cancelled before the service knew them
        self._loop = asyncio.get_running_loop()

    def forget(self) -> None:
        """Drop the texts and ids that are kept for later requests; the client is asked for them again."""
        self.session.cache = SegmentCache(self.session.cache.capacity_bytes)
        self._memo = MemoTokenizer(self.door.renderer.tokenizer)

    def send(self, message: GatewayMessage) -> None:
        """Queue a message; never blocks. Deltas of one completion merge while the socket is slow."""
        self._outbox.put(message)
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """End the connection from this side."""
        if not self._closing:
            self._closing = True
            self._spawn(self._close(code, reason))

    async def _close(self, code: int, reason: str) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            await self._websocket.close(code, reason)

    async def run(self) -> None:
        """Read until the peer leaves, then end everything it asked for."""
        writer = self._loop.create_task(self._write())
        silent = self._loop.call_later(HELLO_S, self._greeted_or_closed)
        try:
            await self._read(writer)
        finally:
            silent.cancel()
            self.door.disconnect(self.session.name)
            self.door.left(self.session.name)
            tasks = [writer, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _greeted_or_closed(self) -> None:
        if self.session.hello is None:
            self.close(CLOSE_POLICY, "no hello came")

    async def _read(self, writer: asyncio.Task[None]) -> None:
        while not writer.done():
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            frame: bytes | str | None = event.get("bytes")
            if frame is None:
                frame = str(event.get("text", ""))
            try:
                self._take(self._inbox.decode(frame))
            except BadFrame as error:
                # an answer with the id of a live request would end that one at the client
                self.send(invalid(error, id=None if error.id in self.session.live else error.id))
            except InvalidRequest as error:
                self.send(invalid(error))
            while self._outbox.full and not writer.done():
                self._room.clear()
                await self._room.wait()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (message := self._outbox.pop()) is not None:
                    await self._websocket.send(self._frame(message))
                    self._room.set()
        except (WebSocketDisconnect, RuntimeError, OSError):
            return  # the reader sees the disconnect, and ends the connection
        finally:
            self._room.set()

    def _frame(self, message: GatewayMessage) -> dict[str, object]:
        if self._inbox.binary is False:
            return {"type": "websocket.send", "text": msgspec.json.encode(message).decode()}
        return {"type": "websocket.send", "bytes": msgspec.msgpack.encode(message)}

    def _take(self, message: ClientMessage) -> None:
        match message:
            case Complete():
                self._complete(message)
            case Cancel():
                if self.session.cancel(message, self._loop.time()):
                    self._cancel(message.id)
            case Hello():
                self.session.greet(message)
                self.send(self.door.profile)
            case Have():
                self._have(message)
            case Changed():
                self.door.changed(self.session.name, message)
            case Feedback():
                self._feedback(message)

    def _have(self, message: Have) -> None:
        """Digests the client holds. Nothing is fetched ahead in version 1, so this is checked and not used."""
        for index, digest in enumerate(message.digests):
            if len(digest) != 16:
                raise InvalidRequest(f"digests[{index}]", f"{len(digest)} bytes, must be 16")

    def _feedback(self, message: Feedback) -> None:
        if not 0 < len(message.batch) <= 64:
            raise InvalidRequest("batch", "must be 1 to 64 characters")
        if len(message.events) > _MAX_FEEDBACK_EVENTS:
            raise InvalidRequest("events", f"at most {_MAX_FEEDBACK_EVENTS} events in a batch")
        if self._batches >= _MAX_BATCHES:
            many = f"{_MAX_BATCHES} batches wait for the store already; send it again"
            self.send(Error(code=ErrorCode.OVERLOADED, field="batch", message=many, retry_after_ms=1000.0))
            return
        self._batches += 1
        self._spawn(self._store(message))

    async def _store(self, message: Feedback) -> None:
        """Acknowledge a batch only when the sink has it; without an `ack` the client sends it again."""
        hello = self.session.hello
        who = self.principal
        user = who.user or ("" if hello is None else hello.user)
        sender = Sender(self.session.name, tenant=who.tenant, team=who.team, user=user)
        try:
            receipt = await self.door.feedback(sender, message.batch, message.events) or Receipt()
        except Exception as error:  # noqa: BLE001 - not acknowledged, so the batch stays with the client
            if not self.door.feedback_failing:
                log_fault(_log, "feedback is not stored; clients keep it", error)
            self.door.feedback_failing = True
            told = f"batch {message.batch} is not stored; send it again"
            self.send(Error(code=ErrorCode.OVERLOADED, field="batch", message=told, retry_after_ms=30_000.0))
        else:
            self.door.feedback_failing = False
            self.door.service.metrics.feedback(message.events, refused=len(receipt.refused))
            if receipt.refused:
                first, many = receipt.refused[0], len(receipt.refused)
                more = f" (and {many - 1} more of this batch)" if many > 1 else ""
                self.send(Error(code=ErrorCode.INVALID_REQUEST, field=first.field, message=f"{first.message}{more}"))
            self.send(Ack(batch=message.batch, refused=len(receipt.refused), store_text=receipt.store_text))
        finally:
            self._batches -= 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _resolve(self, message: Complete) -> list[Segment] | list[bytes]:
        return resolve(
            self.session.cache,
            message.segments,
            self.door.renderer.grammar,
            max_segments=self.door.limits.max_segments,
        )

    def _cancel(self, id: str) -> None:
        """Cancel a live request, also one whose prompt is still being encoded."""
        if not self.door.cancel(self.session.key(id)):
            self._unborn.add(id)

    def _complete(self, message: Complete) -> None:
        """Take a completion in the order of the wire: the segment cache first, whatever becomes of the request."""
        received = self.door.service.clock()
        try:
            segments, fault = self._resolve(message), None
        except InvalidRequest as error:
            segments, fault = [], error
        try:
            wanted = self.session.admit(message, self._loop.time())
            if fault is not None:
                self.session.ended(message.id)
                raise fault
        except InvalidRequest as error:
            self.send(invalid(error, id=message.id if message.id not in self.session.live else None))
            return
        if not wanted:
            self.send(Done(id=message.id, finish=Finish.CANCELLED))
            return
        if segments and isinstance(segments[0], bytes):
            self.session.ended(message.id)
            self.send(Need(id=message.id, digests=[d for d in segments if isinstance(d, bytes)]))
            return
        if len(self.session.live) > self.door.limits.live_per_connection:
            self.session.ended(message.id)
            many = f"{self.door.limits.live_per_connection} requests of this connection are live already"
            self.send(Error(code=ErrorCode.OVERLOADED, id=message.id, message=many, retry_after_ms=100.0))
            return
        former = message.supersedes
        if former is not None and former in self.session.live and not self.door.is_live(self.session.key(former)):
            self._unborn.add(former)
        known = [segment for segment in segments if isinstance(segment, Segment)]
        self._spawn(self._serve(message, known, received))

    async def _serve(self, message: Complete, segments: list[Segment], received: float) -> None:
        try:
            answer = await self._answer(message, segments, received)
        except InvalidRequest as error:
            answer = invalid(error, id=message.id)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this request, not the connection
            log_fault(_log, "completion failed", error)
            answer = Error(
                code=ErrorCode.ENGINE_UNAVAILABLE, id=message.id, message="internal error; see the gateway's log"
            )
        finally:
            self.session.ended(message.id)
            self._unborn.discard(message.id)
        self.send(answer)

    async def _answer(self, message: Complete, segments: list[Segment], received: float) -> GatewayMessage:
        block = self.door.block if message.class_ is RequestClass.BLOCK else None
        if block is not None:
            outcome = await self._run(message, segments, received, block.service, block.renderer)
            lost = isinstance(outcome, Outcome) and outcome.reason is Reason.ENGINE_LOST
            if not (lost and block.fails_over):
                return outcome if not isinstance(outcome, Outcome) else _answer_of(message.id, outcome)
        outcome = await self._run(message, segments, received, self.door.service, self.door.renderer)
        return outcome if not isinstance(outcome, Outcome) else _answer_of(message.id, outcome)

    async def _run(
        self, message: Complete, segments: list[Segment], received: float, service: Service, renderer: Renderer
    ) -> Outcome | GatewayMessage:
        """Serve in one pool; a message where the request never got so far."""
        deadline = self._loop.time() + min(message.deadline_ms, self.door.limits.max_deadline_ms) / 1000
        own = renderer is self.door.renderer
        prompt = await renderer.encode(segments, memo=self._memo if own else None)
        if message.id in self._unborn:
            service.metrics.refused(message.class_, Reason.CANCELLED)
            return Done(id=message.id, finish=Finish.CANCELLED)
        if own and message.prompt_tokens is not None and message.prompt_tokens != len(prompt.ids):
            service.metrics.refused(message.class_, Reason.MISMATCH)
            told = f"the client counted {message.prompt_tokens} prompt tokens, the gateway {len(prompt.ids)}"
            return Error(code=ErrorCode.TOKENIZER_MISMATCH, id=message.id, field="prompt_tokens", message=told)
        room = renderer.context_limit_tokens - len(prompt.ids)
        warm = message.class_ is RequestClass.WARM or message.max_tokens == 0
        former = self.session.key(message.supersedes) if message.supersedes else None
        if former is not None and not service.is_live(former):
            self.door.cancel(former)  # it may run in another pool, whose scheduler will not see this request
        job = Job(
            key=self.session.key(message.id),
            session=self.session.name,
            prompt=prompt,
            received=received,
            deadline=deadline,
            max_tokens=max(1, min(message.max_tokens, room)),
            class_=message.class_,
            document=message.document,
            principal=self.principal,
            supersedes=former,
            stop=message.stop,
            prefill_only=warm,
            repository=self.session.repository_of(message.document),
            language=message.language,
            traceparent=message.traceparent,
        )
        return await service.run(job, lambda delta: self._deliver(message.id, delta))

    def _deliver(self, id: str, delta: TextDelta) -> None:
        self.send(Delta(id=id, text=delta.text, logprob=delta.logprob, tokens=delta.tokens))


def _answer_of(id: str, outcome: Outcome) -> GatewayMessage:
    if outcome.refusal is not None:
        refused = outcome.refusal
        return Error(
            code=refused.code,
            id=id,
            field=refused.field,
            message=refused.message,
            retry_after_ms=refused.retry_after_ms,
        )
    finish = outcome.finish or Finish.REFUSED
    return Done(id=id, finish=finish, usage=outcome.usage, timings_ms=outcome.timings_ms)
