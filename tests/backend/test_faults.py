"""Faults under load: a defined outcome, nothing leaked, recovery by itself, and metrics that tell of it.

What is killed is in `test_kills`, a network that fails in `test_network_cuts`, stores that fail in `test_store_faults`.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
import signal
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from backend.identity_world import NOW_MS, Clock, added_key, identity_of, salts
from backend.loads import done, loaded
from backend.scrape import total
from backend.test_chat import ASK, pool_of
from backend.test_gateway_process import SERVE
from backend.world import gateway, scripted, until
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from foretype_backend.admission.outcomes import Reason
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.identity.accounts import Accounts
from foretype_backend.start.check import check_file
from foretype_wire.messages import Error, ErrorCode
from websockets.exceptions import ConnectionClosed

BODY = {"prompt": "x = ", "max_tokens": 8}
DAY_MS = 86_400_000
SOAKED = int(os.environ.get("FORETYPE_SOAK_REQUESTS", "40000"))
"""About 2,900 a second on one core."""
SOAK_S = float(os.environ.get("FORETYPE_SOAK_S", "0"))


async def test_an_engine_that_dies_at_any_token_costs_what_it_had_begun() -> None:
    engine = scripted("x + 1\n" * 10, decode_s_per_token=0.0005)
    async with gateway(engine) as world:
        async with loaded(world) as developers:
            await developers.more(good=done)
            for after in (0, 2, 0, 5, 9, 0, 1):
                engine.fail_next(after_tokens=after)
            await developers.more(20, good=done)
        codes = [end.code for end in developers.ends if isinstance(end, Error)]
        assert set(codes) <= {ErrorCode.ENGINE_UNAVAILABLE}
        await world.idle()
        restarts = engine.statistics().restarts
        assert restarts > 0
        metrics = world.service.metrics.render()
        assert total(metrics, "foretype_engine_restarts_total") == restarts
        assert total(metrics, "foretype_requests_total", reason="engine_lost") >= len(codes)
        assert total(metrics, "foretype_engine_retries_total") > 0


@pytest.mark.parametrize(
    "requests", [200, pytest.param(SOAKED, marks=[pytest.mark.soak, pytest.mark.timeout(2 * 3600)])]
)
async def test_what_came_is_what_was_finished_cancelled_refused_or_lost(requests: int) -> None:
    """Of requests of which every fifth is cancelled, some are refused, some lose their engine, and the last ones their connection.

    A soak is spread over `FORETYPE_SOAK_S` seconds, where it takes less.
    """
    every_s = 4 * SOAK_S / requests if requests == SOAKED else 0.0
    engine = scripted("x + 1\n" * 10, decode_s_per_token=0.0005)
    limits = LimitsConfig(max_running=2, max_waiting=1, retry_wait_ms=0)
    async with gateway(engine, limits=limits) as world:
        async with loaded(world, every_s=every_s) as developers:
            for _ in range(requests // 100):
                engine.fail_next(after_tokens=3)
                await developers.more(100)
        await world.idle()
        async with world.http() as http:  # of those who ask all at once, none may have come to its end
            assert (await http.post("/v1/completions", json={"prompt": "x", "max_tokens": 2})).status_code == 200
        metrics = world.service.metrics.render()
    ended = {
        kind: sum(total(metrics, "foretype_requests_total", reason=one) for one in reasons)
        for kind, reasons in KINDS.items()
    }
    assert {one for reasons in KINDS.values() for one in reasons} == set(Reason)
    assert min(ended.values()) > 0
    assert total(metrics, "foretype_requests_received_total") == sum(ended.values()) >= requests


KINDS = {
    "finished": (Reason.END_OF_MIDDLE, Reason.STOP, Reason.LENGTH),
    "cancelled": (Reason.CANCELLED, Reason.SUPERSEDED, Reason.DOCUMENT_LIMIT, Reason.DISCONNECTED),
    "refused": (Reason.RATE_LIMITED, Reason.OVERLOADED, Reason.INVALID, Reason.MISMATCH, Reason.EXPIRED),
    "lost": (Reason.ENGINE_LOST, Reason.FAULT),
}
"""Every reason is of one kind."""

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers what an engine asks at its start, and to everything else does what `answer` does at the time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/models" in head:
            body = b'{"data": [{"id": "m"}]}'
        elif b"/chat/" in head or not re.search(rb'"max_tokens":1[,}]', await reader.read(65536)):
            return await self.answer(writer)
        else:
            body = b'{"choices": [{"text": "x", "finish_reason": "length"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        return None


@contextlib.asynccontextmanager
async def serving(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    one, handlers = Server(answer), set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await one.handle(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    one.url = f"http{'s' if context else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield one
    finally:
        listener.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
PIECE = b'data: {"choices": [{"text": "x"}]}\n\n'


async def well(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + PIECE + b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\ndata: [DONE]\n\n')
    await writer.drain()


async def never(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"data: \x00\xff{]\n\n")
    await writer.drain()


async def one_byte_a_second(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for byte in PIECE:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + PIECE[:-9])
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (never, ErrorCode.EXPIRED, "expired"),
        (garbage, ErrorCode.ENGINE_UNAVAILABLE, "engine_lost"),
        (one_byte_a_second, ErrorCode.EXPIRED, "expired"),
        (hangs_up, ErrorCode.ENGINE_UNAVAILABLE, "engine_lost"),
    ],
)
async def test_an_engine_that_misbehaves_costs_what_it_was_asked_meanwhile(
    answer: Answer, code: ErrorCode, reason: str
) -> None:
    # A deadline that is short is for those who only wait for it: a busy machine passes it in the middle of anything.
    deadline_ms = 300 if code is ErrorCode.EXPIRED else 60_000
    limits = LimitsConfig(max_deadline_ms=deadline_ms, abort_grace_ms=100, retry_wait_ms=50)
    async with serving(well) as server:
        engine = OpenAIEngine.from_config(url=server.url, send_token_ids=False)
        async with gateway(engine, limits=limits) as world, loaded(world) as developers:
            await developers.more(good=done)
            server.answer = answer
            # What was asked before may still come.
            await developers.more(8, good=lambda end: isinstance(end, Error))
            assert {end.code for end in developers.ends if isinstance(end, Error)} == {code}
            server.answer = well
            await developers.more(good=done)
            faults = sum(isinstance(end, Error) for end in developers.ends)
            await developers.end()
            await world.idle()
            assert total(world.service.metrics.render(), "foretype_requests_total", reason=reason) >= faults


def certificate(folder: Path, *, days: int) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that ends in `days`, which may be past."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=30)).not_valid_after(now + timedelta(days=days))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = made.add_extension(x509.SubjectAlternativeName([address]), critical=False)
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
    async with serving(well, context) as server:
        pool = pool_of(server.url)
        await pool.start()
        async with gateway(quality=pool) as world, world.http() as http:
            answer = await http.post("/v1/chat/completions", json=ASK)
            assert answer.status_code == 503
            assert "certificate" in answer.json()["error"]["message"].lower()
            assert (await http.post("/v1/completions", json=BODY)).status_code == 200
        await pool.close()


async def test_an_expired_certificate_is_told_and_renewed_without_dropping_a_connection(tmp_path: Path) -> None:
    path, key = certificate(tmp_path, days=-1)
    profile = tmp_path / "gateway.toml"
    profile.write_text(f"[gateway]\ntls_cert_file = '{path}'\ntls_key_file = '{key}'\n")
    finding = check_file(profile)
    assert finding is not None
    assert (finding.line, finding.field) == (2, "gateway.tls_cert_file")
    assert "expired" in finding.message
    process = await asyncio.create_subprocess_exec(
        *SERVE, "--port", "0", "--profile", str(profile), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip().removeprefix("ready ")

    async def welcome() -> bool:
        """Whether somebody who trusts the certificate's maker is served."""
        trusting = ssl.create_default_context(cafile=str(path))
        async with httpx.AsyncClient(verify=trusting, trust_env=False, base_url=url, timeout=60) as http:
            try:
                return (await http.get("/healthz")).status_code == 200
            except httpx.ConnectError as error:
                assert "certificate" in str(error)
                return False

    async with httpx.AsyncClient(
        verify=False, trust_env=False, base_url=url, timeout=60
    ) as old:  # one connection, kept open

        async def expires_s() -> float:
            return total((await old.get("/metrics")).text, "foretype_tls_certificate_expires_seconds")

        assert not await welcome()
        ended_s = await expires_s()
        assert ended_s < datetime.now(UTC).timestamp()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        key.write_bytes(certificate(elsewhere, days=9)[1].read_bytes())  # a key that does not belong to it
        process.send_signal(signal.SIGHUP)
        assert (await old.post("/v1/completions", json=BODY)).status_code == 200
        assert await expires_s() == ended_s
        certificate(tmp_path, days=9)
        process.send_signal(signal.SIGHUP)
        await until(welcome)
        assert await expires_s() > datetime.now(UTC).timestamp() + 7 * 86_400
    process.terminate()
    assert await process.wait() == 0


async def test_a_clock_that_jumps_expires_what_it_should_and_recovers(tmp_path: Path) -> None:
    clock = Clock()
    async with identity_of(tmp_path / "i.db", clock=clock) as (identity, store):
        key = await added_key(store, expires_ms=NOW_MS + 1000)
        lasting = await added_key(store)
        await identity.watch.look()
        headers = {"Authorization": f"Bearer {lasting.text}"}
        async with (
            gateway(identity=identity, salts=salts(), accounts=Accounts(lambda: "2026-09-22")) as world,
            loaded(world, additional_headers=headers) as developers,
        ):

            async def greeted() -> bool:
                try:
                    async with world.peer(additional_headers={"Authorization": f"Bearer {key.text}"}) as peer:
                        await peer.still_works()
                except ConnectionClosed:
                    return False
                return True

            for jump_ms, welcome in ((0, True), (DAY_MS, False), (-2 * DAY_MS, True), (DAY_MS, True)):
                clock.now_ms += jump_ms
                assert await greeted() is welcome
                await developers.more(good=done)
            assert total(world.service.metrics.render(), "foretype_denied_total", reason="expired") == 1
            await developers.end()
            assert all(done(end) for end in developers.ends)
            await world.idle()
