"""The audit log in the identity store: what is done is written in the same transaction, or before, or is not done."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foretype_backend.config.config import Config
from foretype_backend.config.secret_files import SALT_FIELD, read_secret
from foretype_backend.config.state_files import audit_key_path
from foretype_backend.errors import StoreError
from foretype_backend.identity.audit_chain import BEGINNING, Act, AuditKey, ChainCheck, ChainVerdict, Entry, entry_of
from foretype_backend.identity.schema import audit, state

if TYPE_CHECKING:
    from foretype_backend.identity.store import IdentityStore

_COUNT: Final = "audit"
ENTRIES_AT_ONCE: Final = 1000


def local_actor() -> str:
    """Who runs this process, as the system says; nobody vouches for it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in a container
        user = "?"
    return f"{user}@{socket.gethostname()}"


class AuditLog:
    """Writes entries for one process.

    Args:
        key: seals them; without one they are chained alone.
        actor: who acts where an act does not say.
        wall_ms: Unix milliseconds.
    """

    def __init__(
        self,
        key: AuditKey | None = None,
        *,
        actor: str | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.key = key
        self._actor = local_actor() if actor is None else actor
        self._wall_ms = wall_ms

    async def write(self, connection: AsyncConnection, act: Act) -> Entry:
        """Append an entry in the caller's transaction: both are kept, or neither.

        The way of every administrative act. `IdentityStore.changing(act)` does it for changes of tenants, users and keys. For a change of your
        own tables, call it first in the transaction of :meth:`.store.IdentityStore.writing`::

            async with store.writing() as connection:
                await store.audit.write(connection, Act("experiment.start", name, tenant, {"seed": 7}, actor=principal.credential))
                await connection.execute(...)

        What is done outside of the identity store (a file, another store) is written with :meth:`.store.IdentityStore.note` before it
        is done. The count's row is locked until the transaction ends, which puts all gateways' entries in one order: keep it
        short, and move the version (`changing`) before and never after.

        Raises:
            StoreError: nothing can be written. Let it end the transaction.
        """
        counted = update(state).where(state.c.name == _COUNT).values(value=state.c.value + 1)
        if not (await connection.execute(counted)).rowcount:
            raise StoreError("the count of the audit log is gone; `foretype audit verify` says what else is")
        last = select(audit.c.number, audit.c.digest).order_by(audit.c.number.desc()).limit(1)
        head = (await connection.execute(last)).first()
        number, before = (1, BEGINNING) if head is None else (head.number + 1, head.digest)
        entry = entry_of(
            act if act.actor else act._replace(actor=self._actor),
            number=number,
            at_ms=self._wall_ms(),
            before=before,
            key=self.key,
        )
        await connection.execute(
            insert(audit).values(**{name: getattr(entry, name) for name in entry.__struct_fields__})
        )
        return entry


def open_log(config: Config, url: str, actor: str | None = None) -> AuditLog:
    """The log of a store, sealed with the deployment's secret, or with one of this machine, made on first use.

    Args:
        url: of the store.
        actor: of acts that name none; by default who runs this process.

    Raises:
        ConfigError: the secret cannot be read or made. What cannot be sealed is not done.
    """
    secret = read_secret(SALT_FIELD, config.identity.salt_file, audit_key_path(config, url))
    return AuditLog(AuditKey(secret), actor=actor)


async def audit_count(connection: AsyncConnection) -> int:
    """How many entries were written, whatever is there."""
    return (await connection.execute(select(state.c.value).where(state.c.name == _COUNT))).scalar() or 0


async def audit_entries(
    connection: AsyncConnection, after: int = 0, *, at_once: int = ENTRIES_AT_ONCE
) -> AsyncGenerator[Entry]:
    """All entries beyond a number, in order; of a log of any length few are in memory."""
    while True:
        query = select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(at_once)
        rows = (await connection.execute(query)).mappings().all()
        for row in rows:
            yield Entry(**row)
        if len(rows) < at_once:
            return
        after = rows[-1]["number"]


async def newest_entries(connection: AsyncConnection, last: int, tenant: str | None = None) -> list[Entry]:
    """The last entries, of one tenant or of all, oldest first."""
    query = select(audit).order_by(audit.c.number.desc()).limit(last)
    rows = await connection.execute(query if tenant is None else query.where(audit.c.tenant == tenant))
    return [Entry(**row) for row in rows.mappings()][::-1]


async def check_store(store: IdentityStore, check: ChainCheck) -> ChainVerdict:
    """What a check finds of a store's log; an entry that the database cannot read is found as well. Raises StoreError."""
    count: int | None = None

    async def follow(at_once: int) -> None:
        nonlocal count
        async with store.reading() as connection:  # count and entries of one moment: others write on
            count = await audit_count(connection)
            async for entry in audit_entries(connection, check.number, at_once=at_once):
                check.take(entry)

    try:
        await follow(ENTRIES_AT_ONCE)
    except StoreError:
        if count is None:
            raise
        try:
            await follow(1)
        except StoreError as error:
            check.broken(f"it cannot be read: {error}")
    return check.verdict(count)
