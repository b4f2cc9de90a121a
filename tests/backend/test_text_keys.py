"""Keys of opted-in texts rotate without loss, and what is kept too long goes by itself."""

import asyncio
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from backend.commands import run
from backend.telemetry_world import DAY_MS, NOON_MS, Clock, files_with, opportunity, sample, sink_in
from backend.world import until
from foretype_backend.errors import StoreError
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.intake import Sender
from foretype_backend.telemetry.store import Store
from foretype_backend.telemetry.text_keys import RETIRE_S
from foretype_backend.telemetry.texts import Texts
from foretype_backend.telemetry.upkeep import kept, reseal, tidy

MASTER, OTHER = b"m" * 32, b"o" * 32
DAY = datetime.fromtimestamp(NOON_MS / 1000, UTC).date()


class Text(msgspec.Struct):
    prefix: str


async def everything(texts: Texts) -> dict[str, str]:
    """What can be read, by the name of the object."""
    found: dict[str, str] = {}
    for path in [path async for path in texts.paths("acme")]:
        (one,) = await texts.read(path)
        name = path.rpartition("/")[2].partition(".")[0]
        assert found.setdefault(name, str(one["prefix"])) == one["prefix"]
    return found


async def filled(folder: Path, count: int = 45) -> tuple[Store, Texts, dict[str, str]]:
    store = await Store.open(str(folder / "events.db"))
    await store.set_consent(Consent("acme", store_text=True))
    texts = Texts(str(folder / "texts"), MASTER)
    for at in range(count):
        await texts.put("acme", f"u{at % 3}", DAY.isoformat(), f"b{at}", [Text(f"text {at}")])
    return store, texts, {f"b{at}": f"text {at}" for at in range(count)}


def objects(folder: Path) -> list[str]:
    return [path.name for path in (folder / "texts" / "acme").rglob("*") if path.is_file()]


async def test_a_rotation_seals_everything_again_and_removes_the_former_key_when_nobody_writes_with_it(
    tmp_path: Path,
) -> None:
    store, texts, wanted = await filled(tmp_path)
    for now_ms in (NOON_MS, NOON_MS + 3_600_000):
        key = await texts.keys.add(now_ms)
        assert (await reseal(store, texts, most=10_000, now_ms=now_ms)) == (45, 0)
        assert {name.partition(".")[2] for name in objects(tmp_path)} == {key}
        assert len(objects(tmp_path)) == 45 and await everything(texts) == wanted
    # A gateway that has not looked since writes with the former key: it is there, and is sealed again by the next step.
    assert len(await texts.keys.former()) == 1
    late_ms = NOON_MS + 3_600_000 + int(RETIRE_S * 1000)
    await reseal(store, texts, most=10_000, now_ms=late_ms - 1)
    assert len(await texts.keys.former()) == 1
    await tidy(store, texts, [], today=DAY, now_ms=late_ms)
    assert await texts.keys.former() == []
    assert len(list((tmp_path / "texts" / ".keys").iterdir())) == 1
    assert await everything(Texts(str(tmp_path / "texts"), MASTER)) == wanted
    await store.close()


async def test_a_gateway_that_knows_the_former_key_alone_loses_nothing(tmp_path: Path) -> None:
    clock = Clock()
    store, texts, wanted = await filled(tmp_path, 3)
    gateway = Texts(str(tmp_path / "texts"), MASTER, clock=lambda: clock.now_s)
    assert await gateway.keys.newest() == ""
    key = await texts.keys.add(NOON_MS)
    await reseal(store, texts, most=100, now_ms=NOON_MS)
    listed = [path async for path in gateway.paths("acme")]
    await gateway.put("acme", "u", DAY.isoformat(), "late", [Text("late")])  # within its half minute
    assert "late" in objects(tmp_path)
    wanted["late"] = "late"
    assert await everything(gateway) == wanted  # it finds the new key when it meets it
    clock.now_s += 31
    await gateway.put("acme", "u", DAY.isoformat(), "later", [Text("later")])
    assert f"later.{key}" in objects(tmp_path)
    await reseal(store, texts, most=100, now_ms=NOON_MS)
    assert await everything(gateway) == wanted | {"later": "later"}
    assert (await gateway.read(listed[0]))[0]["prefix"]
    await gateway.read("acme/u/" + DAY.isoformat() + "/late")  # listed before it was sealed again
    await store.close()


