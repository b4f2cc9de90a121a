"""The store on SQLite and on PostgreSQL: what is committed, added up, refused, and forgotten."""

import json
import os
import re
import sqlite3
import stat
from collections.abc import AsyncGenerator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from backend.telemetry_world import DAY_MS, NOON_MS, accept, columns, display, event, opportunity, survive
from foretype_backend.database import explain, migrate, url_of
from foretype_backend.errors import StoreError
from foretype_backend.telemetry.aggregate import figures, refresh
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.intake import Sender, read
from foretype_backend.telemetry.schema import COUNTERS, EVENT_COLUMNS, FIELD_COLUMNS, HEAD, SCHEMA, events, metadata
from foretype_backend.telemetry.store import Store
from foretype_backend.telemetry.upkeep import tidy
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    url = str(tmp_path / "events.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    opened = await Store.open(url)
    yield opened
    async with opened.transaction() as connection:
        for table in (*metadata.tables, "alembic_version"):
            await connection.execute(text(f"DROP TABLE {table}"))
    await opened.close()


def rows(*events: dict[str, Any], user: str = "u1", tenant: str = "default") -> list[tuple[Any, ...]]:
    received = read(Sender("c1", tenant=tenant, user=user), events, received_ms=NOON_MS)
    assert not received.refused
    return received.rows


async def test_migrations_make_the_tables_of_the_schema(store: Store) -> None:
    def difference(connection: Any) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)

    async with store.transaction() as connection:
        assert await connection.run_sync(difference) == []


async def test_the_same_event_twice_is_one_event_in_any_order(store: Store) -> None:
    made = rows(*(display(seq, "i1", 10.0) for seq in range(50)))
    await store.write(list(reversed(made[:30])))
    await store.write(made)
    await store.write(made[40:] + made[40:])
    assert await store.count() == 50
    assert await store.keys("s1") == set(range(50))


async def test_two_users_cannot_take_each_others_keys(store: Store) -> None:
    await store.write(rows(display(1, "i1", 10.0)))
    await store.write(rows(display(1, "i1", 10.0), user="u2"))
    assert (await store.count(), await store.count(user_id="u2")) == (2, 1)


async def test_acceptance_is_counted_over_sessions_that_typing_through_merged(store: Store) -> None:
    """Four sessions: two displays of 400 ms that are one session; one short and accepted; one of 300 ms; one of 100 ms."""
    made = rows(
        *(opportunity(seq) for seq in range(1, 11)),
        display(20, "a", 400.0, end="replaced"),
        display(21, "a", 400.0),
        event("dismiss", 22, id="i21", shown="a", kind="typed_over"),
        display(30, "b", 50.0, end="accepted", characters=8),
        accept(31, "b", 3, "word"),
        accept(32, "b", 5),
        display(40, "c", 300.0),
        display(50, "d", 100.0),
        survive(60, "b", 30, 8, 2),
        survive(61, "b", 300, 4, 6),
        survive(62, "x", 300, 9, 0, branch_changed=True),
    )
    await store.write(made[::-1])
    await refresh(store, {("default", "2026-09-22")})
    (got,) = await figures(store)
    assert (got.counts["opportunities"], got.counts["sessions"], got.counts["dismissed"]) == (10, 4, 1)
    assert (got.counts["read_750"], got.counts["read_300"], got.counts["accepted_sessions"]) == (2, 3, 1)
    assert (got.ar_750, got.ar_300) == (pytest.approx(1 / 2), pytest.approx(1 / 3))
    assert (got.war_750, got.war_300) == (pytest.approx(8 / 18), pytest.approx(8 / 28))
    assert got.cpo == pytest.approx(0.8)
    assert got.rcpo == {30: pytest.approx(0.8), 300: pytest.approx(0.4)}
    assert got.pr_33 == {30: 1.0, 300: 0.0}


