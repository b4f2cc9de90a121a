"""What an orchestrator asks: `/livez`, `/readyz`, and metrics on a port of their own."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.identity_world import added_key, identity_of, salts
from backend.running_replicas import replicas
from backend.scrape import total
from backend.test_gateway_process import refused, serving
from backend.test_workers import BODY, children, fresh, scraped
from backend.world import TOKEN, TOKENIZER, gateway, scripted, until
from foretype_backend.config.fleet import FastConfig
from foretype_backend.config.settings import OidcConfig
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.build import make_pool
from foretype_backend.identity.tokens import TokenVerifier

HOSTS = ["10.1.2.3:7878", "[fd00::7]:7878", "foretype.team.svc:7878", "lb.example", ""]


@pytest.fixture
def never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is asked again at once."""
    monkeypatch.setattr("foretype_backend.doors.readiness._FRESH_S", 0.0)


async def comes(http: httpx.AsyncClient, status: int, reason: str | None = None) -> httpx.Response:
    """Ask until it says so."""
    wanted = {"status": "ok"} if reason is None else {"status": "unready", "reason": reason}
    async with asyncio.timeout(60):
        while (found := await http.get("/readyz")).status_code != status:  # noqa: ASYNC110 - what is asked
            await asyncio.sleep(0.02)
    assert found.json() == wanted
    assert found.headers["cache-control"] == "no-store"
    return found


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_probes_need_no_token_and_come_under_any_name(path: str, host: str) -> None:
    async with gateway(token=TOKEN) as world, world.http() as http:
        answer = await http.get(path, headers={"Host": host} if host else {})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert (await http.get(path, headers={"Host": host, "Origin": "https://evil.example"})).status_code == 403
        assert (await http.get("/healthz", headers={"Host": "lb.example"})).status_code == 403


async def test_a_probe_without_a_host_is_answered() -> None:
    async with gateway(token=TOKEN) as world:
        reader, writer = await asyncio.open_connection(world.host, world.port)
        writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()


