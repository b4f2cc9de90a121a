"""A gateway with tenants, a month of simulated events, and a key of an administrator, for the pages at `/admin`."""

import asyncio
import contextlib
import secrets
from pathlib import Path

from backend.simulated_month import write_month
from e2e.lsp_support import gateway
from foretype_backend.identity.directory import KeyRecord, Scope, Tenant, User
from foretype_backend.identity.keys import mint
from foretype_backend.identity.store import IdentityStore
from foretype_backend.reports.period import month

MONTH = "2026-09"
WEEK = "2026-W38"


@contextlib.contextmanager
def served(folder: Path, *, developers=60, suggestions=1):
    """The gateway's address, and the key."""
    asyncio.run(
        write_month(str(folder / "events.db"), month(MONTH), developers=developers, suggestions=suggestions, seed=1)
    )
    key = asyncio.run(_identities(folder / "identity.db"))
    more = f'[telemetry]\nurl = "{folder / "events.db"}"\n[identity]\nurl = "{folder / "identity.db"}"\n'
    with gateway(folder, more=more, options=("--state-dir", folder / "state")) as running:
        yield f"http://127.0.0.1:{running.port}", key


async def _identities(path):
    store = await IdentityStore.open(str(path))
    key = mint(secrets.token_bytes)
    await store.add_tenant(Tenant(name="default"), 0)
    await store.put_user(User(tenant="default", name="ann"))
    record = KeyRecord(id=key.id, hash=key.hash, tenant="default", user="ann", scopes=frozenset({Scope.ADMIN}))
    await store.add_key(key, record, 1_790_000_000_000)
    await store.close()
    return key.text