async def test_a_rotation_that_is_killed_anywhere_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    class Killed(BaseException):
        pass

    put, delete, steps = obstore.put_async, obstore.delete_async, 0

    def killing(work: Any) -> Any:
        async def done(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps < 0:
                raise Killed
            return await work(*arguments, **options)

        return done

    store, texts, wanted = await filled(tmp_path, 7)
    await texts.keys.add(NOON_MS)
    monkeypatch.setattr(obstore, "put_async", killing(put))
    monkeypatch.setattr(obstore, "delete_async", killing(delete))
    for kill_after in range(16):
        again = Texts(str(tmp_path / "texts"), MASTER)
        steps = 0
        await again.keys.look()
        steps = 2  # one whole object
        if kill_after % 2:
            steps = 1  # sealed again, and the former one not removed
        try:
            done = await reseal(store, again, most=1000, now_ms=NOON_MS)
        except Killed:
            steps = 0
            assert await everything(again) == wanted
            continue
        assert done.left == 0
        break
    steps = 0
    assert await everything(texts) == wanted and len(objects(tmp_path)) == 7
    assert "" not in {name.partition(".")[2] for name in objects(tmp_path)}
    await store.close()


async def test_another_key_file_opens_all_texts_before_gateways_have_it(tmp_path: Path) -> None:
    store, texts, wanted = await filled(tmp_path, 3)
    await texts.keys.add(NOON_MS - 1000)
    await texts.keys.add(NOON_MS, also=OTHER)
    await reseal(store, texts, most=100, now_ms=NOON_MS)
    moved = Texts(str(tmp_path / "texts"), OTHER)
    assert await everything(moved) == wanted == await everything(texts)
    # A key that the other file alone opens is the end of the former file: it is refused, and says what to name.
    await moved.keys.add(NOON_MS + 1)
    await reseal(store, moved, most=100, now_ms=NOON_MS + 1)
    former = Texts(str(tmp_path / "texts"), MASTER)
    with pytest.raises(StoreError, match=r"telemetry\.key_file.*--to"):
        await former.put("acme", "u", DAY.isoformat(), "b", [Text("x")])
    with pytest.raises(StoreError, match=r"telemetry\.key_file"):
        await everything(former)
    await store.close()


async def test_what_is_deleted_during_a_rotation_does_not_come_back(tmp_path: Path) -> None:
    store, texts, _ = await filled(tmp_path)
    await texts.keys.add(NOON_MS)
    own = await Store.open(str(tmp_path / "events.db"))

    async def delete() -> int:
        async with own.alone():
            return await texts.delete(tenant="acme")

    done, removed = await asyncio.gather(reseal(store, texts, most=10_000, now_ms=NOON_MS), delete())
    assert removed == 45 and done.left == 0 and objects(tmp_path) == []
    await own.close()
    await store.close()


def test_the_command_rotates_and_the_log_tells_of_it(tmp_path: Path) -> None:
    asyncio.run(_closed(filled(tmp_path / "telemetry")))
    (tmp_path / "telemetry" / "key").write_bytes(MASTER)
    (tmp_path / "next").write_bytes(secrets.token_bytes(32))
    profile = tmp_path / "team.toml"
    profile.write_text(f"[identity]\nenabled = false\nurl = '{tmp_path / 'own.db'}'\n")
    state = ("--state-dir", str(tmp_path), "--profile", str(profile))
    done = run("privacy", "rotate-key", *state)
    assert done["sealed_again"] == 45 and len(done["key"]) == 20
    assert run("privacy", "rotate-key", "--continue", *state) == {**done, "sealed_again": 0}
    again = run("privacy", "rotate-key", "--to", str(tmp_path / "next"), *state)
    assert again["key"] > done["key"] and again["former_keys"] == 1
    run("privacy", "set", "--tenant", "acme", "--train", *state)
    out = tmp_path / "out"
    assert run("privacy", "export", str(out), "--key-file", str(tmp_path / "next"), *state)["texts"] == 45
    acts = [row["action"] for row in run("audit", "list", "--profile", str(profile))]
    assert acts == ["privacy.rotate_key"] * 3 + ["privacy.set", "privacy.export"]
    shown = run("privacy", "show", *state)
    assert shown["tenants"][0]["oldest_text"] == DAY.isoformat()


async def _closed(opening: Any) -> None:
    store, _, _ = await opening
    await store.close()


async def test_what_is_over_its_retention_goes_without_a_batch_and_what_is_kept_is_shown(tmp_path: Path) -> None:
    clock = Clock()
    first = sink_in(tmp_path, clock)
    store = await first.open()
    await store.set_consent(Consent("acme", store_text=True, events_days=10, text_days=5))
    sender = Sender("c", tenant="acme", user="u" * 32)
    await first(sender, "b1", [opportunity(1), sample(2, "the secret")])
    await first.tidy()
    (one,) = first.kept
    assert one == ("acme", DAY.isoformat(), 10, DAY.isoformat(), 5)
    await first.close()
    for days, oldest_event, oldest_text in ((5, DAY.isoformat(), DAY.isoformat()), (6, DAY.isoformat(), None)):
        clock.wall_ms = NOON_MS + days * DAY_MS
        assert await looked_after(tmp_path, clock) == [("acme", oldest_event, 10, oldest_text, 5)]
    clock.wall_ms = NOON_MS + 11 * DAY_MS
    assert await looked_after(tmp_path, clock) == [("acme", None, 10, None, 5)]
    assert files_with(tmp_path / "texts", b"") == []


async def looked_after(folder: Path, clock: Clock) -> list[Any]:
    """By a gateway that gets no batch."""
    gateway = sink_in(folder, clock)
    gateway.start(after_s=0.0)
    await until(lambda: gateway.kept)
    await gateway.close()
    store = await Store.open(str(folder / "events.db"))
    texts = Texts(str(folder / "texts"), (folder / "key").read_bytes())
    assert list(await kept(store, texts)) == list(gateway.kept)
    await store.close()
    return list(gateway.kept)
