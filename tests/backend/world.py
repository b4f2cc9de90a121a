"""A real gateway on a real socket with a scripted engine, and a peer that speaks the wire by hand."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import pytest
import uvicorn.server
from foretype_backend.config.config import Config
from foretype_backend.config.settings import GatewayConfig, LimitsConfig
from foretype_backend.doors.contract import DocumentedApp
from foretype_backend.engines.port import Chunk, Engine, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine, text_script
from foretype_backend.serving.service import CompletionService
from foretype_backend.start.app import Gateway, create_app
from foretype_backend.transport.loop_monitor import LoopWatch
from foretype_backend.transport.server import running
from foretype_client.session.opening import opened
from foretype_context.prompt.segments import Kind, Scope, Source
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_models.artifacts import FOLDER
from foretype_wire.messages import (
    VERSION,
    Complete,
    Delta,
    Done,
    Error,
    Finish,
    GatewayMessage,
    Hello,
    Need,
    Profile,
    RequestClass,
    Stop,
    WireSegment,
    Workspace,
)
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

TOKENIZER_PATH: Path = FOLDER / "tokenizer.json"
TOKENIZER_FILE = TOKENIZER_PATH.read_bytes()
TOKENIZER: Tokenizer = load_tokenizer(TOKENIZER_PATH)
TOKEN = "a-token-of-the-tests"
HELLO = Hello(v=1, client="test")
OF_A_SHOP = Hello(v=VERSION, workspaces=[Workspace(root="/src/shop", repository="shop")])


def profile(**changes: Any) -> Profile:
    fields: dict[str, Any] = {
        "model": "scripted",
        "grammar": "foretype-1",
        "tokenizer_digest": TOKENIZER.digest,
        "context_limit_tokens": 2048,
    }
    return Profile(**(fields | changes))


def scripted(answer: str | Callable[[str], str] = "x + 1\n", **options: Any) -> ScriptedEngine:
    """An engine that answers with this text, or with this function of the prompt's text."""
    give = answer if callable(answer) else lambda _prompt: answer
    script = text_script(TOKENIZER.encode, lambda ids: TOKENIZER.decode(ids).decode("utf-8", "replace"), give)
    options = {"context_limit_tokens": 2048, "vocabulary_tokens": TOKENIZER.vocabulary_tokens} | options
    return ScriptedEngine(script, **options)


@dataclass
class World:
    gateway: Gateway
    engine: Any
    service: CompletionService
    config: Config
    host: str
    port: int

    @property
    def app(self) -> DocumentedApp:
        return self.gateway.app

    @property
    def ws_url(self) -> str:
        return f"ws://{self.host}:{self.port}/v1/stream"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def peer(self, *, hello: Hello | None = HELLO, **options: Any) -> contextlib.AbstractAsyncContextManager[Peer]:
        return peer_at(self.ws_url, hello, **options)

    def http(self, **options: Any) -> httpx.AsyncClient:
        # Nobody's certificates are read: that takes longer than most tests do.
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=120, verify=False, **options)

    async def closes(self, **options: Any) -> Close:
        """How a connection is closed that is not wanted."""
        async with self.peer(hello=None, **options) as peer:
            return await peer.closed()

    async def idle(self) -> None:
        """Wait until the gateway and its engine have nothing left."""
        await until(lambda: self.service.statistics() == (0, 0, 0) and not self.engine.statistics().running)


@contextlib.asynccontextmanager
async def closing(*opened: Any) -> AsyncGenerator[None]:
    """Close them at the end, one after the other, whatever happens."""
    try:
        yield
    finally:
        for one in opened:
            await one.close()


@contextlib.asynccontextmanager
async def peer_at(ws_url: str, hello: Hello | None, *, json: bool = False, **options: Any) -> AsyncGenerator[Peer]:
    """A connection to a gateway, that has said hello and has its profile; or has said nothing."""
    # A peer with answers that it never took does not see the gateway's goodbye: it is not waited for.
    options = {"close_timeout": 0.5, "open_timeout": 60} | options
    async with opened(ws_url, compression=None, proxy=None, **options) as socket:
        peer = Peer(socket, json=json)
        if hello is not None:
            await peer.send(hello)
            assert isinstance(await peer.receive(), Profile)
        yield peer


async def until(condition: Callable[[], object]) -> None:
    """Look at the state of the code under test, which has no events for it, or ask another process, until it is so."""
    async with asyncio.timeout(60):
        while not (await found if inspect.isawaitable(found := condition()) else found):  # noqa: ASYNC110
            await asyncio.sleep(0.02 if inspect.isawaitable(found) else 0.002)


