"""A new revision goes to more and more developers, or back by itself: with gateways that count, in virtual time."""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from foretype_backend.errors import RolloutError
from foretype_backend.experiments.guardrails import Guardrails
from foretype_backend.fleet.rollout.counters import Counts, counted, read_revisions
from foretype_backend.fleet.rollout.machine import (
    Rollout,
    RolloutEvent,
    RolloutOptions,
    announced,
    back,
    begin,
    gate_passes,
    look,
    read,
    warm,
)
from hypothesis import given
from hypothesis import strategies as st

PASSES = {"metric": "no_harm", "verdict": "passes", "passes": True, "reason": ""}
LOOK_S = 10.0
ALIKE: dict[str, float] = {"failed": 0.002, "cancelled": 0.3, "syntax_errors": 0.02, "accepted": 0.3, "p99_ms": 40.0}


@dataclass
class Gateway:
    """Counts since its start, of developers who ask so often a look."""

    requests: int = 400
    counts: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    p99_ms: dict[str, float] = field(default_factory=dict[str, float])
    silent: bool = False

    def serve(self, rollout: Rollout, kinds: dict[str, dict[str, float]], chance: random.Random) -> None:
        for revision, share in ((rollout.canary, rollout.share), (rollout.stable, 1 - rollout.share)):
            asked, kind = round(self.requests * share), kinds[revision]
            found = self.counts.setdefault(revision, {})
            shown = asked // 2
            news = {"requests": asked, "shown": shown}
            for name, of in (("failed", asked), ("cancelled", asked), ("syntax_errors", shown), ("accepted", shown)):
                news[name] = sum(chance.random() < kind[name] for _ in range(of))
            for name, count in news.items():
                found[name] = found.get(name, 0) + count
            self.p99_ms[revision] = kind["p99_ms"]

    def restart(self) -> None:
        self.counts.clear()

    def says(self) -> dict[str, Counts]:
        revisions = {
            name: {**counts, "ttft_ms": {"p50": 11.0, "p99": self.p99_ms[name]}} for name, counts in self.counts.items()
        }
        answer = msgspec.json.decode(msgspec.json.encode({"fast": {"running": 1, "revisions": revisions}}))
        found = read_revisions(answer, "fast")
        assert found is not None
        return found


class World:
    """Two gateways, a look each ten seconds."""

    def __init__(self, *, seed: int = 1, options: RolloutOptions | None = None, **canary: float) -> None:
        self.gateways = {"eu": Gateway(), "us": Gateway(requests=200)}
        self.chance, self.now_s = random.Random(seed), 1_000.0
        self.kinds = {"r1": ALIKE, "r2": {**ALIKE, **canary}}
        self.rollout = begin(
            "fast", stable="r1", canary="r2", number=7, now_s=self.now_s, options=options, verdict=PASSES
        )
        self.shares = [self.rollout.share]

    def look(self) -> Rollout:
        self.now_s += LOOK_S
        for one in self.gateways.values():
            one.serve(self.rollout, self.kinds, self.chance)
        told = {name: one.says() for name, one in self.gateways.items() if not one.silent}
        self.rollout = read(msgspec.json.encode(look(self.rollout, told, self.now_s)))
        if self.rollout.share != self.shares[-1]:
            self.shares.append(self.rollout.share)
        return self.rollout

    def run(self, seconds: float = 4 * 3_600.0) -> Rollout:
        until_s = self.now_s + seconds
        while self.now_s < until_s and self.look().state == "rolling":
            pass
        return self.rollout


def test_a_revision_that_is_as_good_goes_to_everybody_step_by_step() -> None:
    world = World()
    assert announced(world.rollout) == {"stable": "r1", "canary": "r2", "share": 0.05, "number": 7}
    done = world.run()
    assert (done.state, world.shares) == ("done", [0.05, 0.25, 0.5, 1.0, 0.0])
    assert announced(done) == {"stable": "r2", "canary": None, "share": 0.0, "number": 7}
    times = [event.at_s for event in done.events]
    assert all(later - sooner >= 600 for sooner, later in itertools.pairwise(times)), "ten minutes each"
    assert [event.what for event in done.events] == ["5%", "25%", "50%", "100%", "done"]
    assert "acceptance 3" in done.events[1].why and "n = " in done.events[1].why


