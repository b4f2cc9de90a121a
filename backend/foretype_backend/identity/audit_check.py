"""What is wrong with the audit log of a store, if anything."""

from __future__ import annotations

from foretype_backend.errors import StoreError
from foretype_backend.identity.audit import ENTRIES_AT_ONCE, audit_count, audit_entries
from foretype_backend.identity.audit_chain import ChainCheck, ChainVerdict
from foretype_backend.identity.store import IdentityStore


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
