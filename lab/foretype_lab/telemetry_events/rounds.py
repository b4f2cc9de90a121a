"""One round of the events bench: a real gateway in a process of its own, senders on real sockets, maybe a sudden end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from foretype_backend.telemetry.store import Store
from foretype_wire.messages import Ack, Error, Feedback, GatewayMessage, Hello
from foretype_wire.telemetry import Accept, Caret, Display, Event, Opportunity, Request, Result, Survive
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from foretype_lab.errors import GatewayFailedError

__all__ = ["Round", "run_round"]

_START_S: Final = 60.0
_WINDOW: Final = 4
_TYPED_MS: Final = 190


@dataclass(slots=True)
class Round:
    """What one round did. `ack_ms` has one entry per batch; `stored` counts what the store has of what was sent."""

    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    lost: int = 0
    seconds: float = 0.0
    ack_ms: list[float] = field(default_factory=list[float])


@dataclass(slots=True)
class _Sender:
    """One client: its frames, and which of them were acknowledged."""

    session: str
    frames: list[bytes]
    sizes: list[int]
    acked: set[int] = field(default_factory=set[int])
    sent: int = 0


async def run_round(
    url: str, folder: Path, *, events: int, batch: int, senders: int, kill_at: float | None = None, seed: int = 0
) -> Round:
    """Send `events` events, and end the gateway with SIGKILL at the share `kill_at` (0–1) of its acknowledgements.

    Args:
        url: of the store; the gateway's `--telemetry-url`.
        folder: state directory and log of the gateway.
        batch: events per batch. Every sender keeps four batches unanswered.

    Raises:
        GatewayFailedError: it did not start.
        StoreError: the store cannot be opened afterwards.
    """
    rng = Random(seed)
    clients = [_prepared(f"{rng.getrandbits(64):016x}", events // senders, batch, rng) for _ in range(senders)]
    result = Round()
    async with _gateway(url, folder) as (process, port):
        total = sum(len(client.frames) for client in clients)
        fatal = None if kill_at is None else max(1, int(total * kill_at))
        delay_s = rng.random() * 0.02

        async def killed() -> None:
            while sum(len(client.acked) for client in clients) < (fatal or 0):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.001)
            await asyncio.sleep(delay_s)
            process.send_signal(signal.SIGKILL)

        began = time.perf_counter()
        killer = asyncio.create_task(killed()) if fatal is not None else None
        await asyncio.gather(*(_send(client, port, result, may_end=fatal is not None) for client in clients))
        result.seconds = time.perf_counter() - began
        if killer is not None:
            await killer
            await process.wait()
    await _compare(url, clients, result)
    return result


def _prepared(session: str, events: int, batch: int, rng: Random) -> _Sender:
    """Frames as a client sends them, encoded beforehand: what is measured is the gateway."""
    frames: list[bytes] = []
    sizes: list[int] = []
    for start in range(0, events, batch):
        size = min(batch, events - start)
        made = [msgspec.to_builtins(_event(session, start + index, rng)) for index in range(size)]
        frames.append(msgspec.msgpack.encode(Feedback(batch=f"{session}-{len(frames)}", events=made)))
        sizes.append(size)
    return _Sender(session, frames, sizes)


def _event(session: str, seq: int, rng: Random) -> Event:
    """The mix of one developer: most keystrokes are opportunities, few of what is shown is taken."""
    base: dict[str, Any] = {"session": session, "seq": seq, "language": "python", "variant": "control"}
    base |= {"t_ms": time.time_ns() // 1_000_000, "at_ms": float(seq * _TYPED_MS)}
    id, kind = f"{session}-{seq}", rng.random()
    if kind < 0.45:
        outcome = rng.choice(["network", "cache", "superseded"])
        asked: dict[str, Any] = {"document": "d", "trigger": "automatic", "caret": Caret.LINE_END, "outcome": outcome}
        return Opportunity(**base, id=id, **asked)
    if kind < 0.6:
        return Request(**base, id=id, request_class="interactive", prompt_tokens=1500, cached_tokens=1400)
    if kind < 0.75:
        stages = {"debounce": 75.0, "assemble": 1.2, "prefill": 5.1, "stream": 21.0}
        return Result(**base, id=id, first_ms=7.0, last_ms=40.0, generated_tokens=9, characters=31, stages_ms=stages)
    if kind < 0.95:
        shown: dict[str, Any] = {"served_from": "network", "display_source": "inferred", "end": "diverged"}
        return Display(**base, id=id, shown=id, visible_ms=rng.uniform(20, 2000), characters=31, lines=1, **shown)
    if kind < 0.98:
        return Accept(**base, id=id, shown=id, kind="full", how="reported", characters=31, lines=1)
    return Survive(**base, id=id, shown=id, age_s=30, characters=31, length_now=31, arc=31, levenshtein=0, fourgram=1.0)


async def _send(client: _Sender, port: int, result: Round, *, may_end: bool) -> None:
    try:
        async with connect(f"ws://127.0.0.1:{port}/v1/stream", compression=None, proxy=None, max_size=None) as socket:
            await socket.send(msgspec.msgpack.encode(Hello(v=1, client="foretype-bench", user="bench")))
            await _converse(client, socket, result)
    except (ConnectionClosed, OSError):
        if not may_end:
            raise


async def _converse(client: _Sender, socket: ClientConnection, result: Round) -> None:
    sent_s: dict[int, float] = {}
    todo = list(range(len(client.frames)))[::-1]
    while todo or sent_s:
        while todo and len(sent_s) < _WINDOW:
            index = todo.pop()
            sent_s[index] = time.perf_counter()
            await socket.send(client.frames[index])
            client.sent = max(client.sent, index + 1)
        message = msgspec.msgpack.decode(bytes(await socket.recv(decode=False)), type=GatewayMessage)
        if isinstance(message, Ack):
            index = int(message.batch.rsplit("-", 1)[1])
            client.acked.add(index)
            result.ack_ms.append((time.perf_counter() - sent_s.pop(index)) * 1000)
        elif isinstance(message, Error):
            raise GatewayFailedError(f"the gateway refused feedback: {message.field}: {message.message}")


async def _compare(url: str, clients: list[_Sender], result: Round) -> None:
    """Everything that was acknowledged must be there; what was not may be."""
    store = await Store.open(url)
    try:
        for client in clients:
            there = await store.keys(client.session)
            starts = [sum(client.sizes[:index]) for index in range(len(client.sizes))]
            result.sent += sum(client.sizes[: client.sent])
            result.stored += len(there)
            for index in client.acked:
                result.acknowledged += client.sizes[index]
                wanted = range(starts[index], starts[index] + client.sizes[index])
                result.lost += sum(seq not in there for seq in wanted)
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _gateway(url: str, folder: Path) -> AsyncGenerator[tuple[Process, int]]:
    options = ["--engine", "scripted", "--port", "0", "--telemetry-url", url, "--state-dir", str(folder)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "foretype_backend", "serve", *options, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    words: list[str] = []

    async def listen(stream: asyncio.StreamReader) -> None:
        words.extend([line.decode("utf-8", "replace") async for line in stream])

    listening = asyncio.create_task(listen(process.stderr))
    try:
        try:
            async with asyncio.timeout(_START_S):
                line = (await process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        if not line.startswith("ready "):
            raise GatewayFailedError(f"the gateway did not start:\n{''.join(words[-20:])}")
        yield process, int(line.rsplit(":", 1)[1])
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
        await listening
