"""One open WebSocket of the stream door: frames in, messages out, one task per live completion.

A shell around :mod:`foretype_wire.gateway_protocol`. Frames come by callback and messages leave in the turn in which they are made
(:mod:`foretype_backend.transport.websocket_frames`); only what a slow peer does not take waits, merged, in the outbox. Nothing a client sends ends the
connection, except a frame so large that the transport refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
from foretype_context.segments import Segment
from foretype_wire.errors import BadFrameError, InvalidRequestError
from foretype_wire.gateway_protocol import GatewaySession, Inbox, Outbox, invalid
from foretype_wire.messages import (
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
    Hello,
    Need,
    Profile,
    RequestClass,
    WireSegment,
)
from foretype_wire.redaction import log_fault
from foretype_wire.segment_cache import SegmentCache
from foretype_wire.subscriptions import Subscribers
from starlette.websockets import WebSocket, WebSocketDisconnect

from foretype_backend.admission.bounds import Bound
from foretype_backend.admission.outcomes import Reason
from foretype_backend.config.load import LimitsConfig
from foretype_backend.doors.feedback import MAX_BATCHES, FeedbackIntake, busy, check_feedback
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.completion import Claim
from foretype_backend.serving.fair_turns import Turns
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.render import Prompt, Renderer, SessionEncoder, resolve
from foretype_backend.serving.service import AdmittedRequest, CompletionOutcome, CompletionService
from foretype_backend.telemetry.intake import Sender
from foretype_backend.transport.websocket_frames import Frame, channel_of

if TYPE_CHECKING:  # it brings an HTTP client, which a gateway with one pool never loads
    from foretype_backend.chat.pool import BlockPool

__all__ = ["ConnectionHost", "StreamConnection"]

HELLO_S: float = 30.0
"""Who connects and says nothing holds a connection no longer than this."""
CLOSE_POLICY: Final = 1008
CLOSE_FAULT: Final = 1011
_OUTBOX_MESSAGES: Final = 512
_CHANGED_AT_ONCE: Final = 64
"""Documents that are worked off in one turn, in half a millisecond."""
_ENTRY_BYTES: Final = 256
"""What a remembered text takes beside its own bytes."""

_log = logging.getLogger("foretype.gateway")
_to_msgpack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode


class ConnectionHost(Protocol):
    """What a connection needs of its door."""

    service: CompletionService
    renderer: Renderer
    limits: LimitsConfig
    block: BlockPool | None
    feedback: FeedbackIntake
    changed: Subscribers[str, Changed]
    left: Subscribers[str]
    turns: Turns
    remembered: Bound

    def profile_of(self, tenant: str) -> Profile: ...
    def cancel(self, key: str) -> bool: ...
    def supersede(self, key: str, session: str) -> bool: ...
    def disconnect(self, session: str) -> None: ...


class StreamConnection:
    """One open WebSocket, accepted already."""

    def __init__(self, door: ConnectionHost, websocket: WebSocket, name: str, principal: Principal) -> None:
        self.door = door
        self.principal = principal
        self.session = GatewaySession(name, max_tokens=door.limits.max_tokens)
        self._websocket = websocket
        self._channel = channel_of(websocket.scope)
        self._inbox = Inbox(max_frame_bytes=door.limits.max_frame_bytes)
        self._outbox = Outbox(capacity=_OUTBOX_MESSAGES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._encoder: SessionEncoder | None = None  # most connections are silent, and need none
        self._batches = 0
        self._remembered = 0  # bytes of remembered texts, as they are counted for the tenant
        self._closing = False
        self._told: Profile | None = None
        self._unborn: set[str] = set()  # live ids that were cancelled before the service knew them
        self._loop = asyncio.get_running_loop()

    def forget(self) -> None:
        """Drop the texts and ids that are kept for later requests; the client is asked for them again."""
        self.session.cache = SegmentCache(self.session.cache.capacity_bytes)
        self._count_remembered()
        self._encoder = None

    def _count_remembered(self) -> None:
        cache = self.session.cache
        now = cache.size_bytes + _ENTRY_BYTES * len(cache)
        if now != self._remembered:
            self.door.remembered.add(self.principal.tenant, now - self._remembered)
            self._remembered = now

    def tell(self) -> None:
        """Send the profile of its tenant, unless it was the last one that was sent."""
        profile = self.door.profile_of(self.principal.tenant)
        if profile is not self._told:
            self._told = profile
            self.send(profile)

    def send(self, *messages: GatewayMessage) -> None:
        """Write messages at once, or keep them while the peer is slow; never blocks. Deltas of one completion merge while they wait."""
        if self._channel.ready and not len(self._outbox):
            self._write(messages)
            return
        for message in messages:
            self._outbox.put(message)
        if self._outbox.full:
            self._channel.pause()

    def close(self, code: int, reason: str) -> None:
        """End the connection from this side."""
        if not self._closing:
            self._closing = True
            self._spawn(self._close(code, reason))

    async def _close(self, code: int, reason: str) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            await self._websocket.close(code, reason)

    async def run(self) -> None:
        """Serve until the peer leaves, then end everything it asked for."""
        silent = self._loop.call_later(HELLO_S, self._greeted_or_closed)
        self._channel.listen(self._came, self._flush, self.door.turns.of(self.principal.tenant))
        try:
            while (await self._websocket.receive())["type"] != "websocket.disconnect":
                pass
        finally:
            silent.cancel()
            self.session.cache.clear()
            self._count_remembered()
            self.door.disconnect(self.session.name)
            self.door.left.tell(self.session.name)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _greeted_or_closed(self) -> None:
        if self.session.hello is None:
            self.close(CLOSE_POLICY, "no hello came")

    def _came(self, frame: Frame) -> None:
        try:
            self._take(self._inbox.decode(frame))
        except BadFrameError as error:
            # an answer with the id of a live request would end that one at the client
            self.send(invalid(error, id=None if error.id in self.session.live else error.id))
        except InvalidRequestError as error:
            self.send(invalid(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours; what this connection holds cannot be trusted any more
            log_fault(_log, "a frame failed", error)
            self.close(CLOSE_FAULT, "internal error; see the gateway's log")

    def _flush(self) -> None:
        """The peer takes more again."""
        while self._channel.ready and (message := self._outbox.pop()) is not None:
            self._write((message,))
        if not self._outbox.full:
            self._channel.resume()

    def _write(self, messages: Sequence[GatewayMessage]) -> None:
        text = self._inbox.binary is False
        self._channel.write([*map(_to_json if text else _to_msgpack, messages)], text=text)

    def _take(self, message: ClientMessage) -> None:
        match message:
            case Complete():
                self._complete(message)
            case Cancel():
                if self.session.cancel(message, self._loop.time()):
                    self._cancel(message.id)
            case Hello():
                self.session.greet(message)
                self.tell()
            case Changed():
                self._changed(message)
            case Feedback():
                self._feedback(message)

    def _changed(self, message: Changed) -> None:
        """A few names in each turn, all of them before the next frame."""
        documents = message.documents
        some = msgspec.structs.replace(message, documents=documents[:_CHANGED_AT_ONCE])
        self.door.changed.tell(self.session.name, some)
        rest = documents[_CHANGED_AT_ONCE:]
        if rest:
            self._channel.later(lambda: self._changed(msgspec.structs.replace(message, documents=rest)))

    def _feedback(self, message: Feedback) -> None:
        check_feedback(message)
        if self._batches >= MAX_BATCHES:
            self.send(busy())
            return
        self._batches += 1
        self._spawn(self._store(message))

    async def _store(self, message: Feedback) -> None:
        hello, who = self.session.hello, self.principal
        user = who.user or ("" if hello is None else hello.user)
        try:
            sender = Sender(self.session.name, tenant=who.tenant, team=who.team, user=user)
            await self.door.feedback.store(sender, message, self.send)
        finally:
            self._batches -= 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _resolve(self, message: Complete[WireSegment]) -> list[Segment] | list[bytes]:
        try:
            return resolve(
                self.session.cache,
                message.segments,
                self.door.renderer.grammar,
                max_segments=self.door.limits.max_segments,
            )
        finally:
            self._count_remembered()
            while self.door.remembered.full(self.principal.tenant) and self._remembered:
                self.session.cache.shrink(len(self.session.cache) // 2)
                self._count_remembered()

    def _cancel(self, id: str) -> None:
        """Cancel a live request, also one whose prompt is still being encoded."""
        if not self.door.cancel(self.session.key(id)):
            self._unborn.add(id)

    def _supersede(self, id: str) -> None:
        """As a cancel: before the prompt of its successor is encoded, which the engine need not wait for."""
        if not self.door.supersede(self.session.key(id), self.session.name):
            self._unborn.add(id)

    def _complete(self, message: Complete[WireSegment]) -> None:
        """Take a completion in the order of the wire: the segment cache first, whatever becomes of the request."""
        received = self.door.service.clock()
        segments: list[Segment] | list[bytes] = []
        fault: InvalidRequestError | None = None
        try:
            if self.session.hello is not None:  # of somebody who has not said it nothing is kept
                segments = self._resolve(message)
        except InvalidRequestError as error:
            fault = error
        try:
            wanted = self.session.admit(message, self._loop.time())
            if fault is not None:
                self.session.ended(message.id)
                raise fault
        except InvalidRequestError as error:
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
        if former is not None and former in self.session.live:
            self._supersede(former)
        known = [segment for segment in segments if isinstance(segment, Segment)]
        try:
            early = self._early(message, known)
        except InvalidRequestError as error:
            self.session.ended(message.id)
            self.send(invalid(error, id=message.id))
        except BudgetExceededError as limited:
            self.session.ended(message.id)
            self.send(*_answer_of(message.id, limited.outcome))
        else:
            self._spawn(self._serve(message, known, early, received))

    def _early(self, message: Complete[WireSegment], segments: list[Segment]) -> _Early:
        """Within the frame's own turn: claim the budget, then encode what is short. Raises BudgetExceededError and InvalidRequestError."""
        claim = self._claim(message, segments, self.door.service)
        if message.class_ is RequestClass.BLOCK and self.door.block is not None:
            return _Early(claim, None)
        with contextlib.ExitStack() as undo:
            undo.enter_context(claim)
            prompt = self.door.renderer.at_once(segments, self._remembering())
            undo.pop_all()
        return _Early(claim, prompt)

    def _claim(self, message: Complete[WireSegment], segments: list[Segment], service: CompletionService) -> Claim:
        opened = message.stop.opened
        most = 0 if _is_warm(message) else max(message.max_tokens, 0 if opened is None else opened.max_tokens)
        characters = sum([len(segment.text) for segment in segments])
        context = self.door.renderer.context_limit_tokens
        return service.claim(
            self.principal, message.class_, characters=characters, context_tokens=context, max_tokens=most
        )

    def _remembering(self) -> SessionEncoder:
        if self._encoder is None:
            self._encoder = self.door.renderer.remembering()
        return self._encoder

    async def _serve(
        self, message: Complete[WireSegment], segments: list[Segment], early: _Early, received: float
    ) -> None:
        try:
            with early.claim:
                answer = await self._answer(message, segments, early, received)
        except BudgetExceededError as limited:
            answer = _answer_of(message.id, limited.outcome)
        except InvalidRequestError as error:
            answer = (invalid(error, id=message.id),)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this request, not the connection
            log_fault(_log, "completion failed", error)
            told = "internal error; see the gateway's log"
            answer = (Error(code=ErrorCode.ENGINE_UNAVAILABLE, id=message.id, message=told),)
        finally:
            self.session.ended(message.id)
            self._unborn.discard(message.id)
        self.send(*answer)

    async def _answer(
        self, message: Complete[WireSegment], segments: list[Segment], early: _Early, received: float
    ) -> tuple[GatewayMessage, ...]:
        block = self.door.block if message.class_ is RequestClass.BLOCK else None
        claim = early.claim
        if block is not None:
            outcome = await self._run(message, segments, received, block.service, block.renderer, claim)
            lost = isinstance(outcome, CompletionOutcome) and outcome.reason is Reason.ENGINE_LOST
            if not (lost and block.fails_over):
                return _answer_of(message.id, outcome)
            claim = self._claim(message, segments, self.door.service)
        with claim:
            outcome = await self._run(
                message, segments, received, self.door.service, self.door.renderer, claim, early.prompt
            )
        return _answer_of(message.id, outcome)

    async def _run(
        self,
        message: Complete[WireSegment],
        segments: list[Segment],
        received: float,
        service: CompletionService,
        renderer: Renderer,
        claim: Claim,
        prompt: Prompt | None = None,
    ) -> CompletionOutcome | GatewayMessage:
        """Serve in one pool; a message where the request never got so far."""
        deadline = self._loop.time() + min(message.deadline_ms, self.door.limits.max_deadline_ms) / 1000
        own = renderer is self.door.renderer
        if prompt is None:
            encoder = self._remembering() if own else None
            prompt = await renderer.encode(segments, encoder=encoder, tenant=self.principal.tenant)
        claim.counted(len(prompt.ids))
        if message.id in self._unborn:
            service.metrics.refused(message.class_, Reason.CANCELLED)
            return Done(id=message.id, finish=Finish.CANCELLED)
        if own and message.prompt_tokens is not None and message.prompt_tokens != len(prompt.ids):
            service.metrics.refused(message.class_, Reason.MISMATCH)
            told = f"the client counted {message.prompt_tokens} prompt tokens, the gateway {len(prompt.ids)}"
            return Error(code=ErrorCode.TOKENIZER_MISMATCH, id=message.id, field="prompt_tokens", message=told)
        room = renderer.context_limit_tokens - len(prompt.ids)
        job = AdmittedRequest(
            key=self.session.key(message.id),
            session=self.session.name,
            prompt=prompt,
            received=received,
            deadline=deadline,
            max_tokens=max(1, min(message.max_tokens, room)),
            class_=message.class_,
            document=message.document,
            principal=self.principal,
            stop=message.stop,
            prefill_only=_is_warm(message),
            repository=self.session.repository_of(message.document),
            language=message.language,
            traceparent=message.traceparent,
            reservation=claim.take(),
        )
        return await service.run(job, lambda delta: self._deliver(message.id, delta))

    def _deliver(self, id: str, delta: TextDelta) -> None:
        self.send(_delta(id, delta))


class _Early(NamedTuple):
    """What a request has when its frame is done with: a claim, and its prompt where that was short."""

    claim: Claim
    prompt: Prompt | None


def _is_warm(message: Complete[WireSegment]) -> bool:
    return message.class_ is RequestClass.WARM or message.max_tokens == 0


def _delta(id: str, delta: TextDelta) -> Delta:
    return Delta(id=id, text=delta.text, logprob=delta.logprob, tokens=delta.tokens)


def _answer_of(id: str, outcome: CompletionOutcome | GatewayMessage) -> tuple[GatewayMessage, ...]:
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
    done = Done(id=id, finish=finish, usage=outcome.usage, timings_ms=outcome.timings_ms)
    return (done,) if outcome.rest is None else (_delta(id, outcome.rest), done)
