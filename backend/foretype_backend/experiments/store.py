"""Experiments in the identity store: their life, which gateway decides, and what each gateway sees of them.

Every administrative act goes through :meth:`ExperimentStore.create`, :meth:`~ExperimentStore.start` and :meth:`~ExperimentStore.stop`, and
so through :meth:`~ExperimentStore._act`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import msgspec
from foretype_context.text.pasted import shell_line
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foretype_backend.errors import EntryError, VariantError
from foretype_backend.experiments.experiment import Experiment, Spec, State, decode_spec, overlapping
from foretype_backend.identity.audit_chain import Act
from foretype_backend.identity.schema import experiment_gateways, experiments, leases, tenants
from foretype_backend.identity.store import IdentityStore, need_tenant

_LEASE: Final = "experiments"
_T = experiments.c


class Seen(NamedTuple):
    """What one gateway sees of an experiment: clients that follow it, those left out, and why it cannot be applied there.

    Attributes:
        missing: knobs that left-out clients do not know, each with how many.
        since_ms: since when clients are connected of which none follows; 0 where that is not so.
    """

    gateway: str
    seen_ms: int
    followed: int = 0
    left_out: int = 0
    missing: dict[str, int] = {}
    error: str = ""
    since_ms: int = 0


class ExperimentStore:
    """Over an open identity store. Every method raises StoreError alone; EntryError where what is asked cannot be."""

    def __init__(self, store: IdentityStore) -> None:
        self._store = store

    async def create(self, experiment: Experiment, now_ms: int) -> Experiment:
        """Keep a draft."""
        async with self._act("create", experiment) as connection:
            if await _row(connection, experiment.name) is not None:
                raise EntryError(f"experiment {experiment.name!r} exists already; give another name")
            if experiment.tenant:
                await need_tenant(connection, experiment.tenant)
            kept = experiment._replace(state=State.DRAFT, version=1, created_ms=now_ms)
            await connection.execute(insert(experiments).values(**_columns(kept)))
        return kept

    async def start(self, name: str, now_ms: int, *, version: int | None = None) -> Experiment:
        """Begin, unless another one runs on some of the same people."""
        found = await self.experiment(name)
        async with self._act("start", found) as connection:
            now = await _current(connection, found, version)
            if now.state is not State.DRAFT:
                raise EntryError(
                    f"experiment {name!r} is {now.state}; only a draft can be started, so create a new one"
                )
            if now.tenant:
                await need_tenant(connection, now.tenant)
            running = [_experiment(row) for row in await connection.execute(_RUNNING)]
            other = overlapping(now, running)
            if other is not None:
                whose = other.tenant or "every tenant"
                told = f"it would overlap {other.name!r}, which runs on {whose}{other.team and f', team {other.team}'}"
                raise EntryError(
                    f"experiment {name!r} was not started: {told}; stop that one first, or take other teams"
                )
            return await _put(connection, now, state=State.RUNNING, started_ms=now_ms)

    async def stop(self, name: str, now_ms: int, *, reason: str, by: str, version: int | None = None) -> Experiment:
        """End for good; drafts too."""
        found = await self.experiment(name)
        async with self._act("stop", found, by, reason=reason) as connection:
            now = await _current(connection, found, version)
            if now.state is State.STOPPED:
                raise EntryError(f"experiment {name!r} was stopped already, by {now.by}: {now.reason}")
            return await _put(connection, now, state=State.STOPPED, stopped_ms=now_ms, reason=reason, by=by)

    async def experiment(self, name: str) -> Experiment:
        async with self._store.reading() as connection:
            row = await _row(connection, name)
        if row is None:
            raise EntryError(f"there is no experiment {name!r}; `foretype experiment status` lists them")
        return _experiment(row)

    async def experiments(self) -> list[Experiment]:
        """All, the newest first. Those that a newer version wrote are left out."""
        async with self._store.reading() as connection:
            rows = list(await connection.execute(select(experiments).order_by(_T.created_ms.desc(), _T.name)))
        return [one for row in rows if (one := readable(row)) is not None]

    async def tenants(self) -> frozenset[str]:
        """Names of those that there are."""
        async with self._store.reading() as connection:
            return frozenset((await connection.execute(select(tenants.c.name))).scalars())

    async def noted(self, name: str, findings: dict[str, Any], now_ms: int) -> None:
        """Keep what the guardrails said; nobody has to follow that."""
        async with self._store.writing() as connection:
            values = {"findings": msgspec.json.encode(findings).decode(), "looked_ms": now_ms}
            await connection.execute(update(experiments).where(_T.name == name).values(**values))

    async def findings(self, name: str) -> tuple[dict[str, Any], int]:
        """What the guardrails said last, and when (0: never)."""
        async with self._store.reading() as connection:
            row = (await connection.execute(select(_T.findings, _T.looked_ms).where(_T.name == name))).first()
        return (msgspec.json.decode(row.findings), int(row.looked_ms)) if row and row.findings else ({}, 0)

    async def lead(self, holder: str, now_ms: int, for_ms: int) -> bool:
        """Whether this gateway decides until `now_ms + for_ms`: it did already, or nobody does any more."""
        async with self._store.writing() as connection:
            mine = (leases.c.holder == holder) | (leases.c.until_ms < now_ms)
            values = {"holder": holder, "until_ms": now_ms + for_ms}
            named = leases.c.name == _LEASE
            if (await connection.execute(update(leases).where(named, mine).values(**values))).rowcount:
                return True
            if (await connection.execute(select(leases.c.name).where(named))).first() is not None:
                return False
            # Two that come here at once: the key lets one of them in, and the other tries again at its next turn.
            await connection.execute(insert(leases).values(name=_LEASE, **values))
            return True

    async def resign(self, holder: str) -> None:
        """Another gateway may decide at once."""
        async with self._store.writing() as connection:
            await connection.execute(delete(leases).where(leases.c.name == _LEASE, leases.c.holder == holder))

    async def leader(self, now_ms: int) -> str:
        """Who decides now; "" where nobody does."""
        query = select(leases.c.holder).where(leases.c.name == _LEASE, leases.c.until_ms >= now_ms)
        async with self._store.reading() as connection:
            return (await connection.execute(query)).scalar() or ""

    async def saw(self, name: str, seen: Seen) -> None:
        """Write what one gateway sees."""
        table = experiment_gateways
        where = (table.c.experiment == name, table.c.gateway == seen.gateway)
        values = {
            "seen_ms": seen.seen_ms,
            "followed": seen.followed,
            "left_out": seen.left_out,
            "missing": msgspec.json.encode(seen.missing).decode(),
            "error": seen.error,
            "since_ms": seen.since_ms,
        }
        async with self._store.writing() as connection:
            if not (await connection.execute(update(table).where(*where).values(**values))).rowcount:
                await connection.execute(insert(table).values(experiment=name, gateway=seen.gateway, **values))

    async def seen(self, name: str) -> list[Seen]:
        """By every gateway that ever had it, the last word of each."""
        table = experiment_gateways
        async with self._store.reading() as connection:
            rows = await connection.execute(select(table).where(table.c.experiment == name).order_by(table.c.gateway))
            return [
                Seen(r.gateway, r.seen_ms, r.followed, r.left_out, msgspec.json.decode(r.missing), r.error, r.since_ms)
                for r in rows
            ]

    @asynccontextmanager
    async def _act(
        self, action: str, experiment: Experiment, actor: str = "", **details: str | bool
    ) -> AsyncGenerator[AsyncConnection]:
        """One administrative act: the version moves, so that every gateway follows, and the audit log tells of it."""
        act = Act(f"experiment.{action}", experiment.name, experiment.tenant, details, actor)
        async with self._store.changing(act) as connection:
            yield connection


_RUNNING: Final = select(experiments).where(_T.state == State.RUNNING.value)


async def _row(connection: AsyncConnection, name: str) -> Any:
    return (await connection.execute(select(experiments).where(_T.name == name))).first()


async def _current(connection: AsyncConnection, seen: Experiment, version: int | None) -> Experiment:
    """As it is within this change. Raises EntryError where somebody else has changed it since."""
    row = await _row(connection, seen.name)
    now = None if row is None else _experiment(row)
    wanted = seen.version if version is None else version
    if now is None or now.version != wanted:
        is_now = "gone" if now is None else f"at version {now.version}, {now.state}{now.by and f' by {now.by}'}"
        told = f"was changed by somebody else: you saw version {wanted}, it is {is_now}"
        raise EntryError(
            f"experiment {seen.name!r} {told}; look at `{shell_line('foretype', 'experiment', 'status', seen.name)}` first"
        )
    return now


async def _put(connection: AsyncConnection, old: Experiment, **changes: Any) -> Experiment:
    new = old._replace(version=old.version + 1, **changes)
    await connection.execute(update(experiments).where(_T.name == old.name).values(**_columns(new)))
    return new


def _columns(one: Experiment) -> dict[str, Any]:
    return one._asdict() | {"spec": msgspec.json.encode(one.spec).decode(), "state": one.state.value}


def _experiment(row: Any) -> Experiment:
    try:
        spec: Spec = decode_spec(row.spec)
    except VariantError as error:
        told = "a newer Foretype wrote it, or somebody changed the store"
        raise EntryError(f"experiment {row.name!r} cannot be read here ({error}); {told}") from error
    return Experiment(
        row.name,
        row.tenant,
        row.team,
        spec,
        State(row.state),
        row.version,
        row.created_ms,
        row.started_ms,
        row.stopped_ms,
        row.reason,
        row.by,
    )


def readable(row: Any) -> Experiment | None:
    """A row, unless a newer version wrote what this one cannot read."""
    try:
        return _experiment(row)
    except EntryError:
        return None
