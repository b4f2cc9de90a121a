"""Faults under load: a defined outcome, nothing leaked, recovery by itself, and metrics that tell of it.

Three rounds each; `FORETYPE_SOAK_ROUNDS` for more.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.identity_world import NOW_MS, Clock, identity_of, minted, record, salts
from backend.redis_server import redis_server
from backend.test_chat import ASK, pool_of
from backend.test_gateway_process import serving
from backend.world import World, complete, gateway, scripted
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from foretype_backend.admission.accounts import Accounts
from foretype_backend.admission.leases import Leases
from foretype_backend.admission.limits import Budget
from foretype_backend.admission.redis_leases import RedisLeases
from foretype_backend.config import LimitsConfig
from foretype_backend.engines.openai import OpenAIEngine
from foretype_backend.identity.directory import Denial, Principal, Tenant
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.usage import UsageWriter
from foretype_backend.telemetry.errors import StoreError
from foretype_client.wire import Cancel, Done, Error, ErrorCode

ROUNDS = int(os.environ.get("FORETYPE_SOAK_ROUNDS", "3"))
rounds = pytest.mark.parametrize("round", range(ROUNDS))

BODY = {"prompt": "x = ", "max_tokens": 8}


@contextlib.asynccontextmanager
async def loaded(world: World, **options: Any) -> AsyncGenerator[list[Done | Error]]:
    """Four developers ask, one after the other each, and sometimes cancel, while the block runs."""
    ends: list[Done | Error] = []

    async def developer(seed: int) -> None:
        chance = random.Random(seed)
        async with world.peer(**options) as peer:
            for number in range(100_000):
                name = f"r{number}"
                await peer.send(complete(name))
                if chance.random() < 0.2:
                    await peer.send(Cancel(id=name))
                while not isinstance(message := await peer.receive(), Done | Error):
                    pass
                ends.append(message)

    tasks = [asyncio.ensure_future(developer(seed)) for seed in range(4)]
    try:
        yield ends
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def more(ends: list[Any], count: int = 10, *, good: Callable[[Any], bool] = lambda _: True) -> None:
    """Wait until so many more requests have ended as wanted."""
    begin = len(ends)
    async with asyncio.timeout(60):
        while sum(map(good, ends[begin:])) < count:  # noqa: ASYNC110 - counts what clients saw
            await asyncio.sleep(0.01)


def done(end: Any) -> bool:
    return isinstance(end, Done)


@rounds
async def test_an_engine_that_dies_under_load_costs_what_it_had_begun(round: int) -> None:
    engine = scripted("x + 1\n" * 10, decode_s_per_token=0.0005)
    async with gateway(engine) as world:
        async with loaded(world) as ends:
            await more(ends)
            for after in (0, 2, 0, 5):
                engine.fail_next(after_tokens=after + round)
            await more(ends, good=done)
            codes = {end.code for end in ends if isinstance(end, Error)}
            assert codes <= {ErrorCode.ENGINE_UNAVAILABLE}
        await world.idle()
        restarts = engine.statistics().restarts
        assert restarts > 0
        assert f"foretype_engine_restarts_total {restarts}.0" in world.service.metrics.render().decode()


@rounds
async def test_a_redis_that_is_killed_under_load_is_not_noticed_by_anybody(round: int, tmp_path: Path) -> None:
    accounts = Accounts(lambda: "2026-09-22")
    with redis_server() as server:
        async with identity_of(tmp_path / "i.db") as (identity, store):
            key = minted()
            await store.add_key(key, record(key), NOW_MS)
            await store.set_tenant(Tenant(name="acme", budgets={"tenant": Budget(tokens_per_s=1e6, burst_tokens=1e6)}))
            await identity.watch.look()
            clock = asyncio.get_running_loop().time
            leases = Leases(accounts.quotas.budgets, slice_s=0.1, now=clock())
            shared = RedisLeases(server.url, leases, slice_s=0.1, clock=clock)
            shared.start()
            headers = {"Authorization": f"Bearer {key.text}"}
            async with gateway(identity=identity, salts=salts(), accounts=accounts) as world:
                async with loaded(world, additional_headers=headers) as ends:
                    await more(ends, good=done)
                    server.kill()
                    await more(ends, 25 + round, good=done)
                    assert leases.statistics(clock()).away_s > 0
                    server.start()
                    await more(ends, good=done)
                await world.idle()
            await shared.close()
            (statistics,) = accounts.quotas.budgets.statistics(clock()).values()
            assert statistics.reserved == 0


@rounds
async def test_a_worker_that_is_killed_under_load_loses_only_what_it_had_begun(round: int) -> None:
    async with serving("--port", "0", "--workers", "2") as (process, url):
        answers: list[int] = []

        async def ask() -> None:
            async with httpx.AsyncClient(trust_env=False, base_url=url, timeout=20) as http:
                for _ in range(100_000):
                    try:
                        answers.append((await http.post("/v1/completions", json=BODY)).status_code)
                    except httpx.TransportError:
                        answers.append(0)

        tasks = [asyncio.ensure_future(ask()) for _ in range(4)]
        await more(answers, good=lambda status: status == 200)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()  # noqa: ASYNC240
        before = answers.count(0)
        os.kill(int(children[round % 2]), signal.SIGKILL)
        await more(answers, 40, good=lambda status: status == 200)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert set(answers) <= {0, 200}
        assert answers.count(0) - before <= len(tasks)


@pytest.mark.parametrize("fault", ["full", "away"])
async def test_a_store_that_takes_nothing_keeps_usage_and_stops_no_completion(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk and a database that is gone look alike from here: every write raises."""
    accounts = Accounts(lambda: "2026-09-22")
    async with identity_of(tmp_path / "i.db") as (identity, store):
        key = minted()
        await store.add_key(key, record(key), NOW_MS)
        await identity.watch.look()
        own = await IdentityStore.open(str(tmp_path / "i.db"))
        writer = UsageWriter(accounts.meter, own, gateway="g", wall_ms=lambda: NOW_MS, every_s=0.01)
        add, failures = IdentityStore.add_usage, [0]

        async def fails(*_: Any) -> bool:
            failures[0] += 1
            raise StoreError(f"the store is {fault}") if fault == "away" else OSError(28, "No space left on device")

        monkeypatch.setattr(IdentityStore, "add_usage", fails)
        writer.start()
        headers = {"Authorization": f"Bearer {key.text}"}
        async with gateway(identity=identity, salts=salts(), accounts=accounts) as world:
            async with loaded(world, additional_headers=headers) as ends:
                await more(ends, 60, good=done)
                assert failures[0]
                monkeypatch.setattr(IdentityStore, "add_usage", add)
                await more(ends, 20, good=done)
            await world.idle()
            counted = world.engine.statistics()
        await writer.close()
        ((_, used),) = await store.usage_of("2026-09")
        assert used.generated_tokens == counted.generated_tokens


