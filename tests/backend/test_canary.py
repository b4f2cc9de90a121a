"""A text that somebody sent is nowhere afterwards: every optional feature on, every file and store searched.

The gateway runs as it is shipped, on a root that it cannot write to but for one folder, before a real PostgreSQL that logs every statement
and a real Redis; a collector of the test's own takes its traces. With leaks planted the same search finds each of them.
"""

import base64
import contextlib
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest
import redis
from backend.identity_world import NOW_MS, minted, record
from backend.postgres_server import Postgres, PostgresUnavailableError, postgres
from backend.postgres_server import available as postgres_available
from backend.redis_server import RedisServer, redis_server
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.test_gateway_process import serving
from backend.world import TOKENIZER, TOKENIZER_PATH, peer_at, segments
from foretype_backend.admission.limits import Budget
from foretype_backend.config.config import Config
from foretype_backend.config.secret_files import make_secret
from foretype_backend.identity.directory import Scope, Tenant
from foretype_backend.identity.store import IdentityStore
from foretype_backend.transport.server import running
from foretype_wire.messages import VERSION, Changed, ChangeReason, Feedback, Hello, Workspace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

CANARY = "quokka_vestibule_7431_marmalade"
SOURCE = "".join(f"value_{at} = {CANARY}(at)\n" for at in range(30))
SERVE = ("-m", "foretype_backend", "serve", "--port", "0", "--log-level", "debug")

PLANT = """
import logging, os, urllib.request
from prometheus_client import Gauge
from foretype_backend.serving.service import CompletionService

run = CompletionService.run

async def leaking(self, job, deliver):
    text = job.prompt.text[:500]
    logging.getLogger("foretype.gateway").debug("a prompt: %s", text)
    with open(os.path.join(os.environ["TMPDIR"], "prompt"), "w") as file:
        file.write(text)
    import psycopg, redis
    redis.Redis.from_url(os.environ["LEAK_REDIS"]).set("prompt", text)
    with psycopg.connect(os.environ["LEAK_POSTGRES"]) as store:
        store.execute("create table if not exists leak (t text)")
        store.execute("insert into leak values (%s)", (text,))
    urllib.request.urlopen(urllib.request.Request(os.environ["LEAK_TRACES"], text.encode()))
    if not hasattr(self, "leak"):
        self.leak = Gauge("foretype_leak", "A leak.", ["text"], registry=self.metrics.registry)
    self.leak.labels(text).set(1)
    return await run(self, job, deliver)

CompletionService.run = leaking
"""


class Collector:
    """Takes whatever is sent to it."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.app = Starlette()
        self.app.add_route("/v1/traces", self.take, methods=["POST"])

    async def take(self, request: Request) -> Response:
        body = await request.body()
        self.payloads.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        return Response(status_code=200, media_type="application/x-protobuf")


def needles() -> list[bytes]:
    """The canary as text, in the usual disguises, and as the token ids of its middle."""
    raw = CANARY.encode()
    found = [raw, CANARY.encode("utf-16-le"), raw.hex().encode()]
    found += [base64.b64encode(b"\0" * at + raw)[4:-4] for at in range(3)]
    ids = TOKENIZER.encode(f" {CANARY}(")[2:-2]
    assert len(ids) >= 6
    found += [separator.join(map(str, ids)).encode() for separator in (",", ", ", " ")]
    for size in (2, 4, 8):
        found += [b"".join(one.to_bytes(size, order) for one in ids) for order in ("little", "big")]
    return found


def files_with_it(*folders: Path) -> Iterator[Path]:
    wanted = needles()
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                if any(needle in data for needle in wanted):
                    yield path


def on_read_only_root(*writable: Path) -> list[str]:
    """The command in front of the gateway's, where bubblewrap may be used; else nothing is in front."""
    command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm"]
    for path in writable:
        command += ["--bind", str(path), str(path)]
    command += ["--die-with-parent"]
    if shutil.which("bwrap") is None or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return []
    return command


