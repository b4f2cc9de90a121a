"""`kill -9` under load, at random moments: of a worker, of the engine, of Redis, of PostgreSQL.

Three times each; `FORETYPE_SOAK_ROUNDS` for more, as `make soak` asks. Every time: what was answered stays answered, no slot and no
reservation is left, all is as before by itself, and the metrics tell that something was.
"""

import asyncio
import functools
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from backend.identity_world import NOW_MS, added_key, identity_of, salts
from backend.loads import Load, done, load, loaded
from backend.scrape import total
from backend.test_gateway_process import serving
from backend.test_workers import BODY, children, fresh
from backend.tiny_gguf import write_tiny_gguf
from backend.world import gateway, until
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Denial, Principal
from foretype_backend.identity.keys import ApiKey
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.usage import UsageWriter

from backend import postgres_server

ROUNDS = int(os.environ.get("FORETYPE_SOAK_ROUNDS", "3"))
CHANCE = random.Random(int(os.environ.get("FORETYPE_SOAK_SEED", "1")))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(120 + 20 * ROUNDS)]


def answered(status: int) -> bool:
    return status == 200


def asking(url: str) -> Callable[[Load[int], int], Awaitable[None]]:
    """A client that asks one completion after the other, on a connection that it keeps; 0 is a connection that broke.

    It thinks for a moment in between: what is killed needs a processor to come back.
    """

    async def developer(told: Load[int], number: int) -> None:
        async with httpx.AsyncClient(verify=False, trust_env=False, base_url=url, timeout=60) as http:
            while True:
                await asyncio.sleep(0.02)
                try:
                    told.ended((await http.post("/v1/completions", json=BODY)).status_code)
                except httpx.TransportError:
                    told.ended(0)

    return developer


async def a_moment() -> None:
    await asyncio.sleep(CHANCE.random() * 0.1)


async def scraped(url: str, name: str, **labels: str) -> float:
    return total((await fresh(url, "/metrics")).text, name, **labels)


async def reaches(url: str, name: str, value: float) -> None:
    async with asyncio.timeout(60):
        while await scraped(url, name) != value:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)


async def test_a_killed_worker_costs_only_what_it_had_begun() -> None:
    async with serving("--port", "0", "--workers", "2") as (process, url), load(asking(url)) as clients:
        await clients.more(good=answered)
        counted = 0.0
        for _ in range(ROUNDS):
            await a_moment()
            before = clients.ends.count(0)
            workers = children(process.pid).read_text().split()
            os.kill(int(CHANCE.choice(workers)), signal.SIGKILL)
            await clients.more(20, good=answered)
            assert clients.ends.count(0) - before <= 4, "one of each client, at most"
            await reaches(url, "foretype_workers", 2)
            now = await scraped(url, "foretype_requests_total")
            assert now > counted, "counters of the dead are not taken back"
            counted = now
        assert set(clients.ends) <= {0, 200}


@pytest.mark.engine
async def test_a_killed_engine_costs_only_what_it_had_begun(tmp_path: Path) -> None:
    """The embedded one: a process of its own, which the gateway starts again."""
    controls = ["endoftext", "fim_prefix", "fim_suffix", "fim_middle", "fim_pad", "repo_name", "file_sep"]
    controls = [f"<|{name}|>" for name in controls]
    model = write_tiny_gguf(tmp_path / "tiny.gguf", architecture="qwen2", controls=controls)
    profile = tmp_path / "gateway.toml"
    profile.write_text("[engine.options]\nthreads = 1\nrestart_most_s = 0.1\n")
    arguments = ("--engine", "embedded", "--model", str(model), "--profile", str(profile), "--port", "0")
    async with serving(*arguments) as (process, url):
        async with load(asking(url)) as clients:
            await clients.more(good=answered)
            for number in range(1, ROUNDS + 1):
                await a_moment()
                (engine,) = (int(pid) for pid in children(process.pid).read_text().split())
                os.kill(engine, signal.SIGKILL)
                await reaches(url, "foretype_engine_restarts_total", number)
                await clients.more(10, good=answered)
            assert set(clients.ends) <= {200, 503}
        lost = await scraped(url, "foretype_requests_total", reason="engine_lost")
        assert lost >= clients.ends.count(503)
        await reaches(url, "foretype_running", 0)
        await reaches(url, "foretype_engine_running", 0)


@pytest.mark.skipif(not postgres_server.available(), reason="no PostgreSQL here: apt-get install postgresql")
async def test_a_killed_postgres_stops_no_completion_and_loses_no_usage() -> None:
    """It knows who may ask and keeps what was used; a key that is revoked afterwards is refused afterwards."""
    accounts = Accounts(lambda: "2026-09-22")
    # The system does not crash here: what was written is there without waiting for the disk.
    with postgres_server.postgres("fsync=off") as server:
        async with identity_of(server.url) as (identity, store):
            key = await added_key(store)
            await identity.watch.look()
            own = await IdentityStore.open(server.url)
            writer = UsageWriter(accounts.meter, own, gateway="g", wall_ms=lambda: NOW_MS, every_s=0.02)
            writer.start()
            headers = {"Authorization": f"Bearer {key.text}"}
            async with gateway(identity=identity, salts=salts(), accounts=accounts) as world:

                def unstored() -> float:
                    return total(world.service.metrics.render(), "foretype_usage_unstored_rows")

                def knows(somebody: ApiKey) -> bool:
                    return isinstance(identity.authenticate(somebody.text), Principal)

                async with loaded(world, additional_headers=headers) as developers:
                    for _ in range(ROUNDS):
                        await developers.more(good=done)
                        await a_moment()
                        server.kill()
                        await developers.more(20, good=done)
                        assert unstored() > 0
                        await asyncio.to_thread(server.start)
                        colleague = await added_key(store)
                        await until(functools.partial(knows, colleague))
                assert not [end for end in developers.ends if not done(end)]
                await world.idle()
                counted = world.engine.statistics()
                await until(lambda: unstored() == 0)
            await store.revoke_key(key.id, NOW_MS)
            await until(lambda: identity.authenticate(key.text) is Denial.REVOKED)
            await writer.close()
            ((_, used),) = await store.usage_of("2026-09")
            assert used.generated_tokens == counted.generated_tokens
