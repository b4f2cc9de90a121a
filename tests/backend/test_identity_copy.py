"""One identity store, and its copy for reading in another region: while the store is away, who may ask is read there."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from backend.identity_world import NOW_MS, minted, record
from backend.postgres_server import Postgres, available, postgres
from backend.test_gateway_process import serving
from backend.world import closing, until
from foretype_backend.identity.directory import Denial, Tenant
from foretype_backend.identity.keys import ApiKey
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.store_watch import DirectoryWatch

pytestmark = [
    pytest.mark.skipif(not available(), reason="no PostgreSQL here: apt-get install postgresql"),
    pytest.mark.slow,
]


class Team:
    """A store, its copy, and one key."""

    def __init__(self, store: Postgres, copy: Postgres) -> None:
        self.store, self.copy = store, copy
        self.key = minted()

    async def adds(self, key: ApiKey) -> None:
        store = await IdentityStore.open(self.store.url)
        await store.add_key(key, record(key), NOW_MS)
        await store.close()

    async def revokes(self, key: ApiKey) -> None:
        store = await IdentityStore.open(self.store.url)
        await store.revoke_key(key.id, NOW_MS)
        await store.close()

    async def followed(self, key: ApiKey, *, revoked: bool = False) -> None:
        """The copy has it."""

        def has() -> bool:
            with contextlib.suppress(psycopg.errors.UndefinedTable), psycopg.connect(self.copy.url) as copy:
                found = copy.execute("select revoked_ms is not null from id_keys where id = %s", (key.id,)).fetchone()
                return found == (revoked,)
            return False

        async with asyncio.timeout(60):
            while not await asyncio.to_thread(has):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def servers() -> Iterator[Team]:
    async def make(team: Team) -> None:
        store = await IdentityStore.open(team.store.url)
        await store.add_tenant(Tenant(name="acme"), NOW_MS)
        await store.close()

    # The system does not crash here: what was written is there without waiting for the disk.
    with postgres("fsync=off") as store, postgres("fsync=off", of=store) as copy:
        team = Team(store, copy)
        asyncio.run(make(team))
        yield team


@pytest.fixture
async def team(servers: Team) -> Team:
    servers.key = minted()
    await servers.adds(servers.key)
    await servers.followed(servers.key)
    return servers


@contextlib.asynccontextmanager
async def watching(url: str, read_url: str) -> AsyncGenerator[DirectoryWatch]:
    watch = DirectoryWatch(
        await IdentityStore.open(url, read_url=read_url), poll_s=0.02, clock=asyncio.get_running_loop().time
    )
    await watch.start()
    async with closing(watch):
        yield watch


def refused(watch: DirectoryWatch, key: ApiKey) -> bool:
    return watch.directory.of_key(key, NOW_MS) is Denial.REVOKED


@contextlib.asynccontextmanager
async def road(server: Postgres, folder: Path) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """Another address of a server, at which nobody answers any more once the event is set."""
    name = ".s.PGSQL.5432"
    there = Path(server.url.partition("host=")[2]) / name
    cut, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65_536):
                    writer.write(data)
        finally:
            writer.transport.abort()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(str(there))
        tasks.update({asyncio.create_task(pour(reader, far_writer)), asyncio.create_task(pour(far_reader, writer))})

    async def ends() -> None:
        await cut.wait()
        open_.close()
        (folder / name).unlink()
        for task in tasks:
            task.cancel()

    open_ = await asyncio.start_unix_server(carry, folder / name)
    ending = asyncio.create_task(ends())
    try:
        yield f"postgresql://foretype@/foretype?host={folder}", cut
    finally:
        cut.set()
        await ending
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_keys_are_accepted_and_a_gateway_starts_while_the_store_is_away(
    team: Team, started_again: Callable[[Callable[[], None]], None], tmp_path: Path
) -> None:
    profile = tmp_path / "team.toml"
    profile.write_text(f'[identity]\nurl = "{team.store.url}"\nread_url = "{team.copy.url}"\npoll_ms = 50\n')
    arguments = ("--profile", str(profile), "--no-telemetry", "--port", "0", "--state-dir")

    async def answers(url: str, key: ApiKey) -> int:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            headers = {"Authorization": f"Bearer {key.text}"}
            body = {"prompt": "x = ", "max_tokens": 2}
            return (await http.post(f"{url}/v1/completions", json=body, headers=headers)).status_code

    async with serving(*arguments, str(tmp_path / "one")) as (_, one):
        assert await answers(one, team.key) == 200
        team.store.kill()
        assert await answers(one, team.key) == 200
        async with serving(*arguments, str(tmp_path / "two")) as (_, two):
            assert await answers(two, team.key) == 200
            assert await answers(two, minted()) == 401
            await asyncio.to_thread(started_again, team.store.start)
            colleague = minted()
            await team.adds(colleague)
            async with asyncio.timeout(60):
                for url in (one, two):
                    while await answers(url, colleague) != 200:  # noqa: ASYNC110 - of another process
                        await asyncio.sleep(0.05)


async def test_what_is_revoked_is_heard_from_the_copy_where_the_store_cannot_be_reached(
    team: Team, tmp_path: Path
) -> None:
    async with road(team.store, tmp_path) as (url, cut), watching(url, team.copy.url) as watch:
        assert not watch.from_copy
        cut.set()
        await until(lambda: watch.from_copy)
        assert not refused(watch, team.key)
        await team.revokes(team.key)
        await until(functools.partial(refused, watch, team.key))
        assert watch.age_s > 0, "how long the store itself has been away is told"
        age_s = watch.age_s
        await until(lambda: watch.age_s > age_s + 0.1)


async def test_a_copy_that_is_behind_gives_no_key_back(
    team: Team, started_again: Callable[[Callable[[], None]], None]
) -> None:
    with psycopg.connect(team.copy.url, autocommit=True) as copy:
        copy.execute("select pg_wal_replay_pause()")
        try:
            async with watching(team.store.url, team.copy.url) as watch:
                await team.revokes(team.key)
                await until(functools.partial(refused, watch, team.key))
                team.store.kill()
                await until(lambda: watch.from_copy)
                with contextlib.suppress(Exception):
                    await watch.look()
                assert refused(watch, team.key)
        finally:
            copy.execute("select pg_wal_replay_resume()")
            await asyncio.to_thread(started_again, team.store.start)
    await team.followed(team.key, revoked=True)