def profile_of(folder: Path, stores: tuple[str, str], fast: Replica, chat: Replica, collector: str) -> Path:
    database, cache = map(json.dumps, stores)
    for name in ("salt", "key"):
        make_secret(folder / name)
    path = folder / "team.toml"
    path.write_text(f"""
[model]
tokenizer = {json.dumps(str(TOKENIZER_PATH))}
[pool.fast]
replicas = ["{fast.url}/v1"]
tiers = true
shared_tier_tenants = ["ann"]
retire_url = {cache}
check_every_s = 0.5
[pool.quality]
url = "{chat.url}/v1"
[limits]
retry_wait_ms = 100
[identity]
url = {database}
salt_file = "{folder / "salt"}"
[telemetry]
url = {database}
text_url = "{folder / "texts"}"
key_file = "{folder / "key"}"
[leases]
redis_url = {cache}
[tracing]
endpoint = "{collector.removesuffix("/v1/traces")}"
sample_share = 1.0
""")
    return path


async def key_of(url: str) -> dict[str, str]:
    store, key = await IdentityStore.open(url), minted()
    budgets = {"tenant": Budget(tokens_per_s=1e6, burst_tokens=1e6)}
    await store.add_tenant(Tenant(name="ann", budgets=budgets), NOW_MS)
    scopes = frozenset({Scope.COMPLETE, Scope.CHAT, Scope.ADMIN, Scope.METRICS})
    await store.add_key(key, record(key, "ann", scopes=scopes), NOW_MS)
    await store.close()
    return {"Authorization": f"Bearer {key.text}"}