@pytest.mark.usefixtures("never_kept")
async def test_a_pool_is_ready_while_one_replica_is_in_service() -> None:
    async with replicas(2) as (one, two):
        fast = FastConfig(replicas=(f"{one.url}/v1", f"{two.url}/v1"), check_every_s=0.05)
        pool = make_pool(fast, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
        async with gateway(pool, salts=salts()) as world, world.http() as http:
            await comes(http, 200)
            await one.stop(keeps_port=True)
            await until(lambda: len(pool.in_service()) == 1)
            await comes(http, 200)
            await two.stop(keeps_port=True)
            unready = await comes(http, 503, "engine")
            assert one.url not in unready.text and str(one.port) not in unready.text
            # The process lives, and clients may go on asking what it serves.
            assert [(await http.get(path)).status_code for path in ("/livez", "/healthz")] == [200, 200]
            await two.start()
            await comes(http, 200)


@pytest.mark.usefixtures("never_kept")
async def test_a_server_that_went_away_makes_its_gateway_unready_until_it_is_back() -> None:
    async with (
        replicas(1) as (one,),
        gateway(OpenAIEngine.from_config(url=f"{one.url}/v1")) as world,
        world.http() as http,
    ):
        await comes(http, 200)
        await one.stop(keeps_port=True)
        await comes(http, 503, "engine")
        await one.start()
        await comes(http, 200)
        one.behaviour = "html"  # a proxy's page in place of the server
        await comes(http, 503, "engine")


class Asked:
    """A scripted engine that counts how often it is asked, and answers when it is told to."""

    def __init__(self, fault: Callable[[], Exception | None] = lambda: None) -> None:
        self.engine: Any = scripted()
        self.times = 0
        self.answers = asyncio.Event()
        self.fault = fault
        self.engine.ready = self._ready

    async def _ready(self) -> None:
        self.times += 1
        await self.answers.wait()
        if (fault := self.fault()) is not None:
            raise fault


async def test_whoever_asks_a_server_that_is_slow_is_told_what_was_found_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a thousand probes ask it once."""
    monkeypatch.setattr("foretype_backend.doors.readiness._ANSWER_S", 0.02)
    asked = Asked(lambda: EngineUnavailableError("http://secret.internal: away"))
    async with gateway(asked.engine) as world, world.http() as http:
        answers = await asyncio.gather(*(http.get("/readyz") for _ in range(50)))
        assert {one.status_code for one in answers} == {200} and asked.times == 1
        asked.answers.set()
        unready = await comes(http, 503, "engine")
        assert "secret" not in unready.text
        assert asked.times <= 2


@pytest.mark.usefixtures("never_kept")
async def test_a_server_that_never_answers_makes_its_gateway_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretype_backend.doors.readiness._CHECK_S", 0.05)
    asked = Asked()
    async with gateway(asked.engine) as world, world.http() as http:
        await comes(http, 503, "engine")
        asked.answers.set()
        await comes(http, 200)


@pytest.mark.usefixtures("never_kept")
async def test_a_check_that_fails_in_a_way_nobody_thought_of_is_no_success(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(lambda: RuntimeError("a text that nobody may read"))
    asked.answers.set()
    async with gateway(asked.engine) as world, world.http() as http:
        await comes(http, 503, "engine")
        assert "RuntimeError" in caplog.text and "a text" not in caplog.text


async def test_a_gateway_that_can_let_nobody_in_is_not_ready(tmp_path: Path) -> None:
    """The issuer's keys were never fetched. A key of one's own, or a token of the gateway's, lets somebody in."""
    tokens = TokenVerifier(OidcConfig(issuer="https://issuer.internal", audience="foretype"))
    async with identity_of(tmp_path / "i.db", verifier=tokens) as (identity, store):
        async with gateway(identity=identity, salts=salts(), token=TOKEN) as world, world.http() as http:
            await comes(http, 200)
        async with gateway(identity=identity, salts=salts()) as world, world.http() as http:
            unready = await comes(http, 503, "issuer")
            assert "internal" not in unready.text
            await added_key(store)
            await identity.watch.look()
            await comes(http, 200)


@pytest.fixture
def port() -> Iterator[int]:
    """Bound until the test is over, and never listened on: a gateway can bind it too, and nobody else is given it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


async def test_a_gateway_that_drains_lives_and_is_not_ready() -> None:
    async with gateway() as world, world.peer(), world.http() as http:
        world.gateway.stream.goaway(grace_ms=1000.0)
        await comes(http, 503, "draining")
        assert (await http.get("/livez")).status_code == 200
        assert (await http.get("/healthz")).json()["status"] == "draining"


def metrics_file(folder: Path, port: int, after: str = "") -> str:
    path = folder / "team.toml"
    (folder / "token").write_text(TOKEN)
    path.write_text(f"[gateway]\ntoken_file = 'token'\n[metrics]\nport = {port}\n{after}")
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
async def test_metrics_have_a_port_of_their_own_without_a_token(workers: int, port: int, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--workers", str(workers), "--profile", metrics_file(tmp_path, port))
    async with serving(*arguments) as (process, url):
        own, token = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(trust_env=False, headers=token, timeout=60) as http:
            for _ in range(6):
                assert (await http.post(f"{url}/v1/completions", json=BODY)).status_code == 200
        for _ in range(4):  # whichever worker takes it
            text = await scraped(own, workers) if workers > 1 else (await fresh(own, "/metrics")).text
            assert total(text, "foretype_requests_total") == 6
        assert (await fresh(own, "/metrics")).headers["content-type"].startswith("text/plain")
        # Nothing else is there, and the door beside the others asks for the token as before.
        for path in ("/healthz", "/livez", "/admin/status", "/v1/models", "/playground"):
            assert (await fresh(own, path)).status_code == 404
        assert (await fresh(own, "/v1/completions", json=BODY)).status_code == 404
        assert (await fresh(url, "/metrics")).status_code == 401
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                assert (await http.get(f"{own}/metrics", headers=headers)).status_code == 403
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.slow
async def test_a_metrics_port_beyond_this_machine_is_scraped_under_any_name(port: int, tmp_path: Path) -> None:
    path = metrics_file(tmp_path, port, after="host = '0.0.0.0'\n")
    async with serving("--port", "0", "--profile", path), httpx.AsyncClient(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{port}/metrics"
        assert (await http.get(url, headers={"Host": "gateway:9464"})).status_code == 200
        assert (await http.get(url, headers={"Origin": "https://evil.example"})).status_code == 403


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_metrics_port_in_use_ends_the_start(workers: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = metrics_file(tmp_path, taken.getsockname()[1])
        error = await refused("--port", "0", "--workers", workers, "--profile", path)
    assert error.startswith("foretype serve: metrics.port: cannot bind 127.0.0.1:") and "Traceback" not in error


@pytest.mark.slow
async def test_a_free_port_for_metrics_is_told_in_the_log(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--profile", metrics_file(tmp_path, 0))
    async with serving(*arguments, log=asyncio.subprocess.PIPE) as (process, _):
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"metrics at " not in (line := await process.stderr.readline()):
                assert line, "it ended"
        url = line.decode().partition("metrics at ")[2].partition(",")[0]
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            assert "foretype_slots" in (await http.get(url)).text


@pytest.mark.slow
async def test_workers_that_were_replaced_take_scrapes_again(port: int, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--workers", "2", "--profile", metrics_file(tmp_path, port))
    async with serving(*arguments) as (process, _):
        for worker in children(process.pid).read_text().split():
            os.kill(int(worker), signal.SIGKILL)
        async with asyncio.timeout(60):
            await scraped(f"http://127.0.0.1:{port}")
