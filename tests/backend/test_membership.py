"""Who is in a pool: the machine in virtual time, whatever a directory says; and what of its answers is read."""

import ipaddress
import json
from typing import Any

import pytest
from foretype_backend.engines.vllm.server import ReplicaIdentity
from foretype_backend.errors import DirectoryError, Fault
from foretype_backend.fleet.members.announced import (
    Announced,
    DirectoryAnswer,
    RefusalReason,
    ReplicaState,
    Role,
    address_of,
    read_replicas,
    read_rollouts,
)
from foretype_backend.fleet.members.member import Phase
from foretype_backend.fleet.members.membership import Membership, MembershipAct
from foretype_backend.fleet.members.rules import Likeness, MembershipRules
from hypothesis import given, settings
from hypothesis import strategies as st


def replica(number: int, state: ReplicaState = ReplicaState.READY, *, at: str = "", **changes: Any) -> Announced:
    return Announced(f"r{number}", at or f"10.0.0.{number}:8000", state, **changes)


SAME = ReplicaIdentity("coder", 4096, 16)


class Shell:
    """What the gateway does with the steps, in virtual time; a replica of `healthy` passes its check at once."""

    def __init__(self, **rules: Any) -> None:
        self.machine = Membership(MembershipRules(**rules))
        self.now = 0.0
        self.serving: dict[str, bool] = {}
        self.in_flight: dict[str, int] = {}
        self.draining: set[str] = set()
        self.healthy = {f"10.0.0.{at}:8000" for at in range(1, 200)}

    def hear(self, *replicas: Announced, refused: Any = ()) -> None:
        self.machine.directory_answered(DirectoryAnswer(tuple(replicas), tuple(refused)), self.now)
        self.turn()

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(2):  # who joins serves in the next turn
            self._find()
            for act, name, _reason in self.machine.turn(self.now):
                if act is MembershipAct.JOIN:
                    member = self.machine[name]
                    if member.announced.address in self.healthy:
                        self.machine.passed(member, SAME, None, self.now)
                        self.serving[name] = True
                    else:
                        [step] = self.machine.failed(member, RefusalReason.SILENT, "refused", self.now)
                        assert step.act is MembershipAct.REFUSE
                elif act is MembershipAct.DRAIN:
                    self.draining.add(name)
                elif act is MembershipAct.RESUME:
                    self.draining.discard(name)
                else:
                    del self.serving[name]
                    self.draining.discard(name)

    def _find(self) -> None:
        """What checks and requests find, as the machine hears it."""
        for name, up in self.serving.items():
            member = self.machine[name]
            if up and not member.health.in_service:
                self.machine.passed(member, SAME, None, self.now)
            elif not up:
                self.machine.fault(member, Fault.LOST, "lost", self.now)
            more = self.in_flight.get(name, 0) - member.health.in_flight
            for _ in range(more):
                member.health.began(self.now)
            for _ in range(-more):
                member.health.ended(served=True)

    @property
    def asked(self) -> set[str]:
        return {name for name, up in self.serving.items() if up and name not in self.draining}

    def why(self, name: str) -> RefusalReason:
        return next(one.why for one in self.machine.statistics(self.now).refused if one.name == name)


def test_who_is_announced_joins_and_who_drains_leaves_when_its_requests_have_ended() -> None:
    ours = Shell()
    ours.hear(replica(1), replica(2), replica(3, ReplicaState.STARTING))
    assert ours.asked == {"r1", "r2"}
    ours.in_flight["r2"] = 2
    ours.hear(replica(1), replica(2, ReplicaState.DRAINING), replica(3))
    assert ours.asked == {"r1", "r3"} and "r2" in ours.serving
    ours.turn(1.0)
    assert "r2" in ours.serving
    ours.in_flight["r2"] = 0
    ours.turn()
    assert set(ours.serving) == {"r1", "r3"}
    ours.hear(replica(1), replica(2, ReplicaState.DRAINING), replica(3))
    assert ours.machine.statistics(ours.now).phases["r2"] is Phase.STARTING  # known, and not asked again
    ours.hear(replica(1), replica(2), replica(3))
    assert ours.asked == {"r1", "r2", "r3"}