async def test_what_a_report_needs_is_counted_by_editor_and_model(store: Store) -> None:
    here = {"editor": "emacs", "model": "small"}
    made = rows(
        opportunity(1, parses=True, **here),
        opportunity(2, parses=False, **here),
        opportunity(3, **here),
        *(
            event("result", 10 + at, id=f"r{at}", last_ms=1.0, characters=8, finish=finish, request_class=kind, **here)
            for at, (finish, kind) in enumerate(
                [
                    ("cancelled", "interactive"),
                    ("dropped", "block"),
                    ("stop", "interactive"),
                    ("cancelled", "speculative"),
                ]
            )
        ),
        event("result", 20, id="old", last_ms=1.0, finish="cancelled"),  # of a client that says nothing of classes
        display(30, "a", 900.0, **here),
        accept(31, "a", 3, "word", **here),
        accept(32, "a", 7, **here),
        survive(33, "a", 30, 8, 2, **here),
        event("typing", 40, keys=12, deletions=3, **here),
        event("typing", 41, keys=5, deletions=0, **here),
    )
    await store.write(made)
    await refresh(store, {("default", "2026-09-22")})
    by_editor = {one.group["editor"]: one for one in await figures(store, by=("editor", "model"))}
    got, old = by_editor["emacs"], by_editor[""]
    assert got.group["model"] == "small"
    wanted = {"judged": 2, "parsed": 1, "awaited": 3, "cancelled": 2, "result_characters": 32, "accepts": 2}
    wanted |= {"keys": 17, "deletions": 3, "sessions": 1, "opportunities": 3}
    assert {name: got.counts[name] for name in wanted} == wanted
    assert (old.counts["awaited"], old.counts["cancelled"]) == (1, 1)
    assert got.retained == {30: 8}


async def test_next_edits_are_summed_apart_from_suggestions(store: Store) -> None:
    def next_edit(seq: int, end: str, **more: Any) -> dict[str, Any]:
        told = {"evidence": "rename", "visible_ms": 900.0, "inserted": 4, "deleted": 5, "chain": "n1", "order": seq}
        return event("next_edit", seq, id=f"n{seq}", end=end, **told, **more)

    def later(seq: int, age_s: int, kept: int, **more: Any) -> dict[str, Any]:
        told = {"inserted": 4, "deleted": 5, "inserted_kept": min(kept, 4), "deleted_kept": max(kept - 4, 0)}
        return event("next_survive", seq, id="n1", age_s=age_s, **told, **more)

    made = rows(
        next_edit(1, "accepted", jump=True, jumped=True, elsewhere=True),
        next_edit(2, "accepted"),
        next_edit(3, "rejected", jump=True),
        next_edit(4, "typed"),
        later(5, 30, 9),
        later(6, 300, 9),
        later(7, 300, 0, reversed=True),
    )
    await store.write(made)
    await refresh(store, {("default", "2026-09-22")})
    (got,) = await figures(store)
    counted = {name.removeprefix("next_"): got.counts[name] for name in NEXT_EDITS}
    assert counted == {
        "shown": 4, "accepted": 2, "rejected": 1, "jumps": 2, "jumped": 1,
        "measured": 18, "kept": 9, "looked_at": 2, "reversed": 1,
    }  # fmt: skip
    assert (got.counts["sessions"], got.counts["accepts"], got.retained) == (0, 0, {})


async def test_sums_follow_late_events_and_are_split_by_what_they_are_asked_for(store: Store) -> None:
    midnight = NOON_MS + DAY_MS // 2
    await store.write(rows(opportunity(1), display(2, "a", 900.0, t_ms=midnight - 1), opportunity(3, language="go")))
    days = {("default", "2026-09-22"), ("default", "2026-09-23")}
    await refresh(store, days)
    # The rest of a session that passed midnight, two days late, and from another user too.
    received = read(Sender("c1", user="u1"), [accept(4, "a", 7, t_ms=midnight + 1)], received_ms=NOON_MS + 2 * DAY_MS)
    await store.write(received.rows)
    await store.write(rows(opportunity(1), user="u2"))
    await refresh(store, days)
    await refresh(store, days)
    (got,) = await figures(store)
    assert (got.counts["opportunities"], got.counts["sessions"], got.counts["accepted_sessions"]) == (3, 1, 1)
    by_day = await figures(store, by=("day",))
    assert [(one.group["day"], one.counts["accepted_sessions"]) for one in by_day] == [("2026-09-22", 1)]
    by_language = {one.group["language"]: one.counts["opportunities"] for one in await figures(store, by=("language",))}
    assert by_language == {"go": 1, "python": 2}
    assert {one.group["user_id"] for one in await figures(store, by=("user_id",))} == {"u1", "u2"}
    with pytest.raises(ValueError, match="colour"):
        await figures(store, by=("colour",))


