"""Nothing that was acknowledged is lost when the gateway is killed while feedback comes, on either store."""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from backend.test_gateway_process import serving
from foretype_backend.telemetry.store import Store
from foretype_wire.messages import Ack, Error, Feedback, GatewayMessage, Hello
from foretype_wire.telemetry import Accept, Caret, Event, Opportunity, Request
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from backend import postgres_server

KILLS = int(os.environ.get("FORETYPE_SOAK_KILLS", "3"))
"""`make soak` asks for fifty."""

CHANCE = random.Random(int(os.environ.get("FORETYPE_SOAK_SEED", "1")))
SENDERS, BATCHES, BATCH, UNANSWERED = 2, 20, 100, 4
"""Connections, batches of each, events of a batch, and batches that a client keeps unanswered."""


@dataclass
class Client:
    """How many batches went out, and which were acknowledged."""

    session: str
    sent: int = 0
    acked: set[int] = field(default_factory=set[int])

    async def send(self, url: str) -> None:
        address = f"{url.replace('http', 'ws')}/v1/stream"
        with contextlib.suppress(WebSocketException, OSError):  # that is the kill
            async with connect(address, compression=None, proxy=None, max_size=None) as socket:
                await socket.send(msgspec.msgpack.encode(Hello(v=1, client="test", user="ann")))
                while len(self.acked) < BATCHES:
                    while self.sent < min(BATCHES, len(self.acked) + UNANSWERED):
                        batch, self.sent = self.sent, self.sent + 1
                        events = [msgspec.to_builtins(self.event(batch * BATCH + at)) for at in range(BATCH)]
                        await socket.send(msgspec.msgpack.encode(Feedback(batch=str(batch), events=events)))
                    message = msgspec.msgpack.decode(bytes(await socket.recv(decode=False)), type=GatewayMessage)
                    assert not isinstance(message, Error), message
                    if isinstance(message, Ack):
                        self.acked.add(int(message.batch))

    def event(self, seq: int) -> Event:
        id, now_ms = f"{self.session}-{seq}", time.time_ns() // 1_000_000
        base: dict[str, Any] = {"session": self.session, "seq": seq, "language": "python", "variant": "control"}
        base |= {"t_ms": now_ms, "at_ms": seq * 190.0, "id": id}
        if seq % 3 == 0:
            return Opportunity(**base, document="d", trigger="automatic", caret=Caret.LINE_END, outcome="network")
        if seq % 3 == 1:
            return Request(**base, request_class="interactive", prompt_tokens=1500, cached_tokens=1400)
        return Accept(**base, shown=id, kind="full", how="reported", characters=31, lines=1)


async def killed_round(store_url: str, folder: Path) -> list[Client]:
    """Kills the gateway after a random share of the acknowledgements."""
    clients = [Client(f"{CHANCE.getrandbits(64):016x}") for _ in range(SENDERS)]
    fatal = max(1, int(SENDERS * BATCHES * CHANCE.uniform(0.02, 0.9)))
    options = ("--port", "0", "--telemetry-url", store_url, "--state-dir", str(folder))
    async with serving(*options) as (process, url):
        sending = asyncio.gather(*(client.send(url) for client in clients))
        while sum(len(client.acked) for client in clients) < fatal:
            assert not sending.done(), sending
            await asyncio.sleep(0.001)
        await asyncio.sleep(CHANCE.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        await sending
    return clients


@contextlib.contextmanager
def url_of(store: str, folder: Path) -> Iterator[str]:
    if store == "sqlite":
        yield str(folder / "events.db")
    elif not postgres_server.available():
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    else:
        with postgres_server.server() as url:
            yield url


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_nothing_acknowledged_is_lost_by_a_kill(store: str, tmp_path: Path) -> None:
    left_over = 0
    with url_of(store, tmp_path) as url:
        for _ in range(KILLS):
            clients = await killed_round(url, tmp_path)
            kept = await Store.open(url)
            for client in clients:
                stored = await kept.keys(client.session)
                wanted = {batch * BATCH + at for batch in client.acked for at in range(BATCH)}
                assert wanted <= stored <= set(range(client.sent * BATCH))
                left_over += BATCHES - len(client.acked)
            await kept.close()
    assert left_over, "no kill came in the middle, which proves nothing"