def test_absence_counts_from_the_second_answer_and_who_comes_back_stays() -> None:
    ours = Shell()
    ours.hear(replica(1), replica(2))
    ours.hear(replica(1))
    assert ours.asked == {"r1", "r2"}
    ours.in_flight["r2"] = 1
    ours.hear(replica(1))
    assert ours.asked == {"r1"}
    ours.hear(replica(1), replica(2))
    assert ours.asked == {"r1", "r2"}  # without another check: its process never went


def test_at_most_half_leave_in_an_interval_and_never_the_last() -> None:
    ours = Shell(shrink_interval_s=5.0)
    everybody = [replica(at) for at in range(1, 9)]
    ours.hear(*everybody)
    gone = [one._replace(state=ReplicaState.DRAINING) for one in everybody]
    left = []
    for _ in range(6):
        ours.hear(*gone)
        left.append(len(ours.asked))
        ours.turn(4.9)
        assert len(ours.asked) == left[-1]
        ours.turn(0.2)
    assert left[0] == 4
    assert left == sorted(left, reverse=True)
    assert len(ours.asked) == 1
    assert ours.machine.statistics(ours.now).held_back
    ours.serving[next(iter(ours.asked))] = False  # health agrees now: nobody keeps the dead
    ours.hear(*gone)
    assert not ours.serving


def test_the_dead_leave_at_once_whoever_else_does() -> None:
    ours = Shell()
    ours.hear(*(replica(at) for at in range(1, 7)))
    for at in range(2, 7):
        ours.serving[f"r{at}"] = False
    ours.hear(replica(1))
    ours.hear(replica(1))
    assert set(ours.serving) == {"r1"}


def test_a_directory_that_is_away_or_empty_changes_nothing() -> None:
    ours = Shell()
    ours.hear(replica(1), replica(2))
    for _ in range(100):
        ours.machine.directory_failed("away")
        ours.turn(1.0)
    assert ours.asked == {"r1", "r2"}
    assert ours.machine.statistics(ours.now).failure == "away"
    for body in (b"[]", b"", b"{}", b"<html>", b"[", b"\xff", b"[" * 10_000):
        with pytest.raises(DirectoryError):
            read_replicas(body, "fast")


def test_one_bad_entry_takes_nobody_with_it() -> None:
    def entry(targets: Any, **labels: Any) -> dict[str, Any]:
        return {"targets": targets, "labels": {"pool": "fast", **labels}}

    good = entry(["10.0.0.7:8101"], replica="good", role="both", weight="0.5", block_size="16", unknown="x")
    bad: list[Any] = [
        3,
        {"targets": "10.0.0.1:1"},
        entry(["10.0.0.1:1"], weight=1),
        entry(["10.0.0.1:1"], state="well"),
        entry(["10.0.0.1:1"], role="king"),
        entry(["10.0.0.1:1"], weight="nan"),
        entry(["10.0.0.1:1"], block_size="-16"),
        entry(["10.0.0.1:1"], replica='x"} 1\n'),
        entry(["10.0.0.1:1"], model="\n"),
        entry(["vllm.example:8000"]),
        entry(["10.0.0.1"]),
        entry(["10.0.0.1:0"]),
        entry(["10.0.0.1:99999"]),
        entry([":8000"]),
    ]
    elsewhere = {"targets": ["10.0.0.9:1"], "labels": {"pool": "quality"}}
    answer = read_replicas(json.dumps([*bad, elsewhere, good]).encode(), "fast")
    assert answer.replicas == (Announced("good", "10.0.0.7:8101", block_tokens=16, weight=0.5),)
    assert [one.why for one in answer.refused] == [RefusalReason.UNREADABLE] * len(bad)
    assert answer.others == 1
    assert address_of("[::ffff:10.0.0.1]:80") == "10.0.0.1:80"  # one process has one address, however it is written
    assert address_of("[2001:DB8::1]:080") == "[2001:db8::1]:80"


