"""Checking a file, reloading it, draining, several workers, TLS, and a gateway seen from outside."""

import asyncio
import io
import json
import signal
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.identity_world import added_key, identity_of, salts
from backend.test_faults import certificate
from backend.test_gateway_process import SERVE, serving
from backend.world import complete, gateway, profile, segments, until
from foretype_backend.config.config import Config
from foretype_backend.config.settings import GatewayConfig, LimitsConfig
from foretype_backend.identity.directory import Scope
from foretype_backend.operations.reload import Reloader
from foretype_backend.operations.status import table
from foretype_backend.start.check import check_file
from foretype_client.commands.cli import app
from foretype_models.artifacts import locate
from foretype_wire.messages import Goaway, Hello, Profile
from msgspec import json as msgspec_json
from msgspec import structs
from rich.console import Console
from typer.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("[limits]\nmax_running = 8\nmax_waitin = 2\n", 3, "limits.max_waitin"),
        ("[limits]\n# a comment\nmax_running = 0\n", 3, "limits.max_running"),
        ('[gateway]\nport = "x"\n', 2, "gateway.port"),
        ("[gateway]\nhost = '0.0.0.0'\n", 1, "gateway.token_file"),
        ("[admission.objectives_ms]\nchat = -1\n", 2, "admission.objectives_ms.chat"),
        ("[identity.oidc]\nissuer = 'i'\n", 1, "identity.oidc"),
        ("[gateway]\nport = = 3\n", 2, "profile"),
        ("[gateway]\nworkers = 4\n", 2, "gateway.workers"),
        ("[model]\nname = 'm'\n[gateway]\n# port = 1\nport = 'x'\n", 5, "gateway.port"),
    ],
)
def test_a_bad_file_is_told_by_line_and_field(text: str, line: int, field: str, tmp_path: Path) -> None:
    path = tmp_path / "team.toml"
    path.write_text(text)
    finding = check_file(path)
    assert finding is not None
    assert finding.field == field
    assert finding.line == line
    result = CliRunner().invoke(app, ["config", "check", str(path), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["findings"][0]["field"] == field


def test_a_good_file_is_ok_and_a_missing_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "team.toml"
    path.write_text("[limits]\nmax_running = 8\n")
    assert CliRunner().invoke(app, ["config", "check", str(path)]).exit_code == 0
    missing = check_file(tmp_path / "nothing.toml")
    assert missing is not None
    assert "cannot read" in missing.message


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("[engine]\nname = 'openai'\nmodel = 'http://h:1'\n[model]\ntokenizer = '{}'\n", 5, "model.tokenizer"),
        ("[engine]\nmodel = '{}'\n", 2, "engine.model"),
        ("[engine]\nname = 'openai'\napi_key_file = '{}'\n", 3, "engine.api_key_file"),
        ("[gateway]\ntls_cert_file = '{}'\ntls_key_file = 'team.toml'\n", 2, "gateway.tls_cert_file"),
        ("[gateway]\ntls_cert_file = 'team.toml'\ntls_key_file = '{}'\n", 3, "gateway.tls_key_file"),
        ("[pool.fast]\nreplicas = ['http://h:1']\napi_key_file = '{}'\n", 3, "pool.fast.api_key_file"),
        ("[pool.quality]\nurl = 'http://h:1'\nmodel = 'm'\napi_key_file = '{}'\n", 4, "pool.quality.api_key_file"),
        ("[pool.quality]\nurl = 'http://h:1'\nmodel = 'm'\ntokenizer = '{}'\n", 4, "pool.quality.tokenizer"),
    ],
)
@pytest.mark.parametrize("what", ["none", "a folder", "something else"])
def test_a_file_that_is_named_and_cannot_be_used_is_told(
    text: str, line: int, field: str, what: str, tmp_path: Path
) -> None:
    path, named = tmp_path / "team.toml", tmp_path / "named"
    if what == "a folder":
        named.mkdir()
    elif what == "something else":
        named.write_bytes(b"" if field.endswith("api_key_file") else b"\xffno such thing")
    path.write_text(text.format("named"))
    finding = check_file(path)
    assert finding is not None
    # Where certificate and key are there, and one is none, they are told of together.
    told = field.replace("tls_key_file", "tls_cert_file") if what == "something else" else field
    assert finding.field == told and finding.line == line - (told != field)
    assert str(named) in finding.message and ";" in finding.message


