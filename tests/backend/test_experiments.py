"""Live experiments where something is wrong: overlaps, clients and gateways that cannot follow, a store that is away, two at once."""

import asyncio
import datetime
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from backend.experiment_world import EVERYTHING, HOUR_MS, Office, drafted, office, spec
from backend.identity_world import NOW_MS
from backend.test_chat import pool_of
from backend.world import TOKENIZER_PATH, gateway, profile, until
from foretype_backend.errors import EntryError, StoreError, VariantError
from foretype_backend.experiments.assign import Arm, LeftOut, Person
from foretype_backend.experiments.commands import app
from foretype_backend.experiments.experiment import Experiment, State, arm_of
from foretype_backend.experiments.judge import ALONE_MS, followed_by, report
from foretype_backend.experiments.live import LEASE_MS, LOOK_MS, SAY_MS, LiveExperiments
from foretype_backend.experiments.results import rows_of
from foretype_backend.experiments.rows import UserDay
from foretype_backend.experiments.store import ExperimentStore
from foretype_backend.experiments.variants import Knobs, applied, parse_knobs, settings
from foretype_backend.identity.store import IdentityStore
from foretype_backend.telemetry.store import Store
from foretype_context.prompt.layouts import LAYOUTS
from foretype_context.prompt.profile import KNOBS, Profile
from sqlalchemy import text
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util import greenlet_spawn
from typer.testing import CliRunner

FAST = Knobs(debounce_ms=20.0)


async def started(place: Office, name: str, knobs: Knobs = FAST, **whom: str) -> None:
    await drafted(place.store, name, spec(treatment=knobs), place.clock, **whom)
    await place.store.start(name, place.clock.now_ms)
    await place.follow()


async def looked(place: Office, later_ms: int = LOOK_MS) -> None:
    place.clock.now_ms += later_ms
    await place.live.decide()
    await place.follow()


