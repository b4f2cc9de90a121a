"""One long-lived connection to a gateway: a thin asyncio shell around `ClientProtocol`.

The shell owns the socket, the clock and the randomness; every decision about messages is the protocol's. It keeps
reconnecting until it is closed, with full-jitter back-off, so that a gateway that comes back is not run over. A call
made while there is no connection fails at once: nobody waits for a suggestion that long.

Exceptions of `websockets` and of sockets are mapped to `GatewayGoneError` here and never leave this module.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import platformdirs
from foretype_context.edit_models.question import WindowEdit
from foretype_context.prompt.segments import Segment
from foretype_wire.client_protocol import BadFrame, ClientProtocol, Event, Failed, Refused, State
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import (
    MAX_FRAME_BYTES,
    Ack,
    ChangeReason,
    Complete,
    Delta,
    Done,
    Edited,
    ErrorCode,
    Goaway,
    NextEdit,
    Profile,
    Workspace,
)
from foretype_wire.subscriptions import Subscribers
from foretype_wire.tasks import end_tasks
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from foretype_client.ports import Clock, Endpoint
from foretype_client.session.answer_stream import AnswerStream, with_network
from foretype_client.session.connecting import Backoff, as_gateway_gone, check_url, is_loopback, without_credentials
from foretype_client.session.opening import opened
from foretype_client.session.tokenizers import TokenizerStore

_logger = logging.getLogger(__name__)

_OPEN_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 1.0
_SILENT_S: Final = 2.0
_PONG_S: Final = 3.0
_LAG_S: Final = 1.0
"""A process that stood still itself hears late what came in time."""
_MAX_GRACE_MS: Final = 600_000.0
_FOLDERS_GRACE_S: Final = 30.0


class EditAnswer(NamedTuple):
    """What a model said of the next edit.

    Attributes:
        edit: of the question's window, and within it; None where there is none.
        reason: why there is none; "" beside an edit.
    """

    edit: WindowEdit | None
    reason: str
    done: Done


class SessionStatistics(NamedTuple):
    """A consistent snapshot. Bytes are those of frames; `text_segments` and `digest_segments` count what was sent."""

    connected: bool
    connections: int
    failures: int
    running: int
    calls: int
    sent_bytes: int
    received_bytes: int
    text_segments: int
    digest_segments: int
    needs: int
    bad_frames: int
    last_error: str


class Session:
    """A gateway as the flow sees it (implements `ports.Gateway`). Use it on one event loop.

    Args:
        url: `ws://` or `wss://` URL of `/v1/stream`.
        token: bearer token, if the gateway wants one.
        token_in_clear: send it over `ws://` to another machine too.
        user: pseudonym under which telemetry is kept.
        knobs: what the gateway may change about this client (`foretype_wire.messages.Hello`).
        locate: asked before every connection in place of `url` and `token`; finds or starts a private gateway.
        clock: monotonic seconds.
        rng: spreads reconnects over time.
        cache_dir: where tokenizers are kept; default is the user's cache directory.
        json: speak JSON in text frames, for debugging.

    Attributes:
        profiles: told every profile that comes.
        connections: told True and False as the connection comes and goes.
        acknowledged: told the name of each feedback batch that the gateway committed.

    Raises:
        ValueError: `url` is not a WebSocket URL, and there is no `locate`.
    """

    def __init__(
        self,
        url: str = "",
        *,
        token: str | None = None,
        token_in_clear: bool = False,
        client_name: str = "foretype",
        user: str = "",
        knobs: Sequence[str] = (),
        workspaces: Sequence[Workspace] = (),
        clock: Clock,
        rng: random.Random,
        locate: Callable[[], Awaitable[Endpoint]] | None = None,
        cache_dir: Path | None = None,
        backoff: Backoff | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        json: bool = False,
    ) -> None:
        self.client_name = client_name
        self.user = user
        self.knobs: tuple[str, ...] = tuple(knobs)
        self.store_text = False
        """The gateway's tenant has opted in to samples of text, as the last acknowledgement said."""
        self.workspaces: list[Workspace] = list(workspaces)
        self.profiles: Subscribers[Profile] = Subscribers()
        self.connections: Subscribers[bool] = Subscribers()
        self.acknowledged: Subscribers[str] = Subscribers()
        self._endpoint = Endpoint(url if locate is not None else check_url(url), token, token_in_clear)
        self._locate = locate
        self._clock = clock
        self._rng = rng
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._json = json
        self._tokenizers = TokenizerStore((cache_dir or platformdirs.user_cache_path("foretype")) / "tokenizers")
        self._protocol = ClientProtocol(json=json)
        self._profile: Profile | None = None
        self._streams: dict[str, AnswerStream[Delta] | AnswerStream[Edited]] = {}
        self._started_at: dict[str, float] = {}
        self._guards: dict[str, asyncio.TimerHandle] = {}
        self._outgoing = asyncio.Event()
        self._asked = asyncio.Event()
        self._drained = asyncio.Event()
        self._grace: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connections = self._failures = self._sent_bytes = self._received_bytes = 0
        self._connection_now: ClientConnection | None = None
        self._leaving = False
        self._returning = False
        """It leaves for a new `hello` alone."""
        self._past = (0, 0, 0, 0, 0)
        self._last_error = ""
        self._told = False

    def __repr__(self) -> str:
        where = without_credentials(self._endpoint.url) or "private"
        return f"<Session: {where}, {self._protocol!r}, {self._connections} connections>"

    # Life

    async def start(self) -> None:
        """Begin connecting, and return at once; `ready` waits. Idempotent."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="foretype session")

    async def ready(self, timeout_s: float = 10.0) -> Profile:
        """Wait for the gateway's profile.

        Raises:
            GatewayGoneError: the attempt under way failed, or `timeout_s` passed. The session goes on trying.
        """
        failures = self._failures
        try:
            async with asyncio.timeout(timeout_s):
                while (profile := self._protocol.profile) is None:
                    if self._failures > failures:
                        raise GatewayGoneError(self._last_error)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            where = without_credentials(self._endpoint.url) or "the gateway"
            raise GatewayGoneError(f"no profile from {where} within {timeout_s:g} s") from error
        return profile

    async def close(self) -> None:
        """Close the connection; every running call fails at once. Idempotent."""
        self._lose("the session was closed")
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # not the task itself: its cancellation could not be told from the caller's own
            if not task.cancelled():
                task.result()

    def open_folders(self, workspaces: Sequence[Workspace]) -> None:
        """Other folders are open. A connection has one `hello`: a new one at the same gateway tells it, as soon as nothing runs."""
        if self.workspaces != list(workspaces):
            self.workspaces = list(workspaces)
            if self._connection_now is not None:
                returning = self._returning or not self._leaving
                self.move(_FOLDERS_GRACE_S)
                self._returning = returning

    def move(self, grace_s: float) -> None:
        """Go to where `locate` says now, as soon as nothing runs, or when the grace is over."""
        self._leaving, self._returning = True, False
        if self._streams:
            self._drain_within(grace_s)
        else:
            self._drained.set()

    def abandon(self, reason: str) -> None:
        """Give the connection up at once, as one that is lost, and connect anew."""
        if self._connection_now is not None:
            _logger.info("%s: the connection is given up", reason)
            self._connection_now.transport.abort()

    async def ping(self, timeout_s: float) -> bool:
        """Whether the gateway answers in time; True also where there is no connection to ask over."""
        connection = self._connection_now
        if connection is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await (await connection.ping())
        except ConnectionClosed:
            return True  # known already
        except TimeoutError:
            return False
        return True

    # The port

    @property
    def endpoint(self) -> Endpoint:
        """Where the last connection went."""
        return self._endpoint

    @property
    def profile(self) -> Profile | None:
        """The last profile received, kept while the connection is away."""
        return self._profile

    @property
    def connected(self) -> bool:
        """Whether this connection's gateway took us in: it sent its profile, and neither it nor we go away."""
        staying = self._protocol.state is State.OPEN and not self._drained.is_set()
        return staying and self._protocol.profile is not None

    def complete(self, call: Complete[Segment]) -> AnswerStream[Delta]:
        stream = AnswerStream[Delta](call.id, self._cancel)
        self._ask(call, stream)
        return stream

    async def next_edit(self, call: NextEdit) -> EditAnswer:
        """Ask the gateway's model for the next edit, and wait for it. Cancelling stops the model.

        For a gateway whose profile says `next_edit`; :func:`foretype_context.edit_models.question.question_at` makes the question.

        Raises:
            RequestRefusedError, GatewayGoneError: there is no answer.
        """
        stream = AnswerStream[Edited](call.id, self._cancel)
        self._ask(call, stream)
        edited = Edited(id=call.id, reason="cancelled")
        try:
            async for item in stream:
                if isinstance(item, Done):
                    edit = edited.edit
                    if edit is not None and not 0 <= edit.start <= edit.end <= len(call.question.window):
                        return EditAnswer(None, "outside", item)
                    return EditAnswer(edit, edited.reason, item)
                edited = item
        except asyncio.CancelledError:
            stream.cancel()  # nobody waits for it any more: the engine stops at once
            raise
        raise RuntimeError("an answer ended without its end")

    def _ask(self, call: Complete[Segment] | NextEdit, stream: AnswerStream[Delta] | AnswerStream[Edited]) -> None:
        if call.id in self._streams:
            error = RequestRefusedError(ErrorCode.INVALID_REQUEST, "id: a call of this id is running", field="id")
            stream.put(error)
            return
        self._streams[call.id] = stream
        self._started_at[call.id] = self._clock()
        self._protocol.complete(call)
        self._asked.set()
        self._pump()
        if call.id in self._streams:
            # The gateway keeps the deadline; this is for a gateway that answers nothing at all.
            delay_s = max(0.0, call.deadline_ms / 1e3) + 1.0
            self._guards[call.id] = asyncio.get_running_loop().call_later(delay_s, self._expire, call.id)

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None:
        self._protocol.changed(documents, reason)
        self._pump()

    def feedback(self, batch: str, events: Sequence[dict[str, object]]) -> bool:
        """Send a batch; False while there is no connection. `acknowledged` tells when it was committed."""
        sent = self._protocol.feedback(batch, events)
        self._pump()
        return sent

    async def tokenizer_json(self, profile: Profile | None = None) -> bytes:
        """The file `tokenizer.json` of `profile`, by default the current one.

        Raises:
            GatewayGoneError: there is no profile yet.
            TokenizerFetchError: it could not be downloaded.
        """
        profile = profile or self.profile
        if profile is None:
            raise GatewayGoneError("no profile yet: the gateway was never reached")
        return await self._tokenizers.fetch(self._endpoint, profile.tokenizer_digest)

    def statistics(self) -> SessionStatistics:
        now = self._counters()
        return SessionStatistics(
            connected=self.connected,
            connections=self._connections,
            failures=self._failures,
            running=len(self._streams),
            calls=now[0],
            sent_bytes=self._sent_bytes,
            received_bytes=self._received_bytes,
            text_segments=now[1],
            digest_segments=now[2],
            needs=now[3],
            bad_frames=now[4],
            last_error=self._last_error,
        )

    # Calls

    def _cancel(self, id: str) -> None:
        if id in self._streams:
            self._protocol.cancel(id)
            self._pump()

    def _expire(self, id: str) -> None:
        self._protocol.expire(id)
        self._pump()

    def _pump(self) -> None:
        """Move what the protocol produced to where it belongs; called after every input to it."""
        for event in self._protocol.events_received():
            self._dispatch(event)
        self._outgoing.set()
        if self._protocol.close_expected():
            self._drained.set()

    def _dispatch(self, event: Event) -> None:
        match event:
            case Delta() | Edited():
                if (guard := self._guards.pop(event.id, None)) is not None:
                    guard.cancel()  # it does answer
                if (stream := self._streams.get(event.id)) is not None:
                    stream.put(event)  # pyright: ignore[reportArgumentType] - the protocol tells only what was asked
            case Done():
                started_at = self._started_at.get(event.id, self._clock())
                elapsed_ms = (self._clock() - started_at) * 1e3
                self._finish(event.id, msgspec.structs.replace(event, timings_ms=with_network(event, elapsed_ms)))
            case Failed():
                self._finish(event.id, event.error)
            case Profile():
                self._profile = event
                self._changed.set()
                self._tell_connection(True)
                self.profiles.tell(event)
            case Ack():
                self.store_text: bool = event.store_text
                self.acknowledged.tell(event.batch)
            case Goaway():
                _logger.info("the gateway goes away in %s ms", event.grace_ms)
                grace_ms = event.grace_ms if 0 <= event.grace_ms <= _MAX_GRACE_MS else 0.0
                self._drain_within(grace_ms / 1e3)
            case Refused():
                _logger.warning("the gateway refused a message: %s", event.error)
            case BadFrame():
                _logger.warning("a frame of the gateway cannot be read: %s", event.reason)

    def _finish(self, id: str, end: Done | RequestRefusedError | GatewayGoneError) -> None:
        self._started_at.pop(id, None)
        if (guard := self._guards.pop(id, None)) is not None:
            guard.cancel()
        if (stream := self._streams.pop(id, None)) is not None:
            stream.put(end)
        if self._leaving and not self._streams:
            self._drained.set()

    # The connection

    async def _run(self) -> None:
        attempt = 0
        try:
            while True:
                reason = await self._connection()
                if self._protocol.profile is not None:
                    attempt = 0  # it was a gateway, not something that accepts and hangs up
                left, self._leaving = self._leaving and self._protocol.profile is not None, False
                if not left:
                    self._last_error = reason
                    self._failures += 1
                self._lose(reason)
                delay_s = 0.0 if left else self._backoff.delay_s(attempt, self._rng)
                attempt += 1
                _logger.info("%s; trying again in %.2f s", reason, delay_s)
                await self._sleep(delay_s)
        finally:
            self._lose("the session ended")

    async def _connection(self) -> str:
        """Find the gateway and talk to it until the end; why it ended."""
        try:
            with as_gateway_gone():
                if self._locate is not None and not self._returning:
                    self._endpoint = await self._locate()
                self._returning = False
                await self._converse()
        except GatewayGoneError as error:
            return str(error)
        return "the gateway closed the connection"

    async def _converse(self) -> None:
        """One connection from its opening to its end."""
        url = self._endpoint.url
        async with opened(
            url,
            additional_headers=self._endpoint.headers(),
            compression=None,  # costs more than it saves on frames this small
            open_timeout=_OPEN_TIMEOUT_S,
            close_timeout=_CLOSE_TIMEOUT_S,
            max_size=MAX_FRAME_BYTES,
            proxy=None if is_loopback(url) else True,
        ) as connection:
            self._connections += 1
            self._connection_now = connection
            self._drained.clear()
            if self._grace is not None:  # of the connection before: this one is not to end by it
                self._grace.cancel()
            self._protocol.hello(self.client_name, self.workspaces, self.user, self.knobs)
            self._pump()
            loop = asyncio.get_running_loop()
            work = (self._write(connection), self._drain(connection), self._listen())
            helpers = [loop.create_task(one) for one in work]
            try:
                async for frame in connection:
                    self._received_bytes += len(frame)
                    self._protocol.receive_frame(frame)
                    self._pump()
            finally:
                self._connection_now = None
                await end_tasks(*helpers)

    async def _write(self, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # the reader tells why
            while True:
                await self._outgoing.wait()
                self._outgoing.clear()
                for frame in self._protocol.data_to_send():
                    self._sent_bytes += len(frame)
                    await connection.send(frame)

    async def _listen(self) -> None:
        """A connection that died without a word (sleep, another network, a forgotten entry of a router) is given up soon after a question.

        The library's own pings find it after 40 seconds.
        """
        while True:
            await self._asked.wait()
            self._asked.clear()
            heard, begun_s = self._received_bytes, self._clock()
            await asyncio.sleep(_SILENT_S)
            if self._received_bytes != heard or await self.ping(_PONG_S):
                continue
            if self._clock() - begun_s < _SILENT_S + _PONG_S + _LAG_S:
                self.abandon("the gateway is silent")

    def _drain_within(self, grace_s: float) -> None:
        if self._grace is not None:
            self._grace.cancel()
        self._grace = asyncio.get_running_loop().call_later(grace_s, self._drained.set)

    async def _drain(self, connection: ClientConnection) -> None:
        """After `goaway`: close once nothing runs any more, or the grace is over."""
        await self._drained.wait()
        await connection.close()

    def _lose(self, reason: str) -> None:
        """Fail what runs, and begin a new protocol object for the next connection."""
        self._protocol.connection_lost(reason)
        self._pump()
        self._past = self._counters()
        self._protocol = ClientProtocol(json=self._json)
        self._changed.set()
        self._tell_connection(False)

    def _tell_connection(self, connected: bool) -> None:
        if connected is self._told:
            return
        self._told = connected
        self.connections.tell(connected)

    def _counters(self) -> tuple[int, int, int, int, int]:
        now = self._protocol.statistics()
        past = self._past
        return (
            past[0] + now.calls,
            past[1] + now.text_segments,
            past[2] + now.digest_segments,
            past[3] + now.needs,
            past[4] + now.bad_frames,
        )