def test_files_that_are_there_are_ok(tmp_path: Path) -> None:
    path, model = tmp_path / "team.toml", locate()
    (tmp_path / "key").write_text("k\n")
    path.write_text(
        f"[engine]\nmodel = '{model.path}'\napi_key_file = 'key'\n[model]\ntokenizer = '{model.tokenizer_path}'\n"
    )
    assert check_file(path) is None


async def test_a_reload_changes_what_it_can_and_names_the_rest() -> None:
    async with gateway() as world, world.peer() as peer:
        limits = LimitsConfig(max_running=3, max_tokens=7)
        wanted = structs.replace(
            world.config, limits=limits, gateway=GatewayConfig(port=1, origins=("https://ok",)), token=None
        )
        told = profile(budgets=structs.replace(profile().budgets, line_tokens=5))
        reloader = Reloader(world.config, lambda: wanted, lambda config: world.gateway.use(config, told))
        assert reloader.reload() == ["gateway.port"]
        update = await peer.receive()
        assert isinstance(update, Profile)
        assert update.budgets.line_tokens == 5
        assert world.service.scheduler.limits.max_running == 3
        assert world.gateway.stream.keeper.listed({"host": "localhost", "origin": "https://ok"})
        await peer.still_works()


def test_a_file_that_cannot_be_used_changes_nothing(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    from foretype_backend.config.load import load_config

    path = tmp_path / "team.toml"
    path.write_text("[limits]\nmax_running = 0\n")
    used: list[Config] = []
    reloader = Reloader(Config(), lambda: load_config(profile=path), used.append)
    reloader.on_signal()
    assert not used
    assert "the former configuration stays: limits.max_running" in caplog.text


async def greet(url: str, **options: Any) -> Any:
    socket = await connect(url.replace("http", "ws", 1) + "/v1/stream", proxy=None, open_timeout=60, **options)
    await socket.send(msgspec_json.encode(Hello(v=1)).decode())
    await socket.recv()
    return socket


async def test_a_process_reloads_on_a_signal_and_drains_on_another(tmp_path: Path) -> None:
    path = tmp_path / "team.toml"
    path.write_text("[model.budgets]\nline_tokens = 20\n[gateway]\ndrain_s = 30\n")
    async with serving("--port", "0", "--profile", str(path)) as (process, url):
        socket = await greet(url)
        path.write_text("[model.budgets]\nline_tokens = 21\n[gateway]\ndrain_s = 30\n")
        process.send_signal(signal.SIGHUP)
        update = json.loads(await socket.recv())
        assert update["budgets"]["line_tokens"] == 21
        await socket.send(msgspec_json.encode(complete("r1")).decode())
        while json.loads(await socket.recv())["type"] != "done":
            pass
        process.send_signal(signal.SIGTERM)
        goaway = json.loads(await socket.recv())
        assert goaway == {"type": "goaway", "grace_ms": 30_000.0}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            health = await http.get(f"{url}/healthz")
            assert (health.status_code, health.json()["status"]) == (503, "draining")
        late = await connect(url.replace("http", "ws", 1) + "/v1/stream", proxy=None, open_timeout=60)
        with pytest.raises(ConnectionClosed):
            await late.recv()
        await socket.send(msgspec_json.encode(complete("r2")).decode())
        while json.loads(await socket.recv())["type"] != "done":
            pass
        assert process.returncode is None
        await socket.close()
        assert await process.wait() == 0


async def test_a_second_signal_ends_a_drain_at_once(tmp_path: Path) -> None:
    path = tmp_path / "team.toml"
    path.write_text("[gateway]\ndrain_s = 1000\n")
    async with serving("--port", "0", "--profile", str(path)) as (process, url):
        socket = await greet(url)
        process.send_signal(signal.SIGTERM)
        assert json.loads(await socket.recv())["type"] == "goaway"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.slow
async def test_workers_do_not_outlive_a_parent_that_is_killed() -> None:
    async with serving("--port", "0", "--workers", "2") as (process, _):
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()  # noqa: ASYNC240
        assert len(workers) == 2
        process.kill()
        await process.wait()
        await until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


async def test_a_gateway_speaks_tls_itself(tmp_path: Path) -> None:
    path, key = certificate(tmp_path, days=1)
    (tmp_path / "t.toml").write_text(f"[gateway]\ntls_cert_file = '{path}'\ntls_key_file = '{key}'\n")
    async with serving("--port", "0", "--profile", str(tmp_path / "t.toml"), scheme="https") as (_, url):
        trusted = ssl.create_default_context(cafile=str(path))
        async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=60) as http:
            assert (await http.get(f"{url}/healthz")).status_code == 200
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            with pytest.raises(httpx.HTTPError):
                await http.get(url.replace("https", "http") + "/healthz")


