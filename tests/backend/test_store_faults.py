"""Stores that fail under load: no completion waits for them, nothing of what was used is lost, the metrics tell of it."""

import asyncio
import contextlib
import gc
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import redis
from backend.identity_world import NOW_MS, added_key, identity_of, leased_gateway, salts
from backend.loads import done, loaded
from backend.redis_server import redis_server
from backend.scrape import total
from backend.world import closing, gateway, until
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.schema import tenants
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.usage import UsageWriter
from leftovers import Held
from sqlalchemy import text


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid():
        pytest.skip("a small disk needs root, to mount it")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_stops_no_completion_and_loses_no_usage(small_disk: Path) -> None:
    accounts = Accounts(lambda: "2026-09-22")
    async with identity_of(small_disk / "i.db") as (identity, store):
        key = await added_key(store)
        await identity.watch.look()
        own = await IdentityStore.open(str(small_disk / "i.db"))
        writer = UsageWriter(accounts.meter, own, gateway="g", wall_ms=lambda: NOW_MS, every_s=0.01)
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        writer.start()
        headers = {"Authorization": f"Bearer {key.text}"}
        async with gateway(identity=identity, salts=salts(), accounts=accounts) as world:

            def unstored() -> float:
                return total(world.service.metrics.render(), "foretype_usage_unstored_rows")

            async with loaded(world, additional_headers=headers) as developers:
                await developers.more(60, good=done)
                assert not await writer.flush()
                assert unstored() > 0
                (small_disk / "filler").unlink()
                await developers.more(20, good=done)
            await world.idle()
            assert all(done(end) for end in developers.ends)
            await until(lambda: unstored() == 0)
            counted = world.engine.statistics()
        await writer.close()
        ((_, used),) = await store.usage_of("2026-09")
        assert used.generated_tokens == counted.generated_tokens


async def test_a_store_that_one_process_opens_twice_stays_whole_beside_another_process(tmp_path: Path) -> None:
    """A gateway opens its identity store twice. Whoever else closes the file last would take its log of changes away."""
    path = tmp_path / "i.db"
    one = await IdentityStore.open(str(path))
    two = await IdentityStore.open(str(path))
    await one.add_tenant(Tenant(name="acme"), NOW_MS)
    rest = ", ".join(column.name for column in tenants.columns if column.name != "name")
    add = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute(sys.argv[2]); c.close()"
    )
    async with closing(one, two):
        for number in range(3):
            row = f"INSERT INTO id_tenants SELECT 'other-{number}', {rest} FROM id_tenants WHERE name = 'acme'"
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", add, str(path), row], check=True)
            await one.add_tenant(Tenant(name=f"own-{number}"), NOW_MS)
            wanted = {f"{who}-{at}" for who in ("own", "other") for at in range(number + 1)}
            wanted.add("acme")
            assert set((await one.snapshot()).tenants) == set((await two.snapshot()).tenants) == wanted


async def test_stores_that_one_process_makes_at_once_are_both_made(tmp_path: Path) -> None:
    """Alembic's operations are a module's globals: a migration that waits must not go on with another one's connection."""
    opened = await asyncio.gather(
        *(IdentityStore.open(str(tmp_path / f"{number % 3}.db")) for number in range(6)), return_exceptions=True
    )
    for number, store in enumerate(opened):
        assert isinstance(store, IdentityStore), store
        await store.add_tenant(Tenant(name=f"by-{number}"), NOW_MS)
        await store.close()
    for number in range(3):
        store = await IdentityStore.open(str(tmp_path / f"{number}.db"))
        assert set((await store.snapshot()).tenants) == {f"by-{number}", f"by-{number + 3}"}
        await store.close()


async def test_a_statement_that_was_cancelled_keeps_the_store_locked_for_nobody_and_no_file_open(
    tmp_path: Path,
) -> None:
    before = Held.now()
    store = await IdentityStore.open(str(tmp_path / "i.db"))
    running, go_on = threading.Event(), threading.Event()

    def hold() -> int:
        running.set()
        go_on.wait(60)
        return 1

    async def ask() -> None:
        async with store.reading() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.create_function("hold", 0, hold)
            await connection.execute(text("SELECT hold() UNION ALL SELECT 2"))

    gc.disable()  # what ends with a collection ends nobody knows when
    try:
        asked = asyncio.create_task(ask())
        await asyncio.to_thread(running.wait, 60)
        asked.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await asked
        with contextlib.closing(sqlite3.connect(tmp_path / "i.db", timeout=5)) as other:
            other.execute("BEGIN IMMEDIATE")
        await store.close()
        assert not [target for _, target in (Held.now() - before).descriptors if "i.db" in target]
        assert cancelled.tb, "its stack is kept, and the statement with it"
    finally:
        gc.enable()
        go_on.set()
        await store.close()


async def test_a_redis_that_evicts_forgets_budgets_and_refuses_nobody(tmp_path: Path) -> None:
    with redis_server("--maxmemory", "2mb", "--maxmemory-policy", "allkeys-random") as server:
        ledger = redis.Redis(unix_socket_path=str(server.socket))
        async with leased_gateway(tmp_path, server.url, slice_s=0.1) as (world, headers):
            async with loaded(world, additional_headers=headers) as developers:
                for at in range(20):
                    for number in range(40):
                        ledger.set(f"somebody/{at}/{number}", b"x" * 4096)
                    await developers.more(5)
            assert ledger.info("stats")["evicted_keys"] > 0  # pyright: ignore[reportUnknownMemberType]
            assert not [end for end in developers.ends if not done(end)]
            assert total(world.service.metrics.render(), "foretype_leases_away_seconds") == 0
        ledger.close()