async def test_the_rest_of_a_session_that_passed_midnight_counts_for_the_day_that_was_summed(store: Store) -> None:
    midnight, today = NOON_MS + DAY_MS // 2, date(2026, 9, 23)
    await store.write(rows(display(1, "a", 900.0, t_ms=midnight - 1)))
    await tidy(store, None, [("default", "2026-09-22")], today=today, now_ms=midnight)
    rest = read(Sender("c1", user="u1"), [accept(2, "a", 7, t_ms=midnight + 1)], received_ms=midnight + 1)
    await store.write(rest.rows)
    await tidy(store, None, [("default", "2026-09-23")], today=today, now_ms=midnight + 2)
    by_day = await figures(store, by=("day",))
    assert [(one.group["day"], one.counts["accepted_sessions"]) for one in by_day] == [("2026-09-22", 1)]


async def test_sums_of_days_whose_events_have_gone_stay_whatever_comes_late(store: Store) -> None:
    async def keys() -> int:
        return sum(one.counts["keys"] for one in await figures(store))

    today, day = date(2026, 9, 22), NOON_MS - 6 * DAY_MS
    typed = [event("typing", seq, keys=100, deletions=0) | {"t_ms": day} for seq in range(6)]
    await store.set_consent(Consent("default", events_days=7))
    await store.write(rows(*typed[:5]))
    await tidy(store, None, [("default", "2026-09-16")], today=today, now_ms=NOON_MS)
    assert await keys() == 500
    later = date(2026, 9, 25)
    await tidy(store, None, [], today=later, now_ms=NOON_MS + 3 * DAY_MS)
    assert await store.count() == 0
    await store.write(rows(typed[5]))
    await tidy(store, None, [("default", "2026-09-16")], today=later, now_ms=NOON_MS + 3 * DAY_MS)
    assert await keys() == 500


async def test_days_that_nobody_summed_while_the_gateway_was_away_are_summed_before_they_go(store: Store) -> None:
    await store.set_consent(Consent("default", events_days=7))
    await tidy(store, None, [], today=date(2026, 9, 1), now_ms=NOON_MS - 21 * DAY_MS)
    await store.write(rows(event("typing", 1, keys=100, deletions=0) | {"t_ms": NOON_MS - 15 * DAY_MS}))
    await tidy(store, None, [("default", "2026-09-07")], today=date(2026, 9, 22), now_ms=NOON_MS)
    assert [one.counts["keys"] for one in await figures(store)] == [100] and await store.count() == 0


async def test_consent_is_no_until_somebody_says_yes(store: Store) -> None:
    assert await store.consent("default") == Consent("default", False, False, 90, 30, False)
    await store.set_consent(Consent("default", True, False, 10, 5))
    await store.set_consent(Consent("default", True, True, 10, 5))
    await store.write(rows(opportunity(1), tenant="other"))
    assert await store.consents() == [Consent("default", True, True, 10, 5), Consent("other")]


async def test_a_tenants_days_are_kept_to_the_last_one_and_no_day_more(store: Store) -> None:
    for tenant, days in (("default", 2), ("other", 1)):
        await store.write(rows(*(opportunity(1 + ago, t_ms=NOON_MS - ago * DAY_MS) for ago in range(4)), tenant=tenant))
        await store.set_consent(Consent(tenant, events_days=days))
    await tidy(store, None, [], today=date(2026, 9, 22), now_ms=NOON_MS)
    async with store.transaction() as connection:
        left = {(row.tenant, row.day) for row in await connection.execute(select(events))}
    kept = [("default", "2026-09-22"), ("default", "2026-09-21"), ("default", "2026-09-20")]
    assert left == {*kept, ("other", "2026-09-22"), ("other", "2026-09-21")}


