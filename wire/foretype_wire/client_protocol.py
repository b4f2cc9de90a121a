"""The client's side of the wire protocol as a pure state machine: no socket, no clock, no event loop.

Frames go in (`receive_frame`), calls go in (`complete`, `cancel`, …), and three outputs come out:

* `data_to_send()`: frames to write, in order. Call it after every input and send what it returns.
* `events_received()`: what happened, in order. Call it after every input.
* `close_expected()`: whether the owner should close the connection now (after `goaway`, once nothing runs).

What it guarantees, whatever the gateway sends:

* every call ends with exactly one terminal event, `Done` or `Failed`; nothing of a call follows it;
* a cancelled call ends with `Done(finish=cancelled)`, also when `cancel` came before `complete`;
* a frame about an id that is finished or was never asked for changes nothing;
* a frame that cannot be read is a `BadFrame` event and fails at most the call that it names;
* `connection_lost` fails every running call at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, cast

import msgspec
from foretype_context.prompt.segments import Segment

from foretype_wire.codec import Codec, Frame, scrub, scrub_call
from foretype_wire.errors import GatewayGoneError, RequestRefusedError, UnreadableFrameError
from foretype_wire.messages import (
    MAX_ID_CHARS,
    SEGMENT_CACHE_BYTES,
    VERSION,
    Ack,
    Cancel,
    Changed,
    ChangeReason,
    ClientMessage,
    Complete,
    Delta,
    Done,
    Edited,
    Error,
    ErrorCode,
    Feedback,
    Finish,
    GatewayMessage,
    Goaway,
    Hello,
    Need,
    NextEdit,
    Profile,
    WireSegment,
    Workspace,
)
from foretype_wire.segment_cache import SegmentCache

_EARLY_CANCELS: Final = 256
"""How many cancels of ids not yet asked for are remembered."""

_CHANGED_AT_ONCE: Final = 100
"""Documents named in one `changed`: a branch switch touches thousands, and a frame has a limit."""


class State(IntEnum):
    """Of a connection; it only moves forward. One protocol object serves one connection."""

    CONNECTING = 0
    OPEN = 1
    DRAINING = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Failed:
    """The call `id` ended without an answer."""

    id: str
    error: RequestRefusedError | GatewayGoneError


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway refused something that is not a call; the connection lives on."""

    error: RequestRefusedError


@dataclass(frozen=True, slots=True)
class BadFrame:
    """The gateway sent a frame that is not of this protocol; the connection lives on."""

    reason: str


Event = Profile | Delta | Edited | Done | Ack | Goaway | Failed | Refused | BadFrame


class ProtocolStatistics(NamedTuple):
    """Counters of one connection; `text_segments` and `digest_segments` count what was sent."""

    running: int
    calls: int
    text_segments: int
    digest_segments: int
    needs: int
    late_frames: int
    bad_frames: int


@dataclass(slots=True)
class _Running:
    call: Complete[Segment] | NextEdit
    cancelled: bool = False
    sent_again: bool = False