async def test_status_needs_the_admin_scope_and_shows_every_pool(tmp_path: Path) -> None:
    async with identity_of(tmp_path / "i.db") as (identity, store):
        admin = await added_key(store, scopes=frozenset({Scope.ADMIN}))
        user = await added_key(store)
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts()) as world:
            async with world.http(headers={"Authorization": f"Bearer {user.text}"}) as http:
                assert (await http.get("/admin/status")).status_code == 403
            headers = {"Authorization": f"Bearer {admin.text}"}
            async with world.peer(additional_headers=headers) as peer:
                await peer.still_works()
            async with world.http(headers=headers) as http:
                report = (await http.get("/admin/status")).json()
    fast = report["pools"]["fast"]
    assert fast["decisions"] == {"interactive": {"started": 1}}
    assert (fast["slots"], fast["running"], report["identity"]["age_s"]) == (64, 0, 0)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(report))
    assert "queued tokens" in console.export_text()


def test_status_says_what_is_wrong(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", "--gateway", "http://127.0.0.1:1", "--json"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr


async def test_no_log_at_any_level_holds_source_text() -> None:
    """A whole process at the lowest level, asked well and badly through every door."""
    mark = "SECRET_IDENTIFIER"
    process = await asyncio.create_subprocess_exec(
        *SERVE, "--port", "0", "--log-level", "debug", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip().removeprefix("ready ")
    socket = await greet(url)
    asked = complete("a", segments=segments(prefix=f"{mark} = 1\n", middle=f"{mark} + "))
    for frame in (
        msgspec_json.encode(asked).decode(),
        f'{{"type": "complete", "id": "d", "segments": "{mark}"}}',
        mark,
    ):
        await socket.send(frame)
    seen: list[dict[str, Any]] = []
    while len([message for message in seen if message["type"] in ("done", "error")]) < 3:
        seen.append(json.loads(await socket.recv()))
    await socket.close()
    async with httpx.AsyncClient(trust_env=False, base_url=url, timeout=60) as http:
        await http.post("/v1/completions", json={"prompt": mark, "stop": mark * 99})
        await http.post("/v1/completions", json={"prompt": mark, "max_tokens": 8})
        await http.post("/v1/chat/completions", json={"messages": [{"role": mark, "content": mark}]})
        await http.post("/infill", content=mark)
        await http.get(f"/{mark}", headers={"authorization": f"Bearer {mark}"})
    process.terminate()
    out, log = await process.communicate()
    assert log.count(b"prompt tokens") == 2
    assert mark in "".join(message.get("text", "") for message in seen)
    assert mark.encode() not in out + log


async def test_a_goaway_reaches_every_client() -> None:
    async with gateway() as world, world.peer() as one, world.peer() as two:
        world.gateway.stream.goaway(5000.0)
        assert await one.receive() == await two.receive() == Goaway(grace_ms=5000.0)
        await one.answer("still")
