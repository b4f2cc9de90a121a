"""Two gateways over one fleet, one Redis and one PostgreSQL: developers type through it while each part in turn is killed.

Once each; `FORETYPE_SOAK_ROUNDS` for more, as `make soak` asks. What was acknowledged and what was used is counted over all of it, and
compared with the store at the end.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from backend.identity_world import record
from backend.postgres_server import Postgres, postgres
from backend.redis_server import RedisServer, redis_server
from backend.scrape import total
from backend.telemetry_world import opportunity
from backend.test_stream_with_client import typing_session
from backend.world import TOKENIZER, TOKENIZER_PATH
from e2e.lsp_support import GatewayProcess
from e2e.way import Way
from fleet.support import LIMIT_S, Fleet, free_ports, until
from foretype_backend.admission.limits import Budget
from foretype_backend.identity.directory import Scope, Tenant, User
from foretype_backend.identity.keys import ApiKey, mint
from foretype_backend.identity.store import IdentityStore
from foretype_client.client import Client, ClientOptions, open_client
from foretype_client.session import regions as session_regions
from foretype_context.prompt.assemble import Assembler
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Delta, Finish
from msgspec.structs import replace
from redis import Redis

ROUNDS = int(os.environ.get("FORETYPE_SOAK_ROUNDS", "1"))
PEOPLE = 4
WHOLE = {Finish.LENGTH, Finish.STOP}
FAR_S = 0.02
"""What the way to the gateway of the other region takes, each way."""

POOLS = """
[[pool]]
name = "fast"
revision = "r1"
min_replicas = 2
max_replicas = 2
cpus = 0.5
host = "127.0.0.1"
drain_s = 30
command = {command}

