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
from typing import Any, Final, Protocol

import msgspec
from foretype_wire.errors import BadFrameError, InvalidRequestError
from foretype_wire.gateway_protocol import GatewaySession, Inbox, Outbox, invalid
from foretype_wire.messages import (
    Cancel,
    Changed,
    ClientMessage,
    Complete,
    Feedback,
    GatewayMessage,
    Hello,
    NextEdit,
    Profile,
)
from foretype_wire.redaction import log_fault
from foretype_wire.subscriptions import Subscribers
from starlette.websockets import WebSocket, WebSocketDisconnect

from foretype_backend.admission.bounds import Bound
from foretype_backend.doors.feedback import MAX_BATCHES, FeedbackIntake, busy, check_feedback
from foretype_backend.doors.remembered_texts import RememberedTexts
from foretype_backend.doors.stream_answers import LiveRequest
from foretype_backend.doors.stream_completions import CompletionHost, StreamCompletions
from foretype_backend.doors.stream_next_edits import NextEditHost, StreamNextEdits
from foretype_backend.experiments.assign import Arm, LeftOut, ToldArm
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.fair_turns import Turns
from foretype_backend.serving.served_revision import ServedRevision
from foretype_backend.telemetry.intake import Sender
from foretype_backend.transport.websocket_frames import Frame, channel_of

HELLO_S: float = 30.0
"""Who connects and says nothing holds a connection no longer than this."""
CLOSE_POLICY: Final = 1008
CLOSE_FAULT: Final = 1011
_OUTBOX_MESSAGES: Final = 512
_CHANGED_AT_ONCE: Final = 64
"""Documents that are worked off in one turn, in half a millisecond."""

_log = logging.getLogger("foretype.gateway")
_to_msgpack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode


class ConnectionHost(CompletionHost, NextEditHost, Protocol):
    """What a connection needs of its door."""

    feedback: FeedbackIntake
    changed: Subscribers[str, Changed]
    left: Subscribers[str]
    turns: Turns
    remembered: Bound

    def revision_of(self, principal: Principal, hello: Hello, session: str) -> ServedRevision: ...
    def told(self, principal: Principal, hello: Hello, revision: ServedRevision) -> ToldArm: ...
    def disconnect(self, session: str) -> None: ...


class StreamConnection:
    """One open WebSocket, accepted already."""

    def __init__(self, door: ConnectionHost, websocket: WebSocket, name: str, principal: Principal) -> None:
        self.door = door
        self.principal = principal
        self._live: dict[str, LiveRequest] = {}
        self.session = GatewaySession(name, self._live, max_tokens=door.limits.max_tokens)
        self._websocket = websocket
        self._channel = channel_of(websocket.scope)
        self._inbox = Inbox(max_frame_bytes=door.limits.max_frame_bytes)
        self._outbox = Outbox(capacity=_OUTBOX_MESSAGES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = 0
        self._closing = False
        self._told: Profile | None = None
        self.arm: Arm | LeftOut | None = None
        """Of an experiment: what this client sees, or why it is left out."""
        self._loop = asyncio.get_running_loop()
        self._texts = RememberedTexts(
            self.session, door.main.renderer, door.remembered, principal.tenant, max_segments=door.limits.max_segments
        )
        self._completions = StreamCompletions(
            door, self.session, principal, self._texts, live=self._live, send=self.send, spawn=self._spawn
        )
        self._edits = StreamNextEdits(door, self.session, principal, live=self._live, send=self.send, spawn=self._spawn)

    def forget(self) -> None:
        """Drop the texts and ids that are kept for later requests; the client is asked for them again."""
        self._texts.forget()

    def tell(self) -> None:
        """Send its profile, unless it was the last one that was sent."""
        hello = self.session.hello
        if hello is None:
            return
        revision = self.door.revision_of(self.principal, hello, self.session.name)
        told = self.door.told(self.principal, hello, revision)
        self.arm = told.arm
        self._completions.pool = told.pool
        self._completions.use(revision)
        if told.profile is not self._told:
            self._told = told.profile
            self.send(told.profile)

    def send(self, *messages: GatewayMessage) -> None:
        """Write messages at once, or keep them while the peer is slow; never blocks. Deltas of one completion merge while they wait."""
        if self._channel.ready and not self._outbox.waiting:
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
            self._texts.close()
            self.door.disconnect(self.session.name)
            self.door.left.tell(self.session.name)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._completions.close()
            self._edits.close()

    def _greeted_or_closed(self) -> None:
        if self.session.hello is None:
            self.close(CLOSE_POLICY, "no hello came")

    def _came(self, frame: Frame) -> None:
        try:
            self._take(self._inbox.decode(frame))
        except BadFrameError as error:
            # an answer with the id of a live request would end that one at the client
            self.send(invalid(error, id=None if error.id in self._live else error.id))
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
                self._completions.take(message)
            case NextEdit():
                self._edits.take(message)
            case Cancel():
                self.session.cancel(message, self._loop.time())
                if (live := self._live.get(message.id)) is not None:
                    live.cancel()
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