SINCE = {"editor": "0003", "model": "0003", "experiment": "0004", "block": "0004", "first_ms": "0004"}
NOTHING = {
    **dict.fromkeys(("subject", "shown", "parent", "label", "source", "data"), ""),
    **dict.fromkeys(("characters", "lines", "value_ms", "age_s", "arc"), 0),
}


async def former(connection: AsyncConnection, version: str, told: dict[str, Any], **given: Any) -> None:
    """Write an event as versions up to 0005 did: other things by kind in the same columns."""
    made = columns(rows(told)[0])
    same = {name: value for name, value in made.items() if name not in (*FIELD_COLUMNS, "event")}
    values = {**same, **NOTHING, "kind": made["event"], "first_ms": made["first_ms"], **given}
    values = {name: value for name, value in values.items() if SINCE.get(name, "0001") <= version}
    into, names = ", ".join(values), ", ".join(f":{name}" for name in values)
    await connection.execute(text(f"INSERT INTO events ({into}) VALUES ({names})"), values)


async def back_to(version: str, connection: AsyncConnection) -> None:
    """The tables as a former version made them, with one event and, where it knew sums, those of a day."""
    for table in (*metadata.tables, "alembic_version"):
        await connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
    await connection.run_sync(migrate, SCHEMA, "it", True, version)
    await former(connection, version, opportunity(1), label="network")
    if version == "0002":
        counters = [name for name in COUNTERS if name not in ADDED]
        keys = "'default', 'red', 'u1', 'python', 'a', '2026-09-20'"
        await connection.execute(
            text(
                f"INSERT INTO daily (tenant, team, user_id, language, variant, day, {', '.join(counters)}) "
                f"VALUES ({keys}, {', '.join(['7'] * len(counters))})"
            )
        )
        await connection.execute(text(f"INSERT INTO daily_survival VALUES ({keys}, 300, 2, 20, 12, 1)"))


NEXT_EDITS = tuple(name for name in COUNTERS if name.startswith("next_"))
ADDED = ("accepts", "awaited", "cancelled", "result_characters", "judged", "parsed", "keys", "deletions", *NEXT_EDITS)


@pytest.mark.parametrize("version", ["0001", "0002", "0003", "0004", "0005"])
async def test_a_store_of_a_former_version_is_upgraded_with_what_it_holds(store: Store, version: str) -> None:
    async with store.transaction() as connection:
        await back_to(version, connection)
    url = store.engine.url.render_as_string(hide_password=False)
    with pytest.raises(StoreError, match=f"has version {version}"):
        await Store.open(url, upgrade=False)
    upgraded = await Store.open(url)
    assert await upgraded.count() == 1
    found = await figures(upgraded, by=("user_id", "editor"))
    await upgraded.close()
    if version == "0002":
        (one,) = found
        assert one.group == {"user_id": "u1", "editor": ""}
        assert one.counts == dict.fromkeys(COUNTERS, 7) | dict.fromkeys(ADDED, 0)
        assert (one.retained, one.pr_33) == ({300: 12}, {300: 0.5})


