"""What an operator is told of promises, stages and scopes: pure rules, and a gateway that is asked and then scraped."""

import re

import pytest
from backend.world import TOKEN, complete, gateway, scripted, segments
from foretype_backend.admission.outcomes import Reason
from foretype_backend.admission.scheduler import Scheduler, SchedulerStatistics
from foretype_backend.engines.port import EngineStatistics
from foretype_backend.metrics.metrics import Metrics
from foretype_backend.metrics.objectives import PromiseOutcome, judged
from foretype_backend.metrics.stages import STAGES, cached_by_scope
from foretype_backend.start.gateway import StartPhases
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from foretype_wire.messages import Error, RequestClass, Timings, Usage
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("reason", "first_text_s", "whole_s", "kept"),
    [
        (Reason.STOP, 0.05, 0.3, PromiseOutcome.MET),
        (Reason.STOP, 0.11, 0.3, PromiseOutcome.LATE),
        (Reason.END_OF_MIDDLE, None, 0.05, PromiseOutcome.MET),  # nothing was to be said, and that came in time
        (Reason.END_OF_MIDDLE, None, 0.2, PromiseOutcome.LATE),
        (Reason.SUPERSEDED, None, 0.05, None),  # the next key came first
        (Reason.SUPERSEDED, None, 0.2, PromiseOutcome.LATE),  # the next key came because nothing did
        (Reason.CANCELLED, 0.05, 0.3, PromiseOutcome.MET),
        (Reason.DISCONNECTED, 0.2, 0.3, PromiseOutcome.LATE),
        (Reason.EXPIRED, None, 0.05, PromiseOutcome.FAILED),
        (Reason.EXPIRED, 0.05, 0.3, PromiseOutcome.MET),
        (Reason.OVERLOADED, None, 0.001, PromiseOutcome.FAILED),
        (Reason.ENGINE_LOST, 0.05, 0.3, PromiseOutcome.FAILED),  # it broke off
        (Reason.FAULT, None, 0.01, PromiseOutcome.FAILED),
        (Reason.RATE_LIMITED, None, 9.0, None),
        (Reason.INVALID, None, 0.01, None),
        (Reason.MISMATCH, None, 0.01, None),
    ],
)
def test_a_promise_is_kept_late_or_broken_or_was_not_made(
    reason: Reason, first_text_s: float | None, whole_s: float, kept: PromiseOutcome | None
) -> None:
    assert judged(reason, first_text_s=first_text_s, whole_s=whole_s, objective_s=0.1) is kept


def test_every_reason_is_judged() -> None:
    for reason in Reason:
        judged(reason, first_text_s=None, whole_s=1.0, objective_s=0.1)


_PLACED = st.lists(st.tuples(st.sampled_from(Scope), st.integers(0, 50)), max_size=8)


@given(_PLACED, st.integers(0, 500))
def test_cached_tokens_of_scopes_add_up_to_the_prefix_that_was_cached(
    rows: list[tuple[Scope, int]], cached: int
) -> None:
    placed, end = list[PlacedSegment](), 0
    for scope, tokens in rows:
        segment = Segment(kind=Kind.FILE, scope=scope, source=Source(), text="")
        placed.append(PlacedSegment(segment=segment, start=end, end=end + tokens))
        end += tokens
    found = cached_by_scope(placed, cached)
    assert sum(tokens for tokens, _ in found.values()) == end
    assert sum(had for _, had in found.values()) == min(cached, end)
    assert all(0 <= had <= tokens for tokens, had in found.values())


def test_phases_follow_each_other_and_one_runs_beside() -> None:
    now = [10.0]
    phases = StartPhases(lambda: now[0])
    for phase, at in (("plan", 11.0), ("stores", 14.0)):
        now[0] = at
        phases.over(phase)
    now[0] = 31.0
    phases.overall("engine", since="plan")
    phases.skip()
    now[0] = 31.5
    phases.over("doors")
    assert phases.seconds == {"plan": 1.0, "stores": 3.0, "engine": 20.0, "doors": 0.5}