def test_strangers_ourselves_and_what_does_not_fit_are_refused_with_their_reason() -> None:
    ours = Shell(
        networks=(ipaddress.ip_network("10.0.0.0/24"),),
        is_own=lambda address: address == "10.0.0.9:8000",
        grammar="qwen2.5-coder",
        block_tokens=16,
    )
    ours.hear(
        replica(1, grammar="qwen2.5-coder", block_tokens=16),
        replica(2, at="93.184.216.34:80"),
        replica(9),
        replica(3, grammar="starcoder2"),
        replica(4, block_tokens=32),
        replica(5, role=Role.PREFILL),
    )
    assert ours.asked == {"r1"}
    assert [ours.why(f"r{at}") for at in (2, 9, 3, 4, 5)] == [
        RefusalReason.STRANGER,
        RefusalReason.OURSELVES,
        RefusalReason.MISFIT,
        RefusalReason.MISFIT,
        RefusalReason.ROLE,
    ]
    ours.hear(replica(1, grammar="another"))  # a directory that lies of what works
    ours.hear(replica(1, grammar="another"))
    assert ours.asked == {"r1"}


def test_of_two_with_one_name_or_one_address_the_known_one_is_believed() -> None:
    ours = Shell()
    ours.hear(replica(1), replica(2))
    ours.hear(replica(1), replica(2), replica(3, at="10.0.0.1:8000"), replica(2, at="10.0.0.7:8000"))
    assert ours.asked == {"r1", "r2"}
    assert ours.why("r3") is RefusalReason.TWICE and ours.why("r2") is RefusalReason.TWICE
    ours.hear(replica(1), replica(1), replica(2))  # the same words twice are no lie
    assert not ours.machine.statistics(ours.now).refused


def test_a_replica_that_moved_is_there_before_its_former_process_leaves() -> None:
    ours = Shell()
    ours.hear(replica(1))
    moved = replica(1, at="10.0.0.7:8000")
    ours.hear(moved)
    assert len(ours.asked) == 2
    ours.hear(moved)
    assert [ours.machine[name].announced.address for name in ours.asked] == ["10.0.0.7:8000"]


def test_a_thousand_dead_targets_keep_nobody_waiting_who_is_there() -> None:
    ours = Shell()
    dead = [replica(0, at=f"10.1.{at // 200}.{at % 200 + 1}:1")._replace(name=f"dead{at}") for at in range(1000)]
    ours.hear(replica(1), *dead)
    for _ in range(200):
        ours.turn(0.1)
        assert sum(one is Phase.JOINING for one in ours.machine.statistics(ours.now).phases.values()) <= 16
    assert ours.asked == {"r1"}
    ours.hear(replica(1), replica(2), *dead)
    ours.turn(0.1)
    ours.turn(0.1)
    assert ours.asked == {"r1", "r2"}  # whoever was never tried comes before those that were
    full = Shell(most=3)
    full.hear(*(replica(at) for at in range(1, 8)))
    assert len(full.asked) == 3 and full.machine.statistics(0.0).refusals[RefusalReason.FULL] == 4


def test_what_happens_to_a_former_process_says_nothing_of_the_one_that_came_after_it() -> None:
    ours = Shell()
    ours.hear(replica(1), replica(2))
    former = ours.machine["r2"]
    former.health.began(ours.now)  # it does not end before the replica has left
    ours.hear(replica(1), replica(2, ReplicaState.DRAINING))
    ours.turn(121.0)
    ours.hear(replica(1), replica(2))
    later = ours.machine["r2"]
    assert later is not former and ours.asked == {"r1", "r2"}
    assert ours.machine.fault(former, Fault.LOST, "closed", ours.now) == []
    assert ours.machine.passed(former, SAME, 7.0, ours.now) == []
    assert ours.machine.failed(former, RefusalReason.SILENT, "closed", ours.now) == []
    former.health.ended(served=False)
    assert later.health.in_service and later.health.in_flight == 0
    [step] = ours.machine.fault(later, Fault.LOST, "reset", ours.now)
    assert step == (MembershipAct.EXIT, "r2", "reset")
    assert ours.machine.outages == 1


def test_another_process_in_the_same_place_has_an_empty_cache_and_is_proven_again() -> None:
    ours = Shell()
    ours.hear(replica(1))
    member = ours.machine["r1"]
    ours.machine.passed(member, SAME, 1.0, ours.now)
    ours.machine.asked_canary(member, passed=True)
    assert ours.machine.answered(member, SAME, 1.0) == "" and member.proven
    assert ours.machine.passed(member, SAME, 1.0, ours.now) == []
    assert ours.machine.answered(member, SAME, 2.0) == "" and not member.proven
    [step] = ours.machine.passed(member, SAME, 2.0, ours.now)
    assert step == (MembershipAct.ENTER, "r1", "")