FORMER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (opportunity(1, parses=True), {"subject": "o1", "label": "network", "characters": 1, "lines": 1}),
    (opportunity(2, parses=False), {"subject": "o2", "label": "network", "characters": 1}),
    (opportunity(3), {"subject": "o3", "label": "network"}),
    (
        event("request", 4, id="r1", opportunity="o1", request_class="interactive", prompt_tokens=90, cached_tokens=7),
        {"subject": "r1", "parent": "o1", "label": "interactive", "characters": 90, "lines": 7},
    ),
    (
        event(
            "result",
            5,
            id="r1",
            first_ms=3.5,
            last_ms=12.0,
            generated_tokens=4,
            characters=11,
            finish="stop",
            request_class="block",
        ),
        {"subject": "r1", "label": "stop", "source": "block", "characters": 11, "lines": 4, "value_ms": 12.0},
    ),
    (
        display(6, "i6", 812.5, opportunity="o1"),
        {
            "subject": "i6",
            "shown": "i6",
            "parent": "o1",
            "label": "diverged",
            "source": "network",
            "characters": 10,
            "lines": 1,
            "value_ms": 812.5,
        },
    ),
    (
        accept(7, "i6", 5),
        {"subject": "i7", "shown": "i6", "label": "full", "source": "reported", "characters": 5, "lines": 1},
    ),
    (event("dismiss", 8, id="i8", shown="i8", kind="esc"), {"subject": "i8", "shown": "i8", "label": "esc"}),
    (
        survive(9, "i6", 30, 8, 2),
        {
            "subject": "i9",
            "shown": "i6",
            "characters": 10,
            "lines": 1,
            "value_ms": 0.2,
            "age_s": 30,
            "arc": 8,
            "data": '{"length_now": 10, "levenshtein": 2, "fourgram": 0.5, "branch_changed": false}',
        },
    ),
    (
        survive(10, "i6", 300, 0, 10, branch_changed=True),
        {
            "subject": "i10",
            "shown": "i6",
            "label": "branch_changed",
            "characters": 10,
            "value_ms": 1.0,
            "age_s": 300,
            "data": '{"length_now": 10, "levenshtein": 10}',
        },
    ),
    (event("typing", 11, keys=40, deletions=2), {"characters": 40, "lines": 2}),
    (
        event("feel", 12, answer="mostly", p50_ms=20.5, p95_ms=41.5, suggestions=200),
        {"label": "mostly", "characters": 41_500, "lines": 200, "value_ms": 20.5},
    ),
    (
        event(
            "next_edit",
            13,
            id="n1",
            chain="n0",
            order=2,
            evidence="rename",
            end="accepted",
            visible_ms=9.0,
            inserted=4,
            deleted=5,
            jump=True,
        ),
        {
            "subject": "n1",
            "shown": "n0",
            "label": "accepted",
            "source": "rename",
            "characters": 4,
            "lines": 5,
            "value_ms": 9.0,
            "age_s": 1,
        },
    ),
    (
        event(
            "next_survive",
            14,
            id="n1",
            age_s=300,
            inserted=4,
            inserted_kept=3,
            deleted=5,
            deleted_kept=5,
            reversed=True,
        ),
        {
            "subject": "n1",
            "label": "reversed",
            "characters": 9,
            "lines": 1,
            "age_s": 300,
            "arc": 8,
            "data": '{"inserted_kept": 3, "deleted_kept": 5}',
        },
    ),
]
"""Each kind of event, and the columns that it had up to version 0005."""


async def test_each_fact_of_former_rows_stands_in_the_column_of_its_name(store: Store) -> None:
    async with store.transaction() as connection:
        await back_to("0005", connection)
        await connection.execute(text("DELETE FROM events"))
        for told, given in FORMER:
            await former(connection, "0005", told, **given)
        odd = event("hover", 15, dwell_ms=7)
        await former(connection, "0005", odd, label="hover", data='{"dwell_ms": 7}')
    upgraded = await Store.open(store.engine.url.render_as_string(hide_password=False))
    wanted = [columns(row) for row in rows(*(told for told, _ in FORMER), odd)]
    async with upgraded.reading() as connection:
        found = (await connection.execute(select(events).order_by(events.c.seq))).mappings().all()
    await upgraded.close()
    for one, other in zip(found, wanted, strict=True):
        assert {name: one[name] for name in EVENT_COLUMNS if name != "data"} == {
            name: other[name] for name in EVENT_COLUMNS if name != "data"
        }
    assert json.loads(found[-1]["data"]) == json.loads(wanted[-1]["data"]) == {"event": "hover", "dwell_ms": 7}