async def everything(url: str, headers: dict[str, str], fast: Replica, chat: Replica) -> str:
    """Asks at every door, well and badly, of engines that are well and that are not; returns what operators are shown then."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, headers=headers, timeout=60) as http:
        talk = {"messages": [{"role": "system", "content": SOURCE}, {"role": "user", "content": SOURCE}]}

        async def asked() -> None:
            await http.post("/v1/completions", json={"prompt": SOURCE, "max_tokens": 3})
            await http.post("/v1/completions", json={"prompt": SOURCE, "suffix": SOURCE, "stream": True})
            extra = [{"text": SOURCE, "filename": "a.py"}]
            fill = {"input_prefix": SOURCE, "input_suffix": SOURCE, "input_extra": extra}
            await http.post("/infill", json=fill)
            await http.post("/v1/chat/completions", json=talk)

        await asked()
        answers = [
            await http.post("/v1/completions", json={"prompt": SOURCE, "temperature": CANARY}),
            await http.post("/v1/completions", json={"prompt": {"a": CANARY}}),
            await http.post("/v1/completions", content=f'{{"prompt": "{CANARY}'.encode()),
            await http.post("/v1/chat/completions", json=talk | {"messages": [{"role": CANARY, "content": SOURCE}]}),
            await http.post("/v1/chat/completions", json=talk | {CANARY: 1}),
            await http.post("/infill", json={"input_prefix": [CANARY]}),
        ]
        assert {answer.status_code for answer in answers} == {400}
        await over_the_stream(url.replace("http", "ws") + "/v1/stream", headers)
        for behaviour in ("error", "garbage", "dies"):
            fast.behaviour = chat.behaviour = behaviour
            await asked()
        fast.behaviour = chat.behaviour = "ok"
        shown = [await http.get(path) for path in ("/metrics", "/admin/status", "/admin/prefix")]
        assert {answer.status_code for answer in shown} == {200}
        return "".join(answer.text for answer in shown)


async def over_the_stream(url: str, headers: dict[str, str]) -> None:
    hello = Hello(v=VERSION, workspaces=[Workspace(root="/src", repository="shop")])
    async with peer_at(url, hello, additional_headers=headers) as peer:
        await peer.ask("one", segments=segments(SOURCE), max_tokens=2)
        await peer.send(Changed(documents=["file:///src/a.py"], reason=ChangeReason.EDIT))
        await peer.send(Feedback(batch="b", events=[{"kind": "shown", "text": CANARY, CANARY: 1}]))
        await peer.receive()
        await peer.send(msgspec.msgpack.encode({"type": "complete", "id": "bad", "segments": [CANARY]}))
        await peer.receive()


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[tuple[Postgres, RedisServer, Replica, Replica, Collector, str]]:
    taking, config = Collector(), Config()
    config = msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, port=0))
    with postgres("log_statement=all", "log_min_messages=debug1") as store, redis_server() as cache:
        async with replicas(2) as (fast, chat), running(taking.app, config) as (host, port):
            fast.echoes = chat.echoes = True
            yield store, cache, fast, chat, taking, f"http://{host}:{port}/v1/traces"


async def leaks(folder: Path, *, planted: bool) -> set[str]:
    """Where the canary is found when all is over."""
    if not postgres_available():
        pytest.skip(str(PostgresUnavailableError("there is no PostgreSQL here")))
    async with world(folder) as (store, cache, fast, chat, taking, collector):
        place = Path(store.url.partition("host=")[2])
        headers = await key_of(store.url)
        own = {name: str(folder / "home") for name in ("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        (folder / "home").mkdir()
        environment = os.environ | own
        if planted:
            (folder / "plant").mkdir()
            (folder / "plant" / "sitecustomize.py").write_text(PLANT)
            environment["PYTHONPATH"] = f"{folder / 'plant'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            environment |= {"LEAK_REDIS": cache.url, "LEAK_POSTGRES": store.url, "LEAK_TRACES": collector}
        profile = profile_of(folder, (store.url, cache.url), fast, chat, collector)
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), *on_read_only_root(folder)]
        shell = ["sh", "-c", f'exec "$@" 2> {folder / "log"}', "sh"]
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        arguments = ("--profile", str(profile), "--state-dir", str(folder / "state"))
        async with serving(*arguments, command=[*shell, *command, sys.executable, *SERVE]) as (process, url):
            shown = await everything(url, headers, fast, chat)
            gateways = psutil.Process(process.pid).children(recursive=True) or [psutil.Process(process.pid)]
            gateways[-1].terminate()  # bubblewrap itself would leave it no time
            assert await process.wait() == 0
        raw: Any = redis.Redis(unix_socket_path=str(cache.socket))
        assert {"cmdstat_evalsha", "cmdstat_eval"} & set(raw.info("commandstats"))  # budgets were leased
        raw.config_set("rdbcompression", "no")
        raw.save()
        store.stop()  # writes what it holds
        dump = cache.socket.parent
        searched = {
            "disk": [folder / name for name in ("home", "state", "texts")],
            "postgres": [place],
            "redis": [dump],
        }
        found = {f"{kind} {path.name}" for kind, folders in searched.items() for path in files_with_it(*folders)}
        log = (folder / "log").read_bytes()
        assert (
            b"prompt tokens" in log and (dump / "dump.rdb").is_file() and taking.payloads
        )  # each had something to say
        wanted = needles()
        if any(needle in log for needle in wanted):
            found.add("log")
        if any(needle in shown.encode() for needle in wanted):
            found.add("metric")
        if any(needle in payload for payload in taking.payloads for needle in wanted):
            found.add("trace")
        sent = json.dumps(chat.bodies) + json.dumps(fast.bodies)
        assert any(needle in sent.encode() for needle in wanted)  # it was asked for at all
        return found


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ftcanary") as made:
        yield Path(made)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_text_that_was_sent_is_on_no_disk_in_no_log_trace_metric_or_store(folder: Path) -> None:
    assert await leaks(folder, planted=False) == set()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_same_search_finds_every_leak_that_is_planted(folder: Path) -> None:
    found = await leaks(folder, planted=True)
    assert {one.split()[0] for one in found} == {"log", "disk", "redis", "postgres", "trace", "metric"}