class Peer:
    def __init__(self, socket: ClientConnection, *, json: bool) -> None:
        self.socket = socket
        self.json = json

    async def send(self, message: object) -> None:
        """Send a message, or anything that can be encoded, or raw bytes."""
        if isinstance(message, bytes | str):
            await self.socket.send(message)
        elif self.json:
            await self.socket.send(msgspec.json.encode(message).decode())
        else:
            await self.socket.send(msgspec.msgpack.encode(message))

    async def receive(self) -> GatewayMessage:
        async with asyncio.timeout(60):
            frame = await self.socket.recv()
        if isinstance(frame, str):
            return msgspec.json.decode(frame, type=GatewayMessage)
        return msgspec.msgpack.decode(frame, type=GatewayMessage)

    async def until_end(self, id: str) -> tuple[str, Done | Error | Need, list[Delta]]:
        """Everything of one request: its text, its last message, its deltas. Other messages are an error here."""
        deltas: list[Delta] = []
        while True:
            message = await self.receive()
            if isinstance(message, Delta) and message.id == id:
                deltas.append(message)
            elif isinstance(message, Done | Error | Need) and message.id == id:
                return "".join(delta.text for delta in deltas), message, deltas
            else:
                raise AssertionError(f"unexpected {message}")

    async def ask(self, id: str = "r1", **fields: Any) -> tuple[str, Done | Error | Need, list[Delta]]:
        await self.send(complete(id, **fields))
        return await self.until_end(id)

    async def answer(self, id: str = "r1", **fields: Any) -> tuple[str, Done]:
        """Ask; the text that came, and how it ended."""
        text, end, _ = await self.ask(id, **fields)
        assert isinstance(end, Done), end
        return text, end

    async def refusal(self, id: str = "r1", **fields: Any) -> Error:
        """Ask for what is refused, or breaks off."""
        _, end, _ = await self.ask(id, **fields)
        assert isinstance(end, Error), end
        return end

    async def error(self) -> Error:
        """The next message, which is one."""
        message = await self.receive()
        assert isinstance(message, Error), message
        return message

    async def closed(self) -> Close:
        """The next thing that comes: the gateway's end of the connection."""
        with pytest.raises(ConnectionClosed) as closed:
            await self.receive()
        assert closed.value.rcvd is not None
        return closed.value.rcvd

    async def begin(self, id: str = "a", **fields: Any) -> None:
        """Ask, and wait for the beginning of the answer."""
        await self.send(complete(id, **fields))
        assert isinstance(await self.receive(), Delta)

    async def cancelled(self, id: str = "a") -> Done:
        """Wait for the end of a request that is cancelled."""
        _, end, _ = await self.until_end(id)
        assert isinstance(end, Done) and end.finish is Finish.CANCELLED, end
        return end

    async def still_works(self) -> None:
        """The connection lives: a good request gets a good answer."""
        text, _ = await self.answer("good")
        assert text


def segment(kind: Kind, text: str | None = None, digest: bytes | None = None, path: str = "") -> WireSegment:
    return WireSegment(kind=kind, scope=Scope.FILE, source=Source(path=path), text=text, digest=digest)


def segments(prefix: str = "def f(x):\n", middle: str = "    return ", suffix: str = "\n") -> list[WireSegment]:
    return [
        segment(Kind.PATH, "", path="a.py"),
        segment(Kind.PREFIX, prefix),
        segment(Kind.SUFFIX, suffix),
        segment(Kind.MIDDLE, middle),
    ]


def complete(id: str = "r1", **fields: Any) -> Complete:
    given: dict[str, Any] = {
        "segments": segments(),
        "max_tokens": 32,
        "class_": RequestClass.INTERACTIVE,
        "stop": Stop(),
    }
    return Complete(id=id, **(given | fields))


class _Hurried:
    """asyncio for uvicorn, which looks ten times a second whether it shall end and whether everybody has gone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(delay_s / 20)


@contextlib.asynccontextmanager
async def gateway(
    engine: Engine | None = None,
    *,
    token: str | None = None,
    limits: LimitsConfig | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    tokenizer: Tokenizer = TOKENIZER,
    with_profile: Profile | None = None,
    bounds: Mapping[str, Any] | None = None,
    sections: Mapping[str, Any] | None = None,
    **app_options: Any,
) -> AsyncGenerator[World]:
    """A gateway on a free port of loopback; `bounds` are further fields of `[gateway]`, `sections` further sections."""
    config = Config(
        gateway=GatewayConfig(port=0, hosts=tuple(hosts), origins=tuple(origins), **(bounds or {})),
        limits=limits or LimitsConfig(abort_grace_ms=200, retry_wait_ms=500),
        token=token,
        **(sections or {}),
    )
    engine = engine or scripted()
    await engine.start()
    made = create_app(
        config, engine, tokenizer, with_profile or profile(), tokenizer_file=TOKENIZER_FILE, **app_options
    )
    try:
        with patch.object(uvicorn.server, "asyncio", _Hurried()):
            async with running(made.app, config, watch=LoopWatch(made.late, made.working)) as (host, port):
                yield World(made, engine, made.service, config, host, port)
    finally:
        made.encoding.close()
        await engine.close()


def joined(deltas: Iterable[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


async def chunks_of(engine: Engine, request: GenerationRequest, takes: int = 0) -> list[Chunk]:
    """All that an engine says; so many chunks of it are taken as they come, by engines that can."""
    taken: list[Chunk] = []

    def take(chunk: Chunk) -> bool:
        goes_on = len(taken) < takes
        if goes_on:
            taken.append(chunk)
        return goes_on

    asked = msgspec.structs.replace(request, take=take) if takes else request
    yielded = [chunk async for chunk in engine.generate(asked)]
    return [*taken, *yielded]
