"""Rights to the caches of repositories, in the identity store. A repository that was ever granted stays closed to all others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from foretype_context.text.pasted import shell_line
from sqlalchemy import ColumnElement, and_, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foretype_backend.errors import EntryError
from foretype_backend.identity.audit_chain import Act
from foretype_backend.identity.schema import SCOPE_MAX_CHARS, rights, teams
from foretype_backend.identity.store import IdentityStore, need_tenant

CLOSED = ""
"""Stands for no team: a row of it says only that the repository has rights."""


async def grant(store: IdentityStore, tenant: str, repository: str, team: str) -> None:
    """Let a team share the cache of a repository; from the first one on nobody else does. Raises StoreError."""
    _check(repository)
    async with _changing(store, "rights.grant", tenant, repository, team) as connection:
        known = select(teams).where(teams.c.tenant == tenant, teams.c.name == team)
        if (await connection.execute(known)).first() is None:
            remedy = f"add it with `{shell_line('foretype', 'tenants', 'add-team', tenant, team)}`"
            raise EntryError(f"{tenant!r} has no team {team!r}; {remedy}")
        for name in (CLOSED, team):
            there = select(rights).where(_is(tenant, repository), rights.c.team == name)
            if (await connection.execute(there)).first() is None:
                await connection.execute(insert(rights).values(tenant=tenant, repository=repository, team=name))


async def revoke(store: IdentityStore, tenant: str, repository: str, team: str) -> None:
    """End a team's right. With the last one the repository is shared by nobody. Raises StoreError."""
    async with _changing(store, "rights.revoke", tenant, repository, team) as connection:
        gone = await connection.execute(delete(rights).where(_is(tenant, repository), rights.c.team == team))
        if not gone.rowcount:
            raise EntryError(f"team {team!r} of {tenant!r} has no right to {repository!r}; see `foretype rights list`")


async def open_to_all(store: IdentityStore, tenant: str, repository: str) -> None:
    """Take all rights away: the whole tenant shares the repository again. Raises StoreError."""
    async with _changing(store, "rights.open", tenant, repository, "") as connection:
        if not (await connection.execute(delete(rights).where(_is(tenant, repository)))).rowcount:
            raise EntryError(f"{repository!r} of {tenant!r} has no rights; see `foretype rights list`")


@asynccontextmanager
async def _changing(
    store: IdentityStore, action: str, tenant: str, repository: str, team: str
) -> AsyncGenerator[AsyncConnection]:
    async with store.changing(Act(action, repository, tenant, {"team": team} if team else {})) as connection:
        await need_tenant(connection, tenant)
        yield connection


def _check(repository: str) -> None:
    if not 1 <= len(repository) <= SCOPE_MAX_CHARS:
        raise EntryError(
            f"REPOSITORY: 1 to {SCOPE_MAX_CHARS} characters, or a folder of it; `foretype prefix show` prints ids"
        )


def _is(tenant: str, repository: str) -> ColumnElement[bool]:
    return and_(rights.c.tenant == tenant, rights.c.repository == repository)
