"""A small gateway for tests: a real WebSocket server that speaks `foretype_wire.messages` and answers as it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from http import HTTPStatus
from types import TracebackType
from typing import Self

import msgspec
from foretype_client.ports import CompletionStream
from foretype_wire.messages import (
    Ack,
    Cancel,
    ClientMessage,
    Complete,
    Delta,
    Done,
    Feedback,
    Finish,
    GatewayMessage,
    Hello,
    Need,
    NextEdit,
    Profile,
    Timings,
    Usage,
)
from foretype_wire.segment_cache import SegmentCache
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

TOKENIZER = b'{"model": "of the test"}'
PROFILE = Profile(
    model="test", grammar="foretype-1", tokenizer_digest=blake2b(TOKENIZER, digest_size=16).hexdigest(), layout="spm"
)


def resolved(cache: SegmentCache, message: Complete) -> tuple[list[str], list[bytes]]:
    """The texts of the segments of `message`, and the digests that are not known."""
    texts: list[str] = []
    missing: list[bytes] = []
    for segment in message.segments:
        if segment.text is not None:
            cache.receive_text(segment.kind, segment.text)
            texts.append(segment.text)
        else:
            assert segment.digest is not None
            text = cache.receive_digest(segment.kind, segment.digest)
            if text is None:
                missing.append(segment.digest)
            else:
                texts.append(text)
    return texts, missing


class Peer:
    """One connection, seen from the gateway."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.cache = SegmentCache()
        self.json = False
        self.prompts: dict[str, list[str]] = {}

    async def send(self, message: GatewayMessage) -> None:
        encoded = msgspec.json.encode(message).decode() if self.json else msgspec.msgpack.encode(message)
        await self.connection.send(encoded)

    def missing(self, message: Complete) -> list[bytes]:
        """The digests of `message` that are not known."""
        self.prompts[message.id], missing = resolved(self.cache, message)
        return missing


Behaviour = Callable[[Peer, Complete], Awaitable[None]]
EditBehaviour = Callable[[Peer, NextEdit], Awaitable[None]]


async def answer(peer: Peer, message: Complete) -> None:
    """The default: two deltas and the end."""
    await peer.send(Delta(id=message.id, text="return a", logprob=-0.5, tokens=2))
    await peer.send(Delta(id=message.id, text=" + b", logprob=-0.25, tokens=2))
    usage = Usage(prompt_tokens=9, cached_tokens=4, cached_source="engine", generated_tokens=4)
    await peer.send(
        Done(id=message.id, finish=Finish.STOP, usage=usage, timings_ms=Timings(queue=0.001, prefill=0.002))
    )


async def until_cancelled(peer: Peer, message: Complete) -> None:
    """One delta, then nothing until `cancel` comes (which the server answers)."""
    await peer.send(Delta(id=message.id, text="a", tokens=1))


class WireServer:
    """Use as an async context manager."""

    def __init__(
        self,
        behaviour: Behaviour = answer,
        *,
        on_next_edit: EditBehaviour | None = None,
        token: str | None = None,
        profile: Profile = PROFILE,
    ) -> None:
        self.behaviour = behaviour
        self.on_next_edit = on_next_edit
        self.token = token
        self.profile = profile
        self.received: list[ClientMessage] = []
        self.requests: list[str] = []
        self.peers: list[Peer] = []
        self.tokenizer = TOKENIZER
        self.arrived = asyncio.Condition()
        self._server: Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return next(iter(self._server.sockets)).getsockname()[1]

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    async def __aenter__(self) -> Self:
        self._server = await serve(self._talk, "127.0.0.1", 0, process_request=self._http, compression=None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def wait_for(self, kind: type[ClientMessage], count: int = 1) -> list[ClientMessage]:
        """Wait until `count` messages of `kind` came, on any connection."""

        def enough() -> bool:
            return sum(isinstance(message, kind) for message in self.received) >= count

        async with asyncio.timeout(60), self.arrived:
            await self.arrived.wait_for(enough)
        return [message for message in self.received if isinstance(message, kind)]

    def _http(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request.path)
        if request.path == "/healthz":
            authorized = self.token is None or request.headers.get("Authorization") == f"Bearer {self.token}"
            return connection.respond(HTTPStatus.OK, '{"status": "ok", "authorized": true}' if authorized else "{}")
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return connection.respond(HTTPStatus.UNAUTHORIZED, "")
        if request.path == "/v1/stream":
            return None
        if request.path.startswith("/v1/tokenizers/"):
            return connection.respond(HTTPStatus.OK, self.tokenizer.decode())
        return connection.respond(HTTPStatus.NOT_FOUND, "")

    async def _talk(self, connection: ServerConnection) -> None:
        peer = Peer(connection)
        self.peers.append(peer)
        try:
            async for frame in connection:
                peer.json = isinstance(frame, str)
                decoder = msgspec.json if peer.json else msgspec.msgpack
                await self._receive(peer, decoder.decode(frame, type=ClientMessage))
        except ConnectionClosed:
            pass

    async def _receive(self, peer: Peer, message: ClientMessage) -> None:
        async with self.arrived:
            self.received.append(message)
            self.arrived.notify_all()
        match message:
            case Hello():
                await peer.send(self.profile)
            case Complete():
                if missing := peer.missing(message):
                    await peer.send(Need(id=message.id, digests=missing))
                else:
                    await self.behaviour(peer, message)
            case NextEdit() if self.on_next_edit is not None:
                await self.on_next_edit(peer, message)
            case Cancel():
                await peer.send(Done(id=message.id, finish=Finish.CANCELLED))
            case Feedback():
                await peer.send(Ack(batch=message.batch))
            case _:
                pass


async def read(stream: CompletionStream) -> tuple[str, Done]:
    """The whole text of a stream, and how it ended."""
    text = ""
    async for item in stream:
        if isinstance(item, Done):
            return text, item
        text += item.text
    raise AssertionError("a stream ended without its Done")