def test_stages_that_a_request_never_came_to_are_not_counted() -> None:
    metrics = _metrics()
    refused = Timings(admit=2.0, queue=300.0)
    metrics.stages.ended(RequestClass.INTERACTIVE, refused, Usage(), ())
    text = metrics.render().decode()
    assert _counted(text, "queue") == 1 and _counted(text, "prefill") == 0


def test_the_network_is_what_clients_say_of_it() -> None:
    metrics = _metrics()
    metrics.feedback(
        [
            {"event": "result", "stages_ms": {"network": 30.0, "queue": 1.0}},
            {"event": "result", "stages_ms": {}},
            {"event": "result", "stages_ms": {"network": "long"}},
            {"event": "display", "stages_ms": {"network": 30.0}},
        ]
    )
    text = metrics.render().decode()
    assert _counted(text, "network", class_="") == 1
    assert 'foretype_stage_seconds_sum{class="",stage="network"} 0.03' in text


def test_what_is_watched_is_told_by_its_name() -> None:
    metrics = _metrics()
    metrics.watch_leases(lambda: 3.0)
    metrics.watch_start({"engine": 2.5})
    metrics.watch_loop()(0.001)
    told = metrics.render().decode()
    assert "foretype_leases_away_seconds 3.0" in told and 'foretype_start_seconds{phase="engine"} 2.5' in told
    assert "foretype_loop_lag_seconds_count 1.0" in told


async def test_a_gateway_tells_promises_stages_and_whose_text_was_cached() -> None:
    long = "value = compute(first, second)\n" * 40
    async with gateway(token=TOKEN) as world:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with world.peer(additional_headers=headers) as peer, world.http(headers=headers) as http:
            before = (await http.get("/metrics")).text
            assert _promises(before) == {}  # every outcome is there from the start, at nought
            for id in ("first", "again"):
                await peer.answer(id, segments=segments(prefix=long))
            refused = complete("late", deadline_ms=0.001)
            await peer.send(refused)
            assert isinstance((await peer.until_end("late"))[1], Error)
            text = (await http.get("/metrics")).text
    assert _promises(text) == {("interactive", "met"): 2.0, ("interactive", "failed"): 1.0}
    assert 'foretype_objective_seconds{class="interactive"} 0.1' in text
    for stage in set(STAGES) - {"network"}:
        assert _counted(text, stage, class_="" if stage == "authenticate" else "interactive") >= 2, stage
    told = dict(re.findall(r'^foretype_scope_(prompt|cached)_tokens_total{scope="file"} (\S+)$', text, re.MULTILINE))
    assert 0 < float(told["cached"]) < float(told["prompt"])


async def test_an_answer_that_broke_off_is_a_promise_that_was_broken() -> None:
    engine = scripted("word " * 8)
    async with gateway(engine) as world, world.peer() as peer, world.http() as http:
        engine.fail_next(after_tokens=3)
        await peer.refusal()
        assert _promises((await http.get("/metrics")).text) == {("interactive", "failed"): 1.0}


def _metrics() -> Metrics:
    def nobody() -> int:
        return 0

    scheduler: SchedulerStatistics = Scheduler().statistics()
    nothing = EngineStatistics(0, 0, 0, 0, 0, 0, 0)
    return Metrics(engine=lambda: nothing, scheduler=lambda: scheduler, connections=nobody)


def _counted(text: str, stage: str, class_: str = "interactive") -> int:
    found = re.search(rf'^foretype_stage_seconds_count{{class="{class_}",stage="{stage}"}} (\S+)$', text, re.MULTILINE)
    return 0 if found is None else int(float(found[1]))


def _promises(text: str) -> dict[tuple[str, str], float]:
    rows = re.findall(r'^foretype_objective_total{class="(\w+)",outcome="(\w+)"} (\S+)$', text, re.MULTILINE)
    assert len(rows) == 21
    return {(class_, outcome): float(count) for class_, outcome, count in rows if float(count)}