[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
profile = "profile.yaml"
"""
GATEWAY = """
[pool.fast]
silence_s = 60
idle_timeout_s = 120
[pool.fast.discovery]
source = "http"
url = "http://127.0.0.1:{directory}/replicas"
[model]
tokenizer = "{tokenizer}"
grammar = "foretype-1"
[identity]
url = "{postgres}"
salt_file = "{salt}"
[telemetry]
url = "{postgres}"
key_file = "{salt}"
[leases]
redis_url = "{redis}"
"""


class Region:
    """A gateway that may be killed and started again, at the same address and with the same state."""

    def __init__(self, folder: Path, more: str) -> None:
        folder.mkdir()
        self._folder, self._more = folder, more
        [self.port] = free_ports(1)  # which nobody takes while it is away
        self.start()

    def start(self) -> None:
        state = ("--state-dir", str(self._folder / "state"))
        self.process = GatewayProcess(self._folder, engine="", port=self.port, options=state, more=self._more)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def asks(self, path: str, key: ApiKey) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key.text}"}
        return httpx.get(
            f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=LIMIT_S, trust_env=False, verify=False
        )


class World:
    """Everything that a team has, and what its developers were told."""

    def __init__(self, fleet: Fleet, store: Postgres, ledger: RedisServer, regions: list[Region], key: ApiKey) -> None:
        self.fleet, self.store, self.ledger, self.regions, self.key = fleet, store, ledger, regions, key
        self.acknowledged = set[tuple[str, int]]()
        self.generated_tokens = 0
        self._shifts = 0

    def asked(self, region: Region) -> int:
        """How many replicas a gateway asks; none where it does not say: its store may be away still."""
        with suppress(httpx.HTTPError):
            answer = region.asks("/v1/fleet/signals", self.key)
            return answer.json()["fast"]["replicas"] if answer.status_code == 200 else 0
        return 0

    def whole(self) -> bool:
        """Two replicas, and both gateways ask both of them."""
        return bool(self.fleet.has_ready(2)()) and all(self.asked(one) == 2 for one in self.regions)

    @asynccontextmanager
    async def developers(self, folder: Path) -> AsyncGenerator[Developers]:
        """Half of them are nearer to the one gateway, half to the other."""
        self._shifts += 1
        ones = Developers(self, self._shifts, folder)
        async with AsyncExitStack() as stack:
            far = [await stack.enter_async_context(Way(one, FAR_S).open()) for one in self.regions]
            begun = [
                asyncio.create_task(ones.work(at, [self.regions[at % 2].url, far[1 - at % 2].url]))
                for at in range(PEOPLE)
            ]
            ones.tasks = begun
            try:
                await ones.more(2)
                yield ones
            finally:
                for task in begun:
                    task.cancel()
                for result in await asyncio.gather(*begun, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result


class Developers:
    """Real clients, each asking one thing after the other; `ends` counts what became of it."""

    def __init__(self, world: World, shift: int, folder: Path) -> None:
        self._world, self._shift, self._folder = world, shift, folder
        self.ends = Counter[str]()
        self.tasks: list[asyncio.Task[None]] = []
        self._whole = Counter[int]()

    async def more(self, count: int) -> None:
        """Each of them gets so many more whole answers."""
        before = self._whole.copy()
        async with asyncio.timeout(LIMIT_S):
            while any(self._whole[at] < before[at] + count for at in range(PEOPLE)):
                for task in self.tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)

    async def work(self, number: int, urls: list[str]) -> None:
        folder = self._folder / str(number)
        options = ClientOptions(
            gateway=" ".join(urls), token=self._world.key.text, state_dir=folder, cache_dir=self._folder / "cache"
        )
        async with open_client(options) as client:
            name = f"{self._shift}-{number}"
            client.session.acknowledged.add(lambda batch: self._world.acknowledged.add((name, int(batch))))
            await client.ready(LIMIT_S)
            assert client.session.profile is not None
            calls = typing_session(Assembler(TOKENIZER, client.session.profile), 20)
            for at in range(1_000_000):
                client.session.feedback(str(at), [opportunity(at, session=name)])
                call = replace(
                    calls[at % len(calls)],
                    id=f"{name}-{at}",
                    document=f"file:///{number}.py",
                    max_tokens=24,
                    deadline_ms=120_000.0,  # a busy machine is slow, and loses nothing
                )
                if client.session.connected:  # between two connections there is nobody to ask
                    end = await self._ask(client, call)
                    self.ends[end] += 1
                    self._whole[number] += end in WHOLE
                await asyncio.sleep(0.02)

    async def _ask(self, client: Client, call: Any) -> str:
        end = "nothing"
        try:
            async for item in client.session.complete(call):
                if not isinstance(item, Delta):
                    self._world.generated_tokens += item.usage.generated_tokens
                    end = str(item.finish)
        except GatewayGoneError:
            return "gone"
        except RequestRefusedError as error:
            return str(error.code)
        return end


@contextmanager
def identities(url: str) -> Generator[ApiKey]:
    key = mint(os.urandom)

    async def make() -> None:
        store = await IdentityStore.open(url)
        budgets = {"tenant": Budget(tokens_per_s=1e6, burst_tokens=1e6)}
        await store.add_tenant(Tenant(name="acme", budgets=budgets), 0)
        await store.put_user(User(tenant="acme", name="ann"))
        scopes = frozenset({Scope.COMPLETE, Scope.METRICS, Scope.ADMIN})
        await store.add_key(key, record(key, user="ann", scopes=scopes), 0)
        await store.close()

    asyncio.run(make())
    yield key


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("gateways")
    (folder / "profile.yaml").write_text("token-s: 0.01\n")
    (folder / "salt").write_bytes(os.urandom(32))
    (folder / "salt").chmod(0o600)
    fleet = Fleet(folder, POOLS)
    regions: list[Region] = []
    # The system does not crash here: what was written is there without waiting for the disk.
    with postgres("fsync=off") as store, redis_server() as ledger, identities(store.url) as key:
        try:
            fleet.ok("up")
            places = {"postgres": store.url, "redis": ledger.url, "directory": fleet.listens}
            more = GATEWAY.format(tokenizer=TOKENIZER_PATH, salt=folder / "salt", **places)
            regions.extend(Region(folder / name, more) for name in ("one", "two"))
            made = World(fleet, store, ledger, regions, key)
            until(made.whole, what="both gateways on both replicas")
            yield made
        finally:
            for one in regions:
                one.process.close()
            fleet.close()


async def kill(world: World, what: str, at: int) -> Callable[[], Any]:
    """Kill one part of the world; returns what brings it back, where it does not come back by itself."""
    fleet = world.fleet
    if what == "gateway":
        await asyncio.to_thread(world.regions[at % 2].process.kill)
        return world.regions[at % 2].start
    if what == "redis":
        world.ledger.kill()
        return world.ledger.start
    if what == "postgres":
        world.store.kill()
        return world.store.start
    if what in ("engine", "replica"):
        victim = (await asyncio.to_thread(until, fleet.has_ready(2)))[at % 2]
        os.kill(victim["engine_pid" if what == "engine" else "pid"], 9)
        return lambda: until(
            lambda: victim["replica"] not in {one["replica"] for one in fleet.ready()}, what="it is not listed"
        )
    await asyncio.to_thread(fleet.kill, {"directory": "ServeReplica:directory", "controller": "ServeController"}[what])
    return lambda: None


MAY_END = {"gateway": {"gone"}, "engine": {"engine_unavailable"}, "replica": {"engine_unavailable"}}
"""How a request may end, beside whole, that had begun on what was killed; nothing else may be noticed by anybody."""


@pytest.mark.parametrize("what", ["gateway", "engine", "replica", "directory", "controller", "redis", "postgres"])
async def test_a_part_is_killed_while_developers_type(
    world: World, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A gateway that is killed ends its connections, and that is seen at once. One that is late on a busy machine is not left.
    monkeypatch.setattr(session_regions, "_PONG_S", 60.0)
    monkeypatch.setattr(session_regions, "_PROBE_TIMEOUT_S", 60.0)
    async with world.developers(tmp_path) as developers:
        for at in range(ROUNDS):
            before = Counter(developers.ends)
            began_s = time.monotonic()
            comes_back = await kill(world, what, at)
            await developers.more(1)
            first_s = time.monotonic() - began_s
            await developers.more(5)
            await asyncio.to_thread(comes_back)
            await asyncio.to_thread(until, world.whole, what="everything is back")
            await developers.more(1)
            ends = developers.ends - before
            back_s = time.monotonic() - began_s
            print(f"{what} killed: all answered after {first_s:.1f} s, all back after {back_s:.1f} s: {dict(ends)}")
            others = {end: count for end, count in ends.items() if end not in WHOLE}
            assert others.keys() <= MAY_END.get(what, set())
            assert sum(others.values()) <= PEOPLE, "one of each developer, at most"


async def test_at_the_end_nothing_is_lost_and_nothing_is_left(world: World) -> None:
    for region in world.regions:
        for name in ("foretype_running", "foretype_waiting", "foretype_replica_in_flight"):

            def idle(region: Region = region, name: str = name) -> bool:
                return total(region.asks("/metrics", world.key).text, name) == 0

            try:
                await asyncio.to_thread(until, idle, what=f"{name} is 0")
            finally:
                if not idle():
                    text = region.asks("/metrics", world.key).text
                    print([line for line in text.splitlines() if name in line], region.process.lines[-40:])
    for region in world.regions:
        await asyncio.to_thread(region.process.close)
        assert region.process.process.returncode == 0
    ledger: Any = Redis(unix_socket_path=str(world.ledger.socket))
    assert all(ledger.ttl(name) > 0 for name in ledger.scan_iter()), "a lease that nobody holds is forgotten by itself"
    ledger.close()
    with psycopg.connect(world.store.url) as database:
        kept = set(database.execute("select session, seq from events").fetchall())
        [[used]] = database.execute("select sum(generated_tokens) from id_usage").fetchall()
    assert world.acknowledged and world.acknowledged <= kept
    print(
        f"{len(world.acknowledged)} batches acknowledged, {len(kept)} kept; {world.generated_tokens} tokens, {used} counted"
    )
    assert world.generated_tokens <= used
    assert world.fleet.ok("down").startswith("tested is down")
    assert world.fleet.processes() == []
