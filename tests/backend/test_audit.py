"""The audit log: what is done is in it, and whatever is changed of it is found."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from backend.commands import run
from backend.identity_world import NOW_MS
from foretype_backend.errors import EntryError, StoreError
from foretype_backend.identity.audit import AuditLog, audit_entries, check_store
from foretype_backend.identity.audit_chain import (
    BEGINNING,
    Act,
    AuditKey,
    ChainCheck,
    ChainVerdict,
    Entry,
    NotedHead,
    entry_of,
)
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.schema import metadata
from foretype_backend.identity.store import IdentityStore
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncConnection

KEY = AuditKey(b"k" * 32)
FORGED = AuditKey(b"f" * 32)
ACTS = tuple(Act("key.create", f"id-{at}", "acme", {"user": "ann", "at": at}, actor="ops@host") for at in range(6))


def chained(acts: Sequence[Act], key: AuditKey | None = KEY) -> list[Entry]:
    made: list[Entry] = []
    for at, act in enumerate(acts):
        before = made[-1].digest if made else BEGINNING
        made.append(entry_of(act, number=at + 1, at_ms=NOW_MS + at, before=before, key=key))
    return made


def found(
    entries: Iterable[Entry], *keys: AuditKey, count: int | None = None, anchor: NotedHead | None = None
) -> ChainVerdict:
    check = ChainCheck(keys, anchor)
    for entry in entries:
        check.take(entry)
    return check.verdict(count)


LOG = chained(ACTS)


def test_a_log_as_it_was_written_is_whole() -> None:
    assert found(LOG, KEY, count=6) == ChainVerdict(6, None, "", NotedHead(6, LOG[-1].digest), True)
    assert found(LOG) == ChainVerdict(6, None, "", NotedHead(6, LOG[-1].digest), False)
    assert found([]) == ChainVerdict(0, None, "", NotedHead(0, BEGINNING), False)


@given(
    st.integers(0, len(LOG) - 1),
    st.sampled_from(Entry.__struct_fields__),
    st.integers(0),
    st.sampled_from([chr(c) for c in range(33, 127)]),
)
def test_one_changed_byte_is_found_at_its_entry(at: int, field: str, where: int, other: str) -> None:
    value = getattr(LOG[at], field)
    if isinstance(value, int):
        changed: Any = value ^ (1 << where % 40)
    else:
        where %= len(value)
        changed = value[:where] + (other if value[where] != other else "~" * (other != "~") or "!") + value[where + 1 :]
    assert changed != value
    altered = [*LOG[:at], msgspec.structs.replace(LOG[at], **{field: changed}), *LOG[at + 1 :]]
    assert found(altered, KEY).broken_at == at + 1
    if field != "seal":  # seals are checked by who has the key
        assert found(altered).broken_at == at + 1


@given(st.integers(0, len(LOG) - 1), st.integers(0, len(LOG) - 1))
def test_a_row_that_is_gone_and_a_pair_that_is_swapped_are_found(one: int, two: int) -> None:
    without = [*LOG[:one], *LOG[one + 1 :]]
    # A log that was cut at its end is a shorter log: what finds it is the count, or a head that was noted elsewhere.
    for verdict in (found(without, KEY, count=6), found(without, KEY, anchor=NotedHead(6, LOG[-1].digest))):
        assert verdict.broken_at == one + 1
    if one != two:
        swapped = list(LOG)
        swapped[one], swapped[two] = LOG[two], LOG[one]
        assert found(swapped, KEY).broken_at == min(one, two) + 1
        numbers = [msgspec.structs.replace(entry, number=at + 1) for at, entry in enumerate(swapped)]
        assert found(numbers, KEY).broken_at == min(one, two) + 1


def test_who_chains_a_log_again_without_the_key_is_found_and_by_a_noted_head_with_it() -> None:
    acts = [*ACTS[:3], ACTS[3]._replace(subject="another"), *ACTS[4:]]
    for key in (None, FORGED):
        forged = chained(acts, key)
        assert found(forged, KEY, count=6).broken_at == 1
        assert found(forged, count=6).broken_at is None  # the chain alone does not tell
        mixed = [*LOG[:3]]
        for at in range(3, 6):
            mixed.append(entry_of(acts[at], number=at + 1, at_ms=0, before=mixed[-1].digest, key=key))
        assert found(mixed, KEY, count=6).broken_at == 4
        named = [msgspec.structs.replace(entry, key=KEY.id) for entry in forged]
        assert found(named, KEY, count=6).broken_at == 1
    again = chained(acts)  # by who has the key
    assert found(again, KEY, count=6).broken_at is None
    assert found(again, KEY, count=6, anchor=NotedHead(6, LOG[-1].digest)).broken_at == 6
    assert found(again, KEY, FORGED, count=6, anchor=NotedHead(2, LOG[1].digest)).broken_at is None


def test_an_entry_takes_any_text() -> None:
    (entry,) = chained([Act("x", "a\0b\ud800", details={"n\N{SNOWMAN}": "\ud800"})])
    assert (entry.subject, json.loads(entry.details)) == ("a\N{SYMBOL FOR NULL}b?", {"n\N{SNOWMAN}": "?"})
    assert found([entry], KEY).broken_at is None


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "i.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def store(url: str) -> AsyncGenerator[IdentityStore]:
    opened = await IdentityStore.open(url, audit=AuditLog(KEY, actor="test"))
    yield opened
    async with opened.engine.begin() as connection:
        for name in (*metadata.tables, "id_alembic_version"):
            await connection.exec_driver_sql(f"DROP TABLE {name}")
    await opened.close()


async def verified(store: IdentityStore) -> ChainVerdict:
    return await check_store(store, ChainCheck([KEY]))


async def unguarded(connection: AsyncConnection) -> None:
    """As somebody does who owns the database."""
    names = {"sqlite": ("id_audit_no_update", "id_audit_no_delete"), "postgresql": ("id_audit_grows",)}
    dialect = connection.dialect.name
    for name in names[dialect]:
        on = "" if dialect == "sqlite" else " ON id_audit"
        await connection.exec_driver_sql(f"DROP TRIGGER {name}{on}")


TAMPERING = {
    "UPDATE id_audit SET actor = 'nobody' WHERE number = 3": 3,
    "UPDATE id_audit SET at_ms = at_ms + 1 WHERE number = 6": 6,
    "DELETE FROM id_audit WHERE number = 2": 2,
    "DELETE FROM id_audit WHERE number = 6": 6,
    "DELETE FROM id_audit": 1,
    "UPDATE id_audit SET number = CASE number WHEN -4 THEN 5 ELSE 4 END WHERE number IN (-4, -5)": 4,
    "UPDATE id_state SET value = 9 WHERE name = 'audit'": 7,
}


@pytest.mark.parametrize("statement", TAMPERING)
async def test_a_store_that_was_tampered_with_is_found(store: IdentityStore, statement: str) -> None:
    for at in range(6):
        await store.add_tenant(Tenant(name=f"t{at}"), NOW_MS)
    assert (await verified(store)).broken_at is None
    async with store.writing() as connection:
        await unguarded(connection)
        if "CASE" in statement:
            await connection.exec_driver_sql("UPDATE id_audit SET number = -number WHERE number IN (4, 5)")
        await connection.exec_driver_sql(statement)
    assert (await verified(store)).broken_at == TAMPERING[statement]


async def test_an_entry_that_is_no_text_any_more_is_found(tmp_path: Path) -> None:
    store = await IdentityStore.open(str(tmp_path / "i.db"), audit=AuditLog(KEY))
    for at in range(4):
        await store.add_tenant(Tenant(name=f"t{at}"), NOW_MS)
    async with store.writing() as connection:
        await unguarded(connection)
        await connection.exec_driver_sql("UPDATE id_audit SET subject = CAST(x'74ff' AS TEXT) WHERE number = 3")
    found = await verified(store)
    assert (found.broken_at, found.head.number) == (3, 2) and "cannot be read" in found.why
    await store.close()


async def test_the_database_itself_refuses_to_change_an_entry(store: IdentityStore) -> None:
    await store.add_tenant(Tenant(name="acme"), NOW_MS)
    for statement in ("UPDATE id_audit SET actor = 'x'", "DELETE FROM id_audit"):
        with pytest.raises(StoreError, match="append-only"):
            async with store.writing() as connection:
                await connection.exec_driver_sql(statement)
    assert (await verified(store)).entries == 1


async def test_what_cannot_be_written_down_is_not_done_and_what_fails_is_not_written_down(store: IdentityStore) -> None:
    await store.add_tenant(Tenant(name="acme"), NOW_MS)
    with pytest.raises(EntryError):
        await store.add_tenant(Tenant(name="acme"), NOW_MS)
    assert (await verified(store)).entries == 1
    async with store.writing() as connection:
        await connection.exec_driver_sql("DELETE FROM id_state WHERE name = 'audit'")
    with pytest.raises(StoreError, match="audit log"):
        await store.add_tenant(Tenant(name="other"), NOW_MS)
    assert list((await store.snapshot()).tenants) == ["acme"]


async def test_writers_at_once_keep_one_chain(store: IdentityStore, url: str) -> None:
    others = [await IdentityStore.open(url, audit=AuditLog(KEY, actor=f"gateway {at}")) for at in range(2)]

    async def acts(own: IdentityStore, name: str) -> None:
        for at in range(10):
            await own.add_tenant(Tenant(name=f"{name}-{at}"), NOW_MS)
            await own.note(Act("privacy.export", name))

    async def looks() -> None:
        """Who checks meanwhile finds a whole log each time."""
        for _ in range(5):
            assert (await verified(store)).broken_at is None

    await asyncio.gather(looks(), *(acts(own, f"w{at}") for at, own in enumerate((store, *others))))
    verdict = await verified(store)
    assert (verdict.entries, verdict.broken_at) == (60, None)
    async with store.reading() as connection:
        entries = [entry async for entry in audit_entries(connection)]
    for actor in ("test", "gateway 0", "gateway 1"):
        assert sum(entry.actor == actor for entry in entries) == 20
    for own in others:
        await own.close()


def test_the_commands_show_check_and_export_a_log(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "i.db"))
    run("tenants", "add", "acme", *store)
    made = run("keys", "create", "--tenant", "acme", *store)
    run("keys", "revoke", made["id"], *store)
    rows = run("audit", "list", "--tenant", "acme", *store)
    assert [row["action"] for row in rows] == ["tenant.add", "key.create", "key.revoke"]
    assert made["key"].rpartition("_")[2] not in json.dumps(rows)
    whole = run("audit", "verify", *store)
    assert (whole["entries"], whole["broken_at"], whole["sealed"]) == (3, None, True)
    exported = tmp_path / "log.jsonl"
    head = run("audit", "export", str(exported), *store)["head"]
    assert exported.stat().st_mode & 0o777 == 0o600
    assert run("audit", "list", "--last", "1", *store)[0]["action"] == "audit.export"

    # Offline: the file alone, and with the key that sealed it.
    key = ("--key-file", str(tmp_path / "audit-key"))
    assert run("audit", "verify", "--file", str(exported))["sealed"] is False
    assert run("audit", "verify", "--file", str(exported), *key)["head"] == head
    run("tenants", "add", "later", *store)
    assert run("audit", "verify", "--anchor", head, *store)["broken_at"] is None
    lines = exported.read_bytes().splitlines(keepends=True)
    exported.write_bytes(b"".join([*lines[:1], lines[1].replace(b"key.create", b"key.revoke"), *lines[2:]]))
    assert run("audit", "verify", "--file", str(exported), code=1)["broken_at"] == 2
    exported.write_bytes(b"".join([*lines[:2], b"{\n", *lines[3:]]))
    assert run("audit", "verify", "--file", str(exported), code=1)["broken_at"] == 3
    exported.write_bytes(b"".join(lines[:3]))
    assert run("audit", "verify", "--file", str(exported))["broken_at"] is None
    assert run("audit", "verify", "--file", str(exported), "--anchor", head, code=1)["broken_at"] == 4

    # Another key than the one that is used here: entries are refused until it is given, or seals are left alone.
    moved = (tmp_path / "audit-key").rename(tmp_path / "former-key")
    assert run("audit", "verify", *store, code=1)["broken_at"] == 1
    assert run("audit", "verify", "--key-file", str(moved), *store)["broken_at"] is None
    assert run("audit", "verify", "--chain-only", *store)["broken_at"] is None
    for option in ("--anchor", "--file", "--key-file"):
        assert option in run("audit", "verify", option, str(tmp_path / "none"), *store, code=2)
    assert "name one that can be written" in run("audit", "export", str(tmp_path), *store, code=1)