@contextlib.asynccontextmanager
async def bad_server(
    serve: Callable[[asyncio.StreamWriter], Awaitable[None]], context: ssl.SSLContext | None = None
) -> AsyncGenerator[str]:
    """A server that takes a request, answers what is asked of the model, and then does what `serve` does."""

    handlers: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/models" in head:
            body = b'{"data": [{"id": "m"}]}'
        elif b"/chat/" in head or not re.search(rb'"max_tokens":1[,}]', await reader.read(65536)):
            return await serve(writer)
        else:  # what an engine asks at its start
            body = b'{"choices": [{"text": "x", "finish_reason": "length"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        return None

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await answer(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{port}/v1"
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


async def never(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"data: \x00\xff{]\n\n")
    await writer.drain()


async def one_byte_at_a_time(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for byte in b'data: {"choices": [{"text": "x"}]}\n\n' * 10:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.2)


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b'data: {"choices": [{"te')
    await writer.drain()


@pytest.mark.parametrize(
    ("serve", "code"),
    [
        (never, ErrorCode.EXPIRED),
        (garbage, ErrorCode.ENGINE_UNAVAILABLE),
        (one_byte_at_a_time, ErrorCode.EXPIRED),
        (hangs_up, ErrorCode.ENGINE_UNAVAILABLE),
    ],
)
async def test_an_engine_that_misbehaves_costs_its_request_alone(
    serve: Callable[[asyncio.StreamWriter], Awaitable[None]], code: ErrorCode
) -> None:
    deadline_ms = 500 if code is ErrorCode.EXPIRED else 20_000
    limits = LimitsConfig(max_deadline_ms=deadline_ms, abort_grace_ms=100, retry_wait_ms=50)
    async with bad_server(serve) as url:
        engine = OpenAIEngine.from_config(url=url, send_token_ids=False)
        async with gateway(engine, limits=limits) as world, world.peer() as peer:
            for number in range(ROUNDS):
                _, end, _ = await peer.ask(f"r{number}", deadline_ms=60_000)
                assert isinstance(end, Error)
                assert end.code is code
            await world.idle()


def certificate(folder: Path, *, days: int) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that ends in `days`, which may be past."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=30)).not_valid_after(now + timedelta(days=days))
    signed = made.sign(key, hashes.SHA256())
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return paths


async def test_an_expired_certificate_of_a_pool_is_told_and_takes_nothing_else_down(tmp_path: Path) -> None:
    path, key = certificate(tmp_path, days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    async with bad_server(garbage, context) as url:
        pool = pool_of(url)
        await pool.start()
        async with gateway(quality=pool) as world, world.http() as http:
            answer = await http.post("/v1/chat/completions", json=ASK)
            assert answer.status_code == 503
            assert "certificate" in answer.json()["error"]["message"].lower()
            assert (await http.post("/v1/completions", json=BODY)).status_code == 200
        await pool.close()


async def test_a_clock_that_jumps_expires_what_it_should_and_recovers(tmp_path: Path) -> None:
    clock = Clock()
    async with identity_of(tmp_path / "i.db", clock=clock) as (identity, store):
        key, lasting = minted(), minted()
        await store.add_key(key, record(key, expires_ms=NOW_MS + 1000), NOW_MS)
        await store.add_key(lasting, record(lasting), NOW_MS)
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts(), accounts=Accounts(lambda: "2026-09-22")) as world:
            async with loaded(world, additional_headers={"Authorization": f"Bearer {lasting.text}"}) as ends:
                await more(ends, good=done)
                clock.now_ms += 86_400_000
                assert identity.authenticate(key.text) is Denial.EXPIRED
                await more(ends, good=done)
                clock.now_ms -= 2 * 86_400_000
                assert isinstance(identity.authenticate(key.text), Principal)
                await more(ends, good=done)
            await world.idle()
