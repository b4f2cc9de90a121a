"""Feedback through a real gateway: acknowledged after the commit, never before, and never in the way of a completion."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from backend.scrape import total
from backend.telemetry_world import Clock, accept, display, files_with, opportunity, sample, sink_in
from backend.world import closing, gateway
from foretype_backend.errors import StoreError
from foretype_backend.start.cli import serve
from foretype_backend.telemetry import upkeep
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.intake import Sender
from foretype_backend.telemetry.privacy import Privacy
from foretype_backend.telemetry.sink import TelemetrySink
from foretype_backend.telemetry.store import Store
from foretype_wire.messages import Ack, Error, ErrorCode, Feedback, Hello
from waiting import until

USER = "0123456789abcdef0123456789abcdef"
SENDER = Sender("c1", user=USER)


@contextlib.asynccontextmanager
async def sink(directory: Path, **options: Any) -> AsyncGenerator[TelemetrySink]:
    made = sink_in(directory, **options)
    async with closing(made):
        yield made


async def test_a_batch_is_committed_under_its_user_and_then_acknowledged(tmp_path: Path) -> None:
    hello = Hello(v=1, client="test", user=USER)
    async with sink(tmp_path) as telemetry, gateway(feedback=telemetry) as world, world.peer(hello=hello) as peer:
        assert not (tmp_path / "events.db").exists()  # nothing is opened before it is needed
        await peer.send(Feedback(batch="b1", events=[opportunity(1), display(2, "i2", 800.0)]))
        assert await peer.receive() == Ack(batch="b1")
        store = await Store.open(telemetry.url)
        assert await store.count(user_id=USER, tenant="default") == 2
        await store.close()
        await peer.send(Feedback(batch="b1", events=[display(2, "i2", 800.0), opportunity(1)]))
        assert await peer.receive() == Ack(batch="b1")
        assert await (await telemetry.open()).count() == 2
        await peer.still_works()


async def test_what_is_refused_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    async with sink(tmp_path) as telemetry, gateway(feedback=telemetry) as world, world.peer() as peer:
        many = [opportunity(seq) for seq in range(150)]
        many[120]["outcome"] = "Not A Label"
        many[130]["caret"] = "nowhere"
        await peer.send(Feedback(batch="b1", events=many))
        told = await peer.error()
        assert (told.code, told.field) == (ErrorCode.INVALID_REQUEST, "events[120].outcome")
        assert "(and 1 more of this batch)" in told.message and told.id is None
        assert await peer.receive() == Ack(batch="b1", refused=2)
        assert await (await telemetry.open()).count() == 148


async def test_a_store_that_takes_nothing_costs_a_completion_nothing_and_acknowledges_nothing(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"this is no database" * 10)
    clock = Clock()
    async with sink(tmp_path, clock=clock) as telemetry, gateway(feedback=telemetry) as world, world.peer() as peer:
        await peer.send(Feedback(batch="b1", events=[opportunity(1)]))
        told = await peer.error()
        assert (told.code, told.field) == (ErrorCode.OVERLOADED, "batch")
        await peer.still_works()
        (tmp_path / "events.db").unlink()
        await peer.send(Feedback(batch="b1", events=[opportunity(1)]))
        assert isinstance(await peer.receive(), Error)  # not tried again at once
        clock.now_s += 31
        await peer.send(Feedback(batch="b1", events=[opportunity(1)]))
        assert await peer.receive() == Ack(batch="b1")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_store_is_opened_for_the_others_too_where_the_first_one_leaves(
    tmp_path: Path, monkeypatch: Any, fails: bool
) -> None:
    entered, goes_on, real = asyncio.Event(), asyncio.Event(), upkeep.unsummed

    async def slow(store: Store) -> Any:
        entered.set()
        await goes_on.wait()
        if fails:
            raise StoreError("a lock was not to be had")
        return await real(store)

    monkeypatch.setattr(upkeep, "unsummed", slow)
    clock = Clock()
    async with sink(tmp_path, clock=clock) as telemetry:
        first = asyncio.create_task(telemetry(SENDER, "b1", []))
        await entered.wait()
        second = asyncio.create_task(telemetry(SENDER, "b2", []))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        goes_on.set()
        if fails:
            with pytest.raises(StoreError, match="a lock"):
                await second
            monkeypatch.setattr(upkeep, "unsummed", real)
            clock.now_s += 31
        else:
            await second
        async with asyncio.timeout(60):
            await telemetry(SENDER, "b3", [opportunity(1)])
        assert await (await telemetry.open()).count() == 1


async def test_what_no_client_can_have_measured_spoils_no_figure_and_is_answered(tmp_path: Path) -> None:
    async with sink(tmp_path) as telemetry:
        for feedback in (None, telemetry):
            async with gateway(feedback=feedback) as world, world.peer(json=True) as peer:
                for number, said in enumerate(("2", "-5000", "1" + "0" * 400, "true")):
                    event = f'{{"event":"result","session":"s1","seq":{number},"t_ms":1,"at_ms":1,"id":"r","last_ms":1,"stages_ms":{{"network":{said}}}}}'
                    await peer.send(f'{{"type":"feedback","batch":"b{number}","events":[{event}]}}')
                    answer = await peer.receive()
                    if isinstance(answer, Error):  # the event is named; the batch is answered all the same
                        answer = await peer.receive()
                    assert isinstance(answer, Ack)
                metrics = world.service.metrics.render()
                assert total(metrics, "foretype_stage_seconds_count", stage="network") == 1
                assert total(metrics, "foretype_stage_seconds_sum", stage="network") == 0.002


async def test_an_event_that_was_refused_is_in_no_figure(tmp_path: Path) -> None:
    async with sink(tmp_path) as telemetry, gateway(feedback=telemetry) as world, world.peer() as peer:
        told = list[object]()
        world.gateway.stream.feedback.told.add(lambda _sender, events: told.extend(events))
        right, wrong = display(1, "a", 900.0), display(2, "b", 900.0, lines=-1)
        await peer.send(Feedback(batch="b1", events=[wrong, right]))
        assert (await peer.error()).field == "events[0].lines"
        assert await peer.receive() == Ack(batch="b1", refused=1)
        metrics = world.service.metrics.render()
        assert total(metrics, "foretype_suggestions_total") == total(metrics, "foretype_feedback_events_total") == 1
        assert told == [right]


async def test_too_much_at_once_is_refused_and_what_was_taken_is_whole(tmp_path: Path) -> None:
    async with sink(tmp_path) as telemetry:
        await telemetry(SENDER, "b0", [])
        batches = [[opportunity(start + seq) for seq in range(1000)] for start in range(0, 30_000, 1000)]
        results = await asyncio.gather(
            *(telemetry(SENDER, f"b{index}", events) for index, events in enumerate(batches)), return_exceptions=True
        )
        taken = [result for result in results if not isinstance(result, BaseException)]
        assert len(taken) == 20 and all(isinstance(r, StoreError) for r in results if isinstance(r, BaseException))
        assert await (await telemetry.open()).count() == 20_000


async def test_one_batch_that_cannot_be_stored_takes_no_other_with_it(tmp_path: Path, monkeypatch: Any) -> None:
    async with sink(tmp_path) as telemetry:
        store = await telemetry.open()
        write = store.write

        async def fail_on_seven(rows: Any) -> None:
            if any(row[3] == 7 for row in rows):
                raise StoreError("seven")
            await write(rows)

        monkeypatch.setattr(store, "write", fail_on_seven)
        results = await asyncio.gather(
            *(telemetry(SENDER, f"b{seq}", [opportunity(seq)]) for seq in range(5, 10)), return_exceptions=True
        )
        assert [isinstance(result, StoreError) for result in results] == [False, False, True, False, False]
        assert await store.keys("s1") == {5, 6, 8, 9}


async def test_sums_and_retention_are_kept_up_also_after_a_sudden_end(tmp_path: Path) -> None:
    clock = Clock()
    async with sink(tmp_path, clock=clock) as telemetry:
        await telemetry(SENDER, "b1", [opportunity(1), accept(2, "a", 5)])
    # It ended before it summed: the next process finds the days by itself.
    async with sink(tmp_path, clock=clock) as telemetry:
        from foretype_backend.telemetry.aggregate import figures

        store = await telemetry.open()
        await telemetry.tidy()
        (got,) = await figures(store)
        assert (got.counts["opportunities"], got.counts["accepted_characters"]) == (1, 5)
        await store.set_consent(Consent("default", events_days=10))
        clock.wall_ms += 11 * 86_400_000
        await telemetry.tidy()
        assert await store.count() == 0
        (kept,) = await figures(store)
        assert kept.counts["opportunities"] == 1  # sums outlive the events


async def test_at_rest_there_is_only_to_do_what_a_date_or_a_consent_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tidied = Clock(), list[object]()
    monkeypatch.setattr("foretype_backend.telemetry.sink._HOUSEKEEPING_S", 0.001)
    upkeep_tidy = upkeep.tidy

    async def counted(*given: Any, **options: Any) -> list[Consent]:
        found = await upkeep_tidy(*given, **options)
        tidied.append(options["today"])
        return found

    monkeypatch.setattr(upkeep, "tidy", counted)

    async def at_rest() -> int:
        """How often it was tidied by the time that nothing is left to do: never, where every look does it again."""
        async with asyncio.timeout(60):
            while True:
                before = len(tidied)
                await asyncio.sleep(0.1)
                if before and len(tidied) == before:
                    return before

    async with sink(tmp_path, clock=clock) as telemetry:
        await telemetry(SENDER, "b1", [opportunity(1)])
        summed = await at_rest()
        await (await telemetry.open()).set_consent(Consent("default", events_days=10))
        await until(lambda: len(tidied) > summed)
        agreed = await at_rest()
        clock.wall_ms += 86_400_000
        await until(lambda: len(tidied) > agreed)
        dated = await at_rest()
        await telemetry(SENDER, "b2", [opportunity(2)])
        await until(lambda: len(tidied) > dated)


async def test_text_is_kept_only_with_consent_and_only_encrypted(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    secret = "def the_secret_of_the_tenant():"
    clock = Clock()
    async with sink(folder, clock=clock) as telemetry:
        receipt = await telemetry(SENDER, "b1", [opportunity(1), sample(2, secret)])
        assert not receipt.store_text and not (folder / "texts").exists()
        await (await telemetry.open()).set_consent(Consent("default", store_text=True, text_days=5))
        clock.now_s += 31
        receipt = await telemetry(SENDER, "b2", [opportunity(3), sample(4, secret)])
        assert receipt.store_text
        await telemetry(SENDER, "b2", [opportunity(3), sample(4, secret)])  # sent again
    (kept,) = [path for path in (folder / "texts").rglob("*") if path.is_file()]
    assert files_with(folder, secret.encode()) == []
    assert files_with(folder, b"the_secret") == []
    privacy = Privacy(folder)
    # No export without `train`, whatever is stored.
    assert await asyncio.to_thread(privacy.export, folder / "out") == {"tenants": 0, "events": 0, "texts": 0}
    await asyncio.to_thread(lambda: privacy.set("default", train=True))
    assert await asyncio.to_thread(privacy.export, folder / "out") == {"tenants": 1, "events": 2, "texts": 1}
    assert secret in (folder / "out").read_text()
    (folder / "out").unlink()
    changed = bytearray(kept.read_bytes())
    changed[-1] ^= 1
    whole = kept.read_bytes()
    kept.write_bytes(changed)
    with pytest.raises(ValueError, match="cannot be decrypted"):
        await asyncio.to_thread(privacy.export, folder / "out")
    kept.write_bytes(whole)
    async with sink(folder, clock=clock) as telemetry:
        clock.wall_ms += 4 * 86_400_000
        await telemetry.tidy()
        assert kept.exists()
        clock.wall_ms += 2 * 86_400_000
        await telemetry.tidy()
        assert not kept.exists()


async def test_withdrawn_consent_removes_texts_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    async with sink(folder) as telemetry:
        await (await telemetry.open()).set_consent(Consent("default", store_text=True))
        await telemetry(SENDER, "b1", [sample(1, "text")])
    assert [path for path in (folder / "texts").rglob("*") if path.is_file()]
    await asyncio.to_thread(lambda: Privacy(folder).set("default", store_text=False))
    assert not [path for path in (folder / "texts").rglob("*") if path.is_file()]


@pytest.mark.parametrize("whole_tenant", [False, True])
async def test_deletion_leaves_no_byte_in_any_file(tmp_path: Path, whole_tenant: bool) -> None:
    """By user and by tenant, while a gateway has the store open, after sums were made."""
    folder = tmp_path / "telemetry"
    other = "f" * 32
    async with sink(folder) as telemetry:
        await (await telemetry.open()).set_consent(Consent("default", store_text=True))
        for start in range(0, 3000, 1000):
            events = [display(start + seq, f"session-of-{USER[:8]}", 900.0) for seq in range(1000)]
            await telemetry(SENDER, f"b{start}", [*events, sample(9000 + start, "text")])
        if not whole_tenant:
            await telemetry(Sender("c2", user=other), "b9", [opportunity(1), sample(2, "text")])
        await telemetry.tidy()
        assert files_with(folder, USER.encode()) and files_with(folder, b"session-of-01234567")
        removed = await asyncio.to_thread(Privacy(folder).delete, "default", None if whole_tenant else USER)
        assert removed == {"events": 3000, "texts": 3}
        assert files_with(folder, USER.encode()) == []
        assert files_with(folder, b"session-of-01234567") == []
        if whole_tenant:
            assert files_with(folder, b"default") == []
        else:
            assert files_with(folder, other.encode())
        receipt = await telemetry(SENDER, "b10", [opportunity(1)])  # and the gateway goes on
        assert not receipt.refused


def test_a_store_that_was_named_must_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    (tmp_path / "text").write_text("no database " * 50)
    with pytest.raises(typer.Exit) as ended:
        serve(engine="scripted", port=0, telemetry_url=str(tmp_path / "text"), state_dir=tmp_path)
    assert ended.value.exit_code == 2
    assert "telemetry.url: the store" in capsys.readouterr().err