class ClientProtocol:
    """See the module's docstring.

    Args:
        json: speak JSON in text frames instead of MessagePack in binary frames.
        capacity_bytes: of the segment cache; the gateway's must be equal, so only tests change it.
    """

    def __init__(self, *, json: bool = False, capacity_bytes: int = SEGMENT_CACHE_BYTES) -> None:
        self.state = State.CONNECTING
        self.profile: Profile | None = None
        self._codec = Codec(json=json)
        self._cache = SegmentCache(capacity_bytes)
        self._running: dict[str, _Running] = {}
        self._early_cancels: OrderedDict[str, None] = OrderedDict()
        self._frames: list[Frame] = []
        self._events: list[Event] = []
        self._calls = self._texts = self._digests = self._needs = self._late = self._bad = 0

    def __repr__(self) -> str:
        return f"<ClientProtocol: {self.state.name.lower()}, {len(self._running)} running, {self._bad} bad frames>"

    # Outputs

    def data_to_send(self) -> list[Frame]:
        """Frames to write, in order; each is returned once."""
        frames, self._frames = self._frames, []
        return frames

    def events_received(self) -> list[Event]:
        """What happened, in order; each event is returned once."""
        events, self._events = self._events, []
        return events

    def close_expected(self) -> bool:
        """Whether the owner should close the connection now: the gateway goes away and nothing runs any more."""
        return self.state is State.DRAINING and not self._running

    @property
    def running(self) -> frozenset[str]:
        return frozenset(self._running)

    def segment_digests(self) -> list[bytes]:
        """Digests that the gateway is believed to hold, least recent first."""
        return self._cache.digests()

    def statistics(self) -> ProtocolStatistics:
        return ProtocolStatistics(
            len(self._running), self._calls, self._texts, self._digests, self._needs, self._late, self._bad
        )

    # Inputs from the client

    def hello(
        self, client: str, workspaces: Sequence[Workspace] = (), user: str = "", knobs: Sequence[str] = ()
    ) -> None:
        """The connection is up: introduce this client. Must be the first call, once."""
        if self.state is not State.CONNECTING:
            raise RuntimeError(f"hello on a connection that is {self.state.name.lower()}")
        self._transition(State.OPEN)
        cleaned = [Workspace(root=scrub(w.root), repository=scrub(w.repository)) for w in workspaces]
        self._send(Hello(v=VERSION, client=scrub(client), user=scrub(user), workspaces=cleaned, knobs=list(knobs)))

    def complete(self, call: Complete[Segment] | NextEdit) -> None:
        """Ask for a completion, or for the next edit. Ids must be unique on a connection.

        Raises:
            ValueError: a call of this id is running. Every other failure is a `Failed` event.
        """
        if call.id in self._running:
            raise ValueError(f"a call with the id {call.id!r} is running")
        self._calls += 1
        if not 0 < len(call.id) <= MAX_ID_CHARS or scrub(call.id) != call.id:
            self._fail(call.id, _invalid("id", f"must be 1 to {MAX_ID_CHARS} characters that UTF-8 can write"))
        elif call.id in self._early_cancels:
            del self._early_cancels[call.id]
            self._events.append(Done(id=call.id, finish=Finish.CANCELLED))
        elif self.state is not State.OPEN:
            self._fail(call.id, GatewayGoneError(_WHY_NOT[self.state]))
        else:
            self._running[call.id] = _Running(call)
            self._send_question(call) if isinstance(call, NextEdit) else self._send_call(call, digests=True)

    def cancel(self, id: str) -> None:
        """Stop a call. Idempotent; for an id not asked for yet, the later `complete` ends at once."""
        running = self._running.get(id)
        if running is None:
            self._early_cancels[id] = None
            while len(self._early_cancels) > _EARLY_CANCELS:
                self._early_cancels.popitem(last=False)
        elif not running.cancelled:
            running.cancelled = True
            self._send(Cancel(id=id))

    def expire(self, id: str) -> None:
        """The owner's clock says that an answer to `id` is worth nothing any more."""
        running = self._running.get(id)
        if running is not None:
            if not running.cancelled:
                self._send(Cancel(id=id))
            self._fail(id, RequestRefusedError(ErrorCode.EXPIRED, "no answer before the deadline"))

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None:
        """Tell which documents changed outside an edit in this editor; dropped while there is no connection."""
        if self.state is not State.OPEN:
            return
        for start in range(0, len(documents), _CHANGED_AT_ONCE):
            batch = documents[start : start + _CHANGED_AT_ONCE]
            self._send(Changed(documents=[scrub(document) for document in batch], reason=reason))

    def feedback(self, batch: str, events: Sequence[dict[str, object]]) -> bool:
        """Send a batch of feedback; `Ack` answers it. False while there is no connection: keep it.

        Raises:
            TypeError, ValueError: the events cannot be encoded.
        """
        if self.state is not State.OPEN:
            return False
        self._send(Feedback(batch=batch, events=list(events)))
        return True

    def connection_lost(self, reason: str) -> None:
        """The connection is gone: every running call fails now. Idempotent."""
        self._transition(State.CLOSED)
        self._frames.clear()
        for id in list(self._running):
            self._fail(id, GatewayGoneError(reason))

    # Input from the gateway

    def receive_frame(self, frame: Frame) -> None:
        """One frame from the gateway; never raises."""
        if self.state is State.CLOSED:
            self._late += 1
            return
        try:
            message = self._codec.decode(frame)
        except UnreadableFrameError as error:
            self._bad += 1
            self._events.append(BadFrame(str(error)))
            self._fail_named_in(error)
            return
        self._receive(message)

    def _receive(self, message: GatewayMessage) -> None:
        match message:
            case Profile():
                self.profile = message
                self._events.append(message)
            case Ack():
                self._events.append(message)
            case Goaway():
                if self.state is State.OPEN:
                    self._transition(State.DRAINING)
                    self._events.append(message)
            case Error(id=None):
                self._events.append(Refused(_error_of(message)))
            case Delta() | Edited() | Done() | Need() | Error():
                running = self._running.get(message.id or "")
                if running is None:
                    self._late += 1
                else:
                    self._receive_for(running, message)

    def _receive_for(self, running: _Running, message: Delta | Edited | Done | Need | Error) -> None:
        id, call = running.call.id, running.call
        match message:
            case Need():
                self._needs += 1
                self._cache.clear()
                if running.sent_again or (isinstance(call, NextEdit) and not running.cancelled):
                    if not running.cancelled:
                        self._send(Cancel(id=id))
                    self._fail(id, _invalid("digests", "the gateway asks for segments that it was just sent as text"))
                elif not running.cancelled and not isinstance(call, NextEdit):
                    running.sent_again = True
                    self._send_call(call, digests=False)
                else:  # the gateway cannot start it any more, and need not
                    self._end(Done(id=id, finish=Finish.CANCELLED))
            case Delta() | Edited():
                if not running.cancelled and isinstance(message, Edited) is isinstance(call, NextEdit):
                    self._events.append(message)
            case Done():
                if running.cancelled and message.finish is not Finish.CANCELLED:
                    message = msgspec.structs.replace(message, finish=Finish.CANCELLED)
                self._end(message)
            case Error():
                if running.cancelled:
                    self._end(Done(id=id, finish=Finish.CANCELLED))
                else:
                    self._fail(id, _error_of(message))

    # Inside

    def _transition(self, state: State) -> None:
        self.state = max(self.state, state)

    def _end(self, done: Done) -> None:
        self._running.pop(done.id, None)
        self._events.append(done)

    def _fail(self, id: str, error: RequestRefusedError | GatewayGoneError) -> None:
        self._running.pop(id, None)
        self._events.append(Failed(id, error))

    def _fail_named_in(self, frame: UnreadableFrameError) -> None:
        """A call must not hang because its answer cannot be read: a finish of a later version, a broken delta."""
        running = self._running.get(frame.id)
        if running is None:
            return
        if frame.type not in ("done", "error") and not running.cancelled:
            self._send(Cancel(id=frame.id))
        if running.cancelled:
            self._end(Done(id=frame.id, finish=Finish.CANCELLED))
        else:
            self._fail(frame.id, _invalid("type", f"the gateway's answer cannot be read: {frame}"))

    def _send(self, message: ClientMessage) -> None:
        self._frames.append(self._codec.encode(message))

    def _send_question(self, call: NextEdit) -> None:
        """A text that UTF-8 cannot write is not asked about: what replaced it would count other characters."""
        try:
            self._frames.append(self._codec.encode(call))
        except (UnicodeEncodeError, OverflowError, ValueError) as error:
            self._fail(call.id, _invalid("question", str(error)))

    def _send_call(self, call: Complete[Segment], *, digests: bool) -> None:
        try:
            try:
                frame = self._codec.encode(self._complete_of(call, digests=digests))
            except UnicodeEncodeError:
                # Lone surrogates, which editors do send, have no UTF-8. Start over: nothing was sent yet.
                self._cache.clear()
                call = self._running[call.id].call = scrub_call(call)
                frame = self._codec.encode(self._complete_of(call, digests=digests))
        except (OverflowError, ValueError) as error:
            self._cache.clear()  # what it counted as sent was not
            if self._running[call.id].sent_again:
                self._send(Cancel(id=call.id))
            self._fail(call.id, _invalid("segments", str(error)))
        else:
            self._frames.append(frame)

    def _complete_of(self, call: Complete[Segment], *, digests: bool) -> Complete[WireSegment]:
        segments: list[WireSegment] = []
        for segment in call.segments:
            digest = self._cache.send(segment.kind, segment.text)
            if digest is not None and digests:
                self._digests += 1
                segments.append(
                    WireSegment(kind=segment.kind, scope=segment.scope, source=segment.source, digest=digest)
                )
            else:
                self._texts += 1
                segments.append(
                    WireSegment(kind=segment.kind, scope=segment.scope, source=segment.source, text=segment.text)
                )
        return cast("Complete[WireSegment]", msgspec.structs.replace(call, segments=segments))


_WHY_NOT: Final = {
    State.CONNECTING: "not connected to a gateway yet",
    State.DRAINING: "the gateway is going away",
    State.CLOSED: "the connection to the gateway was lost",
}


def _invalid(field: str, message: str) -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{field}: {message}", field=field)


def _error_of(message: Error) -> RequestRefusedError:
    return RequestRefusedError(
        message.code, message.message, field=message.field, retry_after_ms=message.retry_after_ms
    )