@pytest.mark.parametrize(
    ("name", "worse"),
    [("failed", 0.2), ("cancelled", 0.55), ("syntax_errors", 0.25), ("accepted", 0.1), ("p99_ms", 400.0)],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_guardrail_takes_a_worse_one_back_at_the_first_step_and_says_why(
    name: str, worse: float, seed: int
) -> None:
    world = World(seed=seed)
    world.kinds["r2"] = {**ALIKE, name: worse}
    ended = world.run()
    told = {"cancelled": "cancel_rate", "accepted": "acceptance", "p99_ms": "first_token"}.get(name, name)
    assert (ended.state, world.shares) == ("back", [0.05, 0.0])
    assert ended.last.what == "back" and ended.last.why.startswith(told)
    assert announced(ended) == {"stable": "r1", "canary": None, "share": 0.0, "number": 7}
    assert warm(ended, world.now_s) == ("r1",)


def test_one_that_fails_altogether_is_back_within_a_minute() -> None:
    world = World(failed=1.0)
    ended = world.run()
    assert ended.state == "back"
    assert world.now_s - 1_000.0 <= 60.0


def test_one_that_gets_worse_when_everybody_is_on_it_is_taken_back_too() -> None:
    world = World()
    while world.look().share < 1:
        pass
    world.kinds["r2"] = {**ALIKE, "accepted": 0.1}
    ended = world.run()
    assert (ended.state, announced(ended)["stable"]) == ("back", "r1")


@pytest.mark.slow
def test_of_canaries_without_a_difference_few_are_taken_back() -> None:
    options = RolloutOptions(
        guardrails=Guardrails(
            cost=None, retention=None, cancel_rate=0.0, acceptance=0.0, syntax_errors=0.0, first_token=None
        ),
        failed=0.0,
        step_s=3_600.0,
    )
    stopped = 0
    for seed in range(40):
        world = World(seed=seed, options=options)
        stopped += world.run(1_000.0).state == "back"
    assert stopped == 0, "no margin helps here: 40 times a hundred looks"


def test_without_evidence_it_stays_where_it_is_and_says_what_is_missing() -> None:
    world = World()
    for one in world.gateways.values():
        one.requests = 1
    assert world.run(7_200.0).share == 0.05
    assert world.rollout.waits == "0 requests of the canary; 200 are needed at this step"
    for one in world.gateways.values():
        one.requests = 400
    assert world.run().state == "done"


def test_a_count_that_no_gateway_gives_holds_it_until_that_guardrail_is_switched_off() -> None:
    def run(options: RolloutOptions) -> Rollout:
        rollout = begin("fast", stable="r1", canary="r2", number=1, now_s=0.0, options=options, verdict=PASSES)
        for at in range(1, 40):
            sums = {"requests": 100 * at, "failed": 0, "cancelled": 0, "shown": 0}
            told = {"eu": {"r1": Counts(**sums), "r2": Counts(**sums)}}
            rollout = look(rollout, told, 20.0 * at)
        return rollout

    held = run(RolloutOptions())
    assert held.share == 0.05
    assert "syntax_errors: no gateway counts syntax_errors of shown yet" in held.waits
    free = Guardrails(cost=None, retention=None, acceptance=None, syntax_errors=None)
    assert run(RolloutOptions(guardrails=free)).share == 0.25


def test_it_goes_back_by_hand_at_any_time_while_the_old_one_is_warm() -> None:
    world = World()
    by_hand = back(world.rollout, world.now_s, "by hand: odd completions")
    assert announced(by_hand) == {"stable": "r1", "canary": None, "share": 0.0, "number": 7}
    assert back(by_hand, world.now_s, "again") is by_hand
    assert look(by_hand, {}, world.now_s + 10) is by_hand
    done = world.run()
    assert warm(done, world.now_s + 3_599) == ("r1", "r2")
    assert announced(back(done, world.now_s + 3_599, "by hand"))["stable"] == "r1"
    assert warm(done, world.now_s + 3_600) == ("r2",)
    with pytest.raises(RolloutError, match="not kept warm"):
        back(done, world.now_s + 3_600, "by hand")


def test_gateways_that_restart_come_and_go_are_counted_once() -> None:
    def one(requests: int) -> dict[str, Counts]:
        return {"r1": Counts(requests=requests, failed=0)}

    before = counted({}, {"eu": one(1_000)}, 0.0)
    assert before.fresh == {}, "what it counted before is not ours"
    told = counted(before.gateways, {"eu": one(1_010), "us": one(500)}, 1.0)
    assert told.fresh == {"eu": {"r1": Counts(requests=10, failed=0)}}
    told = counted(told.gateways, {"eu": one(4), "us": one(505)}, 2.0)
    assert [told.fresh[name]["r1"].requests for name in ("eu", "us")] == [4, 5], "eu began anew"
    told = counted(told.gateways, {"us": {}}, 3.0)
    assert told.fresh == {"us": {}}
    told = counted(told.gateways, {"eu": one(5), "us": one(507)}, 4.0)
    assert [told.fresh[name]["r1"].requests for name in ("eu", "us")] == [1, 2], "a revision that was away is known"
    late = counted(told.gateways, {"us": one(600)}, 90_000.0)
    assert set(late.gateways) == {"us"}, "who is silent for a day is forgotten"
    many = counted({}, {str(number): one(1) for number in range(100)}, 0.0)
    assert len(many.gateways) == 64


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.sampled_from(["on", "on", "on", "restart", "silent"]), st.booleans()),
        max_size=30,
    )
)
def test_what_is_counted_is_never_more_than_what_was_served(steps: list[tuple[int, str, bool]]) -> None:
    gateways, told_sum, served = {}, 0, 0
    total = 0
    for at, (news, how, _) in enumerate(steps):
        if how == "restart":
            total = 0
        total += news
        served += news
        if how == "silent":
            continue
        found = counted(gateways, {"eu": {"r1": Counts(requests=total)}}, float(at))
        gateways = found.gateways
        told_sum += sum(one["r1"].requests or 0 for one in found.fresh.values())
    assert told_sum <= served
    if steps and all(how == "on" for _, how, _ in steps):
        assert told_sum == served - steps[0][0]