async def test_a_migration_that_fails_leaves_the_former_version_whole(store: Store, monkeypatch: Any) -> None:
    """The process is as good as dead in the middle of the second revision: its tables are not there, the first's are."""
    import alembic.op

    async with store.transaction() as connection:
        await back_to("0001", connection)
    create_table = alembic.op.create_table

    def fail_at_state(name: str, *parts: Any, **options: Any) -> Any:
        if name == "state":
            raise RuntimeError("killed")
        return create_table(name, *parts, **options)

    monkeypatch.setattr(alembic.op, "create_table", fail_at_state)
    with pytest.raises(RuntimeError, match="killed"):
        async with store.transaction() as connection:
            await connection.run_sync(migrate, SCHEMA, "it", True)
    monkeypatch.undo()
    async with store.transaction() as connection:
        current = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
        assert current == "0001"
        await connection.run_sync(migrate, SCHEMA, "it", True)
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar() == HEAD


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "version 9999, which this Foretype does not know"),
        ("DROP TABLE alembic_version", "migrated halfway: it has tables and no version"),
        ("UPDATE alembic_version SET version_num = '0001'", "migrated halfway .*table daily already exists"),
        ("DROP TABLE daily", "migrated halfway: it has no table daily"),
        ("ALTER TABLE events DROP COLUMN arc", "migrated halfway: table events has no column arc"),
    ],
)
async def test_a_store_that_was_migrated_halfway_is_named_and_left_alone(
    tmp_path: Path, damage: str, message: str
) -> None:
    path = tmp_path / "events.db"
    store = await Store.open(str(path))
    await store.write(rows(opportunity(1)))
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(StoreError, match=message):
        await Store.open(str(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)
    connection.close()


async def test_a_full_store_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = await Store.open(str(path))
    await store.write(rows(opportunity(1)))
    async with store.engine.connect() as connection:
        await connection.execute(text("PRAGMA max_page_count = 40"))
        await connection.commit()
    with pytest.raises(StoreError, match=r"is full .*make room"):
        for start in range(100, 100_000, 1000):
            await store.write(rows(*(opportunity(seq) for seq in range(start, start + 1000))))
    assert await store.count() % 1000 == 1
    await store.close()


async def test_a_read_only_store_says_so_and_can_still_be_read(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = await Store.open(str(path))
    await store.write(rows(opportunity(1)))
    async with store.engine.connect() as connection:
        await connection.execute(text("PRAGMA query_only = ON"))
        await connection.commit()
    with pytest.raises(StoreError, match=r"is read-only .*make it writable"):
        await store.write(rows(opportunity(2)))
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        for name in ("state", "daily", "daily_survival"):
            connection.execute(f"DROP TABLE {name}")
    connection.close()
    with pytest.raises(StoreError, match="is read-only"):  # what has to be upgraded must be writable
        await Store.open(f"sqlite:///file:{path}?mode=ro&uri=true")


async def test_what_is_no_store_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, " * 100)
    for url, message in (
        (str(tmp_path / "text"), "cannot be opened .*move the file away"),
        ("mysql://host/db", "'mysql' is not supported; use sqlite or postgresql"),
        ("postgresql://foretype@127.0.0.1:1/none", "cannot be reached .*check telemetry.url"),
        ("://", "telemetry.url"),
    ):
        with pytest.raises(StoreError, match=message):
            await Store.open(url)
    assert url_of("/x/events.db", "telemetry.url").drivername == "sqlite+aiosqlite"


@pytest.mark.parametrize(
    ("said", "field", "told"),
    [
        (
            "connection failed: fe_sendauth: no password supplied",
            "identity.url",
            "PGPASSWORD, and the user in identity.url",
        ),
        (
            'FATAL:  password authentication failed for user "f"',
            "telemetry.url",
            "PGPASSWORD, and the user in telemetry.url",
        ),
        ("connection refused", "identity.url", "check identity.url and the server"),
        ("database is locked", "identity.url", "give another identity.url"),
        ("attempt to write a readonly database", "identity.url", "make it writable$"),
        ("attempt to write a readonly database", "telemetry.url", "make it writable, or start with --no-telemetry$"),
    ],
)
def test_a_remedy_is_that_of_the_store_that_is_meant(said: str, field: str, told: str) -> None:
    assert re.search(told, str(explain(OSError(said), "the store x", field)))


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    store = await Store.open(str(tmp_path / "deep" / "events.db"))
    await store.write(rows(opportunity(1)))
    for path in (tmp_path / "deep").iterdir():
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
    assert stat.S_IMODE(os.stat(tmp_path / "deep").st_mode) == 0o700
    await store.close()