def test_replicas_of_a_revision_serve_the_same_and_none_less_than_prompts_are_made_for() -> None:
    ours, longer, shorter = Likeness(), SAME._replace(context_limit_tokens=8192), SAME._replace(block_tokens=32)
    assert not ours.unlike("", shorter)  # nobody has come
    ours.learn("r1", SAME)
    assert "others of revision 'r1' 'coder' (4096 tokens, blocks of 16)" in ours.unlike("r1", longer)
    assert not ours.unlike("r2", longer)
    assert "prompts are made for" in ours.unlike("r2", shorter)
    ours.forget("r1")
    assert not ours.unlike("r1", longer)
    assert "prompts are made for" in ours.unlike("r1", shorter)  # as long as the pool lasts


def test_rollouts_are_read_or_refused() -> None:
    said = b'{"fast": {"stable": "r1", "canary": "r2", "share": 0.05, "number": 7}, "other": 3}'
    found = read_rollouts(said, "fast")
    assert found is not None and (found.stable, found.canary, found.share, found.number) == ("r1", "r2", 0.05, 7)
    assert read_rollouts(said, "quality") is None
    for body in (b"[]", b'{"fast": 3}', b'{"fast": {"stable": "r1", "share": 5}}', b"x"):
        with pytest.raises(DirectoryError):
            read_rollouts(body, "fast")


states = st.sampled_from([ReplicaState.READY, ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STARTING])
entries = st.builds(
    lambda number, state, at, weight: replica(number, state, at=f"10.0.0.{at}:8000", weight=weight),
    st.integers(1, 6),
    states,
    st.integers(1, 8),
    st.sampled_from([1.0, 1.0, 1.0, 0.0]),
)
happenings = st.one_of(
    st.tuples(st.just("hear"), st.lists(entries, max_size=7)),
    st.tuples(st.just("away"), st.none()),
    st.tuples(st.just("time"), st.sampled_from([0.1, 1.0, 4.9, 200.0])),
    st.tuples(st.just("dies"), st.integers(1, 8)),
    st.tuples(st.just("lives"), st.integers(1, 8)),
    st.tuples(st.just("busy"), st.integers(1, 6)),
    st.tuples(st.just("idle"), st.integers(1, 6)),
)


@settings(max_examples=300)
@given(st.lists(happenings, max_size=40))
def test_whatever_happens_a_healthy_replica_is_asked_nobody_who_drains_is_and_the_pool_shrinks_slowly(
    events: list[tuple[str, Any]],
) -> None:
    ours = Shell(shrink_interval_s=5.0)
    ours.hear(*(replica(at) for at in range(1, 5)))
    taken: list[tuple[float, int]] = []  # when, and how many served
    for what, value in events:
        before = ours.asked
        if what == "hear":
            ours.hear(*value)
        elif what == "away":
            ours.machine.directory_failed("away")
            ours.turn()
        elif what == "time":
            ours.turn(value)
        elif what in ("dies", "lives"):
            address = f"10.0.0.{value}:8000"
            (ours.healthy.add if what == "lives" else ours.healthy.discard)(address)
            for name in ours.serving:
                if ours.machine[name].announced.address == address:
                    ours.serving[name] = what == "lives"
            before = before & ours.asked
            ours.turn()
        else:
            ours.in_flight[f"r{value}"] = 3 if what == "busy" else 0
            ours.turn()
        phases = ours.machine.statistics(ours.now).phases
        for name in ours.asked:
            assert phases[name] is Phase.MEMBER
        assert ours.draining == {name for name, phase in phases.items() if phase is Phase.DRAINING}
        healthy = {name for name, up in ours.serving.items() if up}
        if healthy & set(before):
            assert ours.asked, "a healthy replica was known, and nobody is asked"
        lost = len(before - ours.asked)
        if lost:
            taken.append((ours.now, lost))
            in_interval = sum(count for when, count in taken if when > ours.now - 5.0)
            assert in_interval <= max(1, (len(ours.asked) + in_interval) // 2)