def test_restarts_and_a_silent_gateway_do_not_stop_it() -> None:
    world = World()
    for at in range(2_000):
        if at % 7 == 3:
            world.gateways["eu"].restart()
        world.gateways["us"].silent = at % 5 > 2
        if world.look().state != "rolling":
            break
    assert (world.rollout.state, world.shares) == ("done", [0.05, 0.25, 0.5, 1.0, 0.0])


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ({**PASSES, "verdict": "fails", "passes": False, "reason": "worse"}, r"no_harm fails: worse"),
        ({**PASSES, "verdict": "undecided", "passes": False, "reason": "too few"}, "more items"),
        ({**PASSES, "passes": "true"}, "does not let it through"),
        ({}, "is no verdict"),
        ([1], "is no verdict"),
    ],
)
def test_it_does_not_begin_without_the_gate(verdict: Any, told: str) -> None:
    with pytest.raises(RolloutError, match=told):
        begin("fast", stable="r1", canary="r2", number=1, now_s=0.0, verdict=verdict)


def test_what_cannot_be_rolled_out_is_refused_with_the_reason() -> None:
    assert gate_passes(PASSES) == "the quality gate: no_harm passes"
    with pytest.raises(RolloutError, match="or a reason"):
        begin("fast", stable="r1", canary="r2", number=1, now_s=0.0)
    urgent = begin("fast", stable="r1", canary="r2", number=1, now_s=0.0, without_gate="r1 leaks keys", share=0.3)
    assert urgent.last.why == "without the quality gate: r1 leaks keys"
    assert urgent.options.steps == (0.3, 0.5, 1.0)
    with pytest.raises(RolloutError, match="stable revision already"):
        begin("fast", stable="r1", canary="r1", number=1, now_s=0.0, verdict=PASSES)
    for share in (0.0, 1.0, 7.0):
        with pytest.raises(RolloutError, match="below 1"):
            begin("fast", stable="r1", canary="r2", number=1, now_s=0.0, verdict=PASSES, share=share)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"steps": [1.0]}, "must rise from below 1"),
        ({"steps": [0.5, 0.25, 1.0]}, "must rise"),
        ({"guardrails": {}}, "guardrails.cost"),
        ({"step": 5}, "step"),
    ]
    for wrong, told in bad:
        with pytest.raises(msgspec.ValidationError, match=told):
            msgspec.convert(wrong, RolloutOptions)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "version 2"),
        ({"step": 9}, "step 9"),
        ({"state": "lost"}, "cannot be read"),
        ({"stable_counts": {"requests": "many"}}, "cannot be read"),
    ],
)
def test_a_document_that_cannot_be_read_says_what_to_do(change: dict[str, Any], told: str) -> None:
    kept = msgspec.to_builtins(World().rollout)
    assert read(msgspec.json.encode(kept)) == World().rollout
    with pytest.raises(RolloutError, match=told):
        read(msgspec.json.encode({**kept, **change}))
    with pytest.raises(RolloutError, match="take the file away"):
        read(b"{")


def test_a_document_stays_small() -> None:
    world = World()
    events = [RolloutEvent(at_s=world.now_s, what="look", why="x" * 40)] * 50
    world.rollout = msgspec.structs.replace(world.rollout, events=events)
    for number in range(200):
        told = {f"https://gateway-{number}.example.com": {name: Counts(requests=1) for name in ("r1", "r2", "r3")}}
        world.rollout = look(world.rollout, told, world.now_s)
    world.rollout = back(world.rollout, world.now_s, "by hand")
    assert len(world.rollout.events) == 50 and world.rollout.events[-1].what == "back"
    assert len(world.rollout.gateways) == 64
    assert len(msgspec.json.encode(world.rollout)) < 40_000


@pytest.mark.parametrize("answer", [None, 1, [], {}, {"fast": 3}, {"fast": {}}, {"fast": {"revisions": {"r1": 2}}}])
def test_an_answer_without_counts_counts_nothing(answer: Any) -> None:
    assert not read_revisions(answer, "fast")
    odd = {"fast": {"revisions": {"r1": {"requests": True, "shown": -1, "failed": "1", "ttft_ms": 3}}}}
    assert read_revisions(odd, "fast") == {"r1": Counts()}
