"""Stores of tenants and keys, and a gateway that asks for them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from backend.redis_server import patient_ledger
from backend.world import World, closing, gateway
from foretype_backend.admission.leases import Leases
from foretype_backend.admission.limits import Budget
from foretype_backend.admission.redis_leases import RedisLeases
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import KeyRecord, Tenant, User
from foretype_backend.identity.identity import Identity
from foretype_backend.identity.keys import ApiKey, mint
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.store_watch import DirectoryWatch
from foretype_backend.prefix.salt import SaltBook

NOW_MS = 1_790_078_400_000
_numbers = itertools.count(1)


def minted() -> ApiKey:
    """A key that no other test has."""
    return mint(lambda size: next(_numbers).to_bytes(size, "big"))


def record(key: ApiKey, tenant: str = "acme", **fields: Any) -> KeyRecord:
    return KeyRecord(id=key.id, hash=key.hash, tenant=tenant, **fields)


async def added_key(store: IdentityStore, tenant: str = "acme", **fields: Any) -> ApiKey:
    """A key that no other test has, with this record in the store."""
    key = minted()
    await store.add_key(key, record(key, tenant, **fields), NOW_MS)
    return key


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@contextlib.asynccontextmanager
async def identity_of(
    url: str | Path, *, clock: Callable[[], int] | None = None, poll_s: float = 0.02, **parts: Any
) -> AsyncGenerator[tuple[Identity, IdentityStore]]:
    """A started identity on a store with tenant `acme`, and the store for changes."""
    store = await IdentityStore.open(str(url))
    if "acme" not in (await store.snapshot()).tenants:
        await store.add_tenant(Tenant(name="acme"), NOW_MS)
        await store.put_user(User(tenant="acme", name="ann"))
    own = await IdentityStore.open(str(url))
    identity = Identity(
        DirectoryWatch(own, poll_s=poll_s, clock=lambda: 0.0, recheck_s=0.02),
        wall_ms=clock or (lambda: NOW_MS),
        **parts,
    )
    await identity.start()
    async with closing(identity, store):
        yield identity, store


def salts() -> SaltBook:
    return SaltBook(b"s" * 32)


@contextlib.asynccontextmanager
async def leased_gateway(
    folder: Path, redis_url: str, *, slice_s: float
) -> AsyncGenerator[tuple[World, dict[str, str]]]:
    """A gateway whose one tenant's budget is leased from this Redis, and headers of its key. At the end nothing is reserved."""
    accounts = Accounts(lambda: "2026-09-22")
    with patient_ledger():
        async with identity_of(folder / "i.db") as (identity, store):
            key = await added_key(store)
            await store.set_tenant(Tenant(name="acme", budgets={"tenant": Budget(tokens_per_s=1e6, burst_tokens=1e6)}))
            await identity.watch.look()
            clock = asyncio.get_running_loop().time
            leases = Leases(accounts.quotas.budgets, slice_s=slice_s, now=clock())
            shared = RedisLeases(redis_url, leases, slice_s=slice_s, clock=clock)
            async with closing(shared), gateway(identity=identity, salts=salts(), accounts=accounts) as world:
                world.service.metrics.watch_leases(shared.away_s)
                assert await shared.renew()
                accounts.spend_from(shared)
                shared.start()
                yield world, {"Authorization": f"Bearer {key.text}"}
                await world.idle()
            (statistics,) = accounts.quotas.budgets.statistics(clock()).values()
            assert statistics.reserved == 0
