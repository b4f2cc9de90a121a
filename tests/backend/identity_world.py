"""Stores of tenants and keys, and a gateway that asks for them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from foretype_backend.identity.directory import KeyRecord, Tenant, User
from foretype_backend.identity.identity import Identity
from foretype_backend.identity.keys import ApiKey, mint
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.watch import DirectoryWatch
from foretype_backend.prefix.salt import SaltBook

NOW_MS = 1_790_078_400_000
_numbers = itertools.count(1)


def minted() -> ApiKey:
    """A key that no other test has."""
    return mint(lambda size: next(_numbers).to_bytes(size, "big"))


def record(key: ApiKey, tenant: str = "acme", **fields: Any) -> KeyRecord:
    return KeyRecord(id=key.id, hash=key.hash, tenant=tenant, **fields)


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
    try:
        yield identity, store
    finally:
        await identity.close()
        await store.close()


def salts() -> SaltBook:
    return SaltBook(b"s" * 32)