@pytest.mark.parametrize(
    ("raw", "field", "told"),
    [
        ({"budgets": {"prompt_tokens": 3}}, "treatment.budgets.prompt_tokens", ">= 64"),
        ({"budgets": {"promt_tokens": 300}}, "treatment.budgets.promt_tokens", "unknown field"),
        ({"debounce_ms": 5000}, "treatment.debounce_ms", "<= 1000"),
        ({"min_mean_logprob": {"line": 1.0}}, "treatment.min_mean_logprob.line", "<= 0"),
        ({"local_min_confidence": 2}, "treatment.local_min_confidence", "<= 1"),
        ({"speculative": "yes"}, "treatment.speculative", "Expected `bool"),
        ({"layout": "spn"}, "treatment.layout", "none of"),
        ({"pool": "huge"}, "treatment.pool", "Invalid enum value"),
        ({"strategy": "mine-1"}, "treatment.strategy", "no client knows it without strategy_rules"),
        ({"strategy_rules": {"id": "mine-1", "share": 1}}, "treatment.strategy_rules.share", "no field of a strategy"),
        ({"strategy_rules": {"id": "default-1", "echo": 0.1}}, "treatment.strategy_rules.id", "clients know"),
        ({"strategy_rules": {"id": "a-1", "echo": 9}}, "treatment.strategy_rules.echo", "<= 1"),
    ],
)
def test_a_variant_beyond_its_bounds_is_refused_by_field(raw: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(VariantError, match=told) as refused:
        parse_knobs(raw, "treatment")
    assert refused.value.field == field


def test_every_knob_reaches_the_profile_and_nothing_else_changes() -> None:
    raw = settings(
        [
            "budgets.prompt_tokens=1500",
            "budgets.context_tokens=300",
            "layout=psm_growing",
            "strategy=edits-first-1",
            "min_mean_logprob.line=-0.5",
            "local_min_confidence=0.8",
            "debounce_ms=120",
            "speculative=true",
            "pool=quality",
        ]
    )
    plain = profile()
    made = applied(plain, parse_knobs(raw), layouts=LAYOUTS, pools=("fast", "quality"))
    changed = {name for name in Profile.__struct_fields__ if getattr(made, name) != getattr(plain, name)}
    assert changed == {
        "budgets",
        "layout",
        "strategy",
        "min_mean_logprob",
        "local_min_confidence",
        "debounce_ms",
        "speculative",
    }
    assert (made.budgets.prompt_tokens, made.budgets.context_tokens, made.budgets.suffix_tokens) == (1500, 300, 250)
    assert made.min_mean_logprob.line == -0.5 and made.min_mean_logprob.block == plain.min_mean_logprob.block
    assert parse_knobs(raw).needs() == {*KNOBS, "layout.psm_growing"}
    with pytest.raises(VariantError, match=r"budgets\.prompt_tokens: .* more than the model's 2048"):
        applied(plain, parse_knobs({"budgets": {"prompt_tokens": 2000}}), layouts=LAYOUTS, pools=())


def test_two_gateways_and_two_editors_of_one_developer_see_the_same_and_a_client_that_knows_less_nothing() -> None:
    one = Experiment("a", "acme", "", spec(treatment=FAST), State.RUNNING)
    everything = frozenset(EVERYTHING)
    arms: set[str] = set()
    for number in range(20):
        person = Person("acme", "", f"u{number}")
        first, second = (arm_of([one], person, everything, NOW_MS + later) for later in (0, 1000))
        assert first == second and isinstance(first, Arm)
        arms.add(first.variant)
        assert arm_of([one], person, everything - {"debounce"}, NOW_MS) == LeftOut("a", ("debounce",))
    assert arms == {"control", "treatment"}
    assert arm_of([one], Person("other", "", "u1"), everything, NOW_MS) is None
    assert arm_of([one], Person("acme", "", ""), everything, NOW_MS) == LeftOut("a", ("user",))


def test_what_was_not_measured_yet_is_counted_beside_the_rows() -> None:
    done: dict[str, Any] = {"day": datetime.date(2026, 3, 2), "opportunities": 9, "displays": 9, "accepts": 1}
    rows = [
        UserDay(user=f"u{number}", variant=variant, chars_accepted=5, chars_retained=kept, block=number, **done)
        for number, (variant, kept) in enumerate([("control", 5), ("treatment", None), ("treatment", 5)])
    ]
    found = report(Experiment("a", "acme", "", spec(treatment=FAST), State.RUNNING), rows, {}, NOW_MS)
    assert (found["n"]["unmeasured"], found["n"]["rows"]) == (1, 3)


async def test_an_experiment_that_overlaps_another_does_not_start_and_one_beside_it_does(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        await started(place, "first", team="red")
        for name, whom in (
            ("whole", {"team": ""}),
            ("everybody", {"tenant": "", "team": ""}),
            ("red", {"team": "red"}),
        ):
            await drafted(place.store, name, spec(treatment=FAST), place.clock, **whom)
            with pytest.raises(
                EntryError, match=r"not started: it would overlap 'first', which runs on acme, team red"
            ):
                await place.store.start(name, NOW_MS)
            assert (await place.store.experiment(name)).state is State.DRAFT
        await drafted(place.store, "blue", spec(treatment=FAST), place.clock, team="blue")
        assert (await place.store.start("blue", NOW_MS)).state is State.RUNNING


async def test_two_that_would_overlap_started_at_once_do_not_both_run(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        for name in ("one", "two"):
            await drafted(place.store, name, spec(treatment=FAST), place.clock)
        done = await asyncio.gather(
            *(place.store.start(name, NOW_MS) for name in ("one", "two")), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in done) == ["EntryError", "Experiment"]


async def test_of_two_administrators_the_second_is_told_of_the_first(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        await started(place, "a")
        seen = await place.store.experiment("a")
        await place.store.stop("a", NOW_MS, reason="enough", by="ann", version=seen.version)
        with pytest.raises(
            EntryError, match=r"changed by somebody else: you saw version 2, it is at version 3, stopped by ann"
        ):
            await place.store.stop("a", NOW_MS, reason="mine", by="bob", version=seen.version)
        with pytest.raises(EntryError, match="was stopped already, by ann: enough"):
            await place.store.stop("a", NOW_MS, reason="mine", by="bob")
        assert (await place.store.experiment("a")).reason == "enough"


async def test_a_client_that_is_too_old_is_left_out_and_says_what_it_lacks(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        new = await place.developer("new")
        old = await place.developer("old", knobs=[])
        half = await place.developer("half", knobs=[one for one in EVERYTHING if one != "debounce"])
        await started(place, "a")
        assert (await new.told()).experiment == "a"
        assert old.profile == half.profile and old.profile is not None and old.profile.experiment == ""
        await looked(place, SAY_MS)
        (seen,) = await place.store.seen("a")
        assert (seen.followed, seen.left_out, seen.missing) == (1, 2, {"arms": 1, "debounce": 2})
        # Nothing was said to them meanwhile: what they ask is answered at once.
        for one in (old, half):
            await one.work(place.clock, 1)
        await looked(place, ALONE_MS)
        assert (await place.store.experiment("a")).state is State.RUNNING, "somebody follows"


async def test_a_variant_that_no_client_can_apply_stops_itself_and_says_why(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        await place.developer("old", knobs=["arms"])
        await started(place, "a")
        await looked(place, SAY_MS)
        await looked(place)
        clients = followed_by(await place.store.seen("a"), place.clock.now_ms)
        assert (clients["connected"], clients["followed"], clients["missing"]) == (1, 0, {"debounce": 1})
        assert (await place.store.experiment("a")).state is State.RUNNING, "somebody newer may come"
        await looked(place, ALONE_MS)
        stopped = await place.store.experiment("a")
        assert stopped.by == "gateway"
        assert stopped.reason == "no client can apply it: of 1 connected none knows all of it; missing: debounce (1)"


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        (Knobs(layout="spm_plain"), "variant treatment: layout: 'spm_plain' is none of"),
        (Knobs(pool="quality"), "variant treatment: pool: this gateway has no pool 'quality'; it has fast"),
    ],
)
async def test_a_variant_that_a_gateway_cannot_apply_is_shown_to_nobody_and_stops(
    tmp_path: Path, knobs: Knobs, told: str
) -> None:
    async with office(tmp_path) as place:
        one = await place.developer("new")
        await started(place, "a", knobs)
        await looked(place)
        stopped = await place.store.experiment("a")
        assert stopped.by == "gateway" and told in stopped.reason
        assert one.profile is not None and one.profile.experiment == ""
        await one.work(place.clock, 1)  # no other profile came before its answers


async def test_while_the_store_is_away_the_last_assignment_serves_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(tmp_path, turn_s=0.01) as place:
        one = await place.developer("new")
        await started(place, "a")
        before = await one.told()
        file = tmp_path / "identity.db"
        stores: Sequence[IdentityStore] = [place.identity.watch._store, place.store._store]
        pools = await opened_anew(stores)
        moved(tmp_path, "identity", "away")
        file.mkdir()
        place.clock.now_ms += HOUR_MS
        with caplog.at_level(logging.WARNING):
            await place.live.start()
            after = await one.told()  # the next block begins all the same
            await until(lambda: "the last known assignment serves, guardrails wait" in caplog.text)
        assert (after.experiment, after.block) == ("a", before.block + 1)
        with pytest.raises(StoreError):
            await place.follow()
        assert place.live.running == ("a",)
        late = await place.developer("late")
        assert late.profile is not None and late.profile.experiment == "a"
        await late.work(place.clock, 1)
        file.rmdir()
        moved(tmp_path, "away", "identity")
        pools += await opened_anew(stores)  # between the two lines above somebody who looks may have made an empty one
        await place.store.stop("a", place.clock.now_ms, reason="enough", by="ann")
        await place.follow()
        assert (await one.told()).experiment == ""
        for pool in pools:
            await greenlet_spawn(pool.dispose)


async def opened_anew(stores: Sequence[IdentityStore]) -> list[AsyncAdaptedQueuePool]:
    """Their next connections are new ones. A connection that is in use goes back to its old pool, which is to be disposed of later."""
    pools: list[AsyncAdaptedQueuePool] = []
    for store in stores:
        assert isinstance(store.engine.pool, AsyncAdaptedQueuePool)
        pools.append(store.engine.pool)
        await store.engine.dispose()
    return pools


def moved(folder: Path, old: str, new: str) -> None:
    """A store with its log of changes."""
    for part in folder.glob(f"{old}.db*"):
        part.rename(folder / part.name.replace(old, new))


async def test_a_tenant_that_is_deleted_ends_its_experiment(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        await place.developer("new")
        await started(place, "a")
        async with place.store._store.writing() as connection:
            await connection.execute(text("DELETE FROM id_tenants WHERE name = 'acme'"))
            await connection.execute(text("UPDATE id_state SET value = value + 1 WHERE name = 'version'"))
        await place.follow()
        await looked(place)
        stopped = await place.store.experiment("a")
        assert (stopped.by, stopped.reason) == ("gateway", "tenant 'acme' is gone")
        assert place.live.running == ()
        with pytest.raises(EntryError, match="no tenant 'acme'"):
            await drafted(place.store, "b", spec(treatment=FAST), place.clock)


async def test_blocks_are_the_gateways_whatever_a_clients_clock_says(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        for name, skew in (("late", -5 * HOUR_MS), ("early", 5 * HOUR_MS), ("mad", 10**12), ("right", 0)):
            await place.developer(name, skew_ms=skew)
        await started(place, "a")
        blocks = {(await one.told()).block for one in place.developers}
        await place.hour()
        events = await Store.open(str(tmp_path / "events.db"))
        place.clock.now_ms += HOUR_MS
        rows = await rows_of(events, await place.store.experiment("a"), place.clock.now_ms)
        await events.close()
        assert {row.block for row in rows} == blocks and len(blocks) == 1
        assert {row.user for row in rows} == {one.name for one in place.developers}


async def test_a_gateway_that_decides_ends_though_its_store_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with office(tmp_path, name="one") as place:
        await started(place, "a")
        await place.live.decide()
        assert place.live.leads
        with monkeypatch.context() as silent:
            silent.setattr("foretype_backend.experiments.live._GOODBYE_S", 0.01)
            silent.setattr(ExperimentStore, "resign", lambda *_: asyncio.Event().wait())
            async with asyncio.timeout(60):
                await place.live.close()


async def test_one_gateway_of_two_decides_and_the_other_takes_over(tmp_path: Path) -> None:
    async with office(tmp_path, name="one") as place:
        await started(place, "a")
        other = LiveExperiments(place.store, name="two", wall_ms=place.clock)
        other.follow(place.identity.directory)
        await asyncio.gather(place.live.decide(), other.decide(), return_exceptions=True)
        place.clock.now_ms += SAY_MS
        await place.live.decide()
        await other.decide()
        assert sorted((place.live.leads, other.leads)) == [False, True]
        leader, second = (place.live, other) if place.live.leads else (other, place.live)
        assert await place.store.leader(place.clock.now_ms) == leader._name
        # It ends without a word: nobody decides until its lease is over.
        place.clock.now_ms += LEASE_MS - SAY_MS
        await second.decide()
        assert not second.leads
        place.clock.now_ms += SAY_MS + 1
        await second.decide()
        assert second.leads
        await second.close()  # it says goodbye: the next one need not wait
        assert await place.store.leader(place.clock.now_ms) == ""


async def test_a_variant_may_send_what_is_typed_to_the_other_pool(tmp_path: Path) -> None:
    async with gateway() as server:
        options = {"tokenizer": str(TOKENIZER_PATH), "grammar": "foretype-1", "context_limit_tokens": 2000}
        quality = pool_of(f"{server.url}/v1", **options)
        await quality.start()
        async with office(tmp_path, quality=quality) as place:
            await started(place, "a", Knobs(pool="quality"))
            while {one.profile.variant for one in place.developers if one.profile} != {"control", "treatment"}:
                await place.developer(f"dev{len(place.developers)}")
            for one in place.developers:
                assert one.profile is not None
                before = len(server.engine.requests), len(place.world.engine.requests)
                await one.work(place.clock, 1)
                after = len(server.engine.requests), len(place.world.engine.requests)
                there = (1, 0) if one.profile.variant == "treatment" else (0, 1)
                assert tuple(b - a for a, b in zip(before, after, strict=True)) == there
        await quality.close()


async def test_without_telemetry_nobody_takes_part(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        one = await place.developer("new")
        place.live._telemetry = None
        await started(place, "a")
        assert place.live.seen("a").missing == {"telemetry": 1}
        assert one.profile is not None and one.profile.experiment == ""


def test_the_command_from_draft_to_verdict(tmp_path: Path) -> None:
    store, events = str(tmp_path / "identity.db"), str(tmp_path / "events.db")

    def told(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*arguments, "--store", store])
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.stderr

    file = tmp_path / "treatment.toml"
    file.write_text("debounce_ms = 40\n[budgets]\nprompt_tokens = 1500\n")
    arguments = ["create", "a", "--treatment", str(file), "--set", "budgets.context_tokens=300", "--json"]
    made = json.loads(told(*arguments, "--guardrail", "cost=off", "--guardrail", "first_token_ms=200"))
    assert made["state"] == "draft" and made["needs"] == ["arms", "budgets", "debounce"]
    assert made["spec"]["variants"][1]["knobs"] == {
        "budgets": {"prompt_tokens": 1500, "context_tokens": 300},
        "debounce_ms": 40.0,
    }
    assert made["spec"]["guardrails"]["cost"] is None and made["spec"]["guardrails"]["first_token_ms"] == 200.0
    assert "exists already" in told(*arguments, code=1)
    assert "both change the same" in told("create", "b", code=2)
    assert "--aa" in told("create", "b", "--aa", "--set", "debounce_ms=1", code=2)
    assert "guardrails.kost" in told("create", "b", "--set", "debounce_ms=1", "--guardrail", "kost=1", code=2)
    assert "block_hours" in told("create", "b", "--set", "debounce_ms=1", "--block-hours", "5", code=2)
    assert "metric" in told("create", "b", "--set", "debounce_ms=1", "--metric", "stars", code=2)
    assert "NAME" in told("create", "B b", "--set", "debounce_ms=1", code=1)
    assert "no tenant 'acme'" in told("create", "b", "--set", "debounce_ms=1", "--tenant", "acme", code=1)
    assert json.loads(told("aa", "same", "--json"))["spec"]["aa"] is True
    assert "you saw version 7" in told("start", "a", "--version", "7", code=1)
    assert json.loads(told("start", "a", "--json"))["state"] == "running"
    assert "overlap" in told("start", "same", code=1)
    assert "is running; only a draft" in told("start", "a", code=1)
    assert "is not there" in told("verdict", "a", "--telemetry", events, code=1)
    asyncio.run(made_store(events))
    found = json.loads(told("verdict", "a", "--telemetry", events, "--json"))
    assert (found["verdict"], found["effect"], found["n"]["users"]) == ("none", None, 0)
    assert "nothing to compare" in found["reason"]
    assert "verdict: none" in told("verdict", "a", "--telemetry", events)
    assert json.loads(told("stop", "a", "--reason", "enough", "--json"))["reason"] == "enough"
    (shown,) = json.loads(told("status", "a", "--json"))["experiments"]
    assert (shown["state"], shown["clients"]["connected"], shown["by"] != "") == ("stopped", 0, True)
    assert "decides: no gateway" in told("status")
    asyncio.run(audited_acts(store))


async def made_store(url: str) -> None:
    await (await Store.open(url)).close()


async def audited_acts(url: str) -> None:
    opened = await IdentityStore.open(url)
    async with opened.reading() as connection:
        rows = await connection.execute(text("SELECT action, subject, details FROM id_audit ORDER BY number"))
        acts = [(row.action, row.subject) for row in rows]
        last = (await connection.execute(text("SELECT details FROM id_audit ORDER BY number DESC LIMIT 1"))).scalar()
    await opened.close()
    assert acts == [
        ("experiment.create", "a"),
        ("experiment.create", "same"),
        ("experiment.start", "a"),
        ("experiment.stop", "a"),
    ]
    assert msgspec.json.decode(str(last)) == {"reason": "enough"}


async def test_a_store_that_a_newer_version_wrote_takes_nobody_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(tmp_path) as place:
        one = await place.developer("new")
        await drafted(place.store, "a", spec(treatment=FAST), place.clock)
        async with place.store._store.writing() as connection:
            await connection.execute(text("UPDATE id_experiments SET spec = replace(spec, 'debounce_ms', 'telepathy')"))
            await connection.execute(text("UPDATE id_experiments SET state = 'running'"))
            await connection.execute(text("UPDATE id_state SET value = value + 1 WHERE name = 'version'"))
        with caplog.at_level(logging.WARNING):
            await place.follow()
        assert "written by a newer Foretype" in caplog.text
        assert one.profile is not None and one.profile.experiment == ""
        assert await ExperimentStore(place.store._store).experiments() == []
