"""Which replicas are in a pool, by what a directory announces, what checks find and how requests end: one :class:`.member.Member` each.

Pure: time is passed in, and the results are lists of steps, which :mod:`.replicas` carries out. Routes and caches follow these steps too.

A directory is believed no further than it helps: what it does not say, or says wrongly, changes nothing that works.

1. *Join*: what is announced as ready is checked first (a canary; a few at a time, those that were never tried first)
   and serves when it passes. What is refused stands in quarantine with its reason, and is tried again later.
2. *Leave*: a replica that is announced as draining, with weight 0, or not at all in two answers running, gets no new
   requests and goes when those in flight have ended. If it is announced again meanwhile, it stays.
3. *Bound*: a pool shrinks no faster than :mod:`foretype_backend.fleet.members.rules` allows, whatever is announced.
4. *Identity*: a replica is its name and its address. Another address under the same name is another process, which joins before the
   old one leaves; if one answer has two replicas of one name, or two at one address, only the one that is known already
   is believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from foretype_backend.engines.vllm.server import ReplicaIdentity
from foretype_backend.errors import Fault
from foretype_backend.fleet.health import HealthMonitor, HealthOptions
from foretype_backend.fleet.members.announced import (
    Announced,
    DirectoryAnswer,
    RefusalReason,
    RefusedEntry,
    ReplicaState,
)
from foretype_backend.fleet.members.member import Member, Phase
from foretype_backend.fleet.members.rules import Likeness, MembershipRules, ShrinkBound, WantsOut

_JOINS_AT_ONCE: Final = 16
_SILENT_PAUSE_S: Final = 1.0
_TRIES_PER_S: Final = 10
"""Checks of all silent replicas together: hundreds of silent replicas must not keep the gateway busy."""
_MISFIT_PAUSE_S: Final = 30.0
_SHOWN: Final = 256
_KNOWN: Final = 4096


class MembershipAct(StrEnum):
    JOIN = "join"  # open an engine, and check it
    ENTER = "enter"  # it is in service, with an empty cache as far as we know
    EXIT = "exit"  # it is out of service
    DRAIN = "drain"
    RESUME = "resume"
    LEAVE = "leave"  # close its engine, with what it still computes
    REFUSE = "refuse"  # close its engine, which did not pass its first check


class MembershipStep(NamedTuple):
    """One instruction to the shell: what to do with which replica."""

    act: MembershipAct
    name: str
    reason: str = ""


class MembershipStatistics(NamedTuple):
    """The phase of every known replica, and the refused ones (no more than a few hundred), with the age of the last answer in seconds.

    Attributes:
        refused: those of the last answer, and those that did not pass their check.
        refusals: how many were refused, by reason, also beyond those in `refused`.
        failure: why the last question got no answer; "" where it did.
        answers, failures: since the start.
        held_back: times that rule 3 kept a replica.
    """

    phases: Mapping[str, Phase]
    announced: Mapping[str, Announced]
    refused: tuple[RefusedEntry, ...]
    refusals: Mapping[RefusalReason, int]
    failure: str
    answers: int
    failures: int
    held_back: int
    answered_s: float


@dataclass(slots=True)
class _Counts:
    answers: int = 0
    failures: int = 0
    held_back: int = 0
    failure: str = ""
    answered_s: float = -math.inf
    refused: tuple[RefusedEntry, ...] = ()
    left_out: int = 0


class Membership:
    """See the module.

    Args:
        listed: region of each replica that the configuration lists, by name: these are members from the start, and no directory speaks of them.
        now: seconds, as in every call.
    """

    def __init__(
        self,
        rules: MembershipRules | None = None,
        health: HealthOptions | None = None,
        *,
        listed: Mapping[str, str] | None = None,
        now: float = 0.0,
    ) -> None:
        self._rules = rules or MembershipRules()
        self._health = health or HealthOptions()
        self._members: dict[str, Member] = {}
        self._by_place: dict[tuple[str, str], str] = {}
        self._counts = _Counts()
        self._shrinking = ShrinkBound()
        self._outages = 0  # of those that have left
        self._likeness = Likeness()
        for name, region in (listed or {}).items():
            self._put(name, Announced(name, "", region=region), now, phase=Phase.MEMBER, listed=True)

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def narrow(self, takes: Callable[[str], bool]) -> None:
        """Take only replicas of these revisions into the pool. To be called before the first answer."""
        self._rules = replace(self._rules, takes=takes)

    def require_block_tokens(self, block_tokens: int) -> None:
        """Prompts are made for caches with blocks of this size: a replica with another size gets no requests."""
        self._rules = replace(self._rules, block_tokens=block_tokens)

    # Answers of a directory

    def directory_answered(self, answer: DirectoryAnswer, now: float) -> None:
        """A directory has answered."""
        counts = self._counts
        counts.answers, counts.failure, counts.answered_s, counts.left_out = counts.answers + 1, "", now, 0
        replicas, refused = [one for one in answer.replicas if self._rules.takes(one.revision)], list(answer.refused)
        seen, names, addresses = set[str](), set[str](), set[str]()
        places = {(one.name, one.address) for one in replicas}
        for member in list(self._members.values()):
            if not member.opened and (member.announced.name, member.announced.address) not in places:
                self._forget(member)
        # Known replicas come first: of two that claim one name or address, the known one is believed.
        for one in sorted(replicas, key=lambda one: ((one.name, one.address) not in self._by_place, one)):
            key = self._by_place.get((one.name, one.address))
            if one.name in names or one.address in addresses:
                if key is None or key not in seen:
                    what = "its name" if one.name in names else f"its address {one.address}"
                    refused.append(
                        RefusedEntry(one.name, RefusalReason.TWICE, f"{what} is announced for another replica, too")
                    )
                continue
            unfit = self._rules.unfit(one)
            if unfit is not None:
                refused.append(RefusedEntry(one.name, *unfit))
                if key is not None and self._members[key].opened:
                    seen.add(key)  # it was checked as what it was announced as before
                continue
            names.add(one.name)
            addresses.add(one.address)
            if key is None:
                key = self._new(one, now)
            if key is not None:
                seen.add(key)
                self._update_announced(self._members[key], one)
        spared = {one.name for one in answer.refused}
        for key, member in list(self._members.items()):
            if key in seen:
                member.absent = 0
            elif not member.opened:  # it was announced, and is not fit any more
                self._forget(member)
            elif replicas and member.announced.name not in spared:
                member.absent += 1
        counts.refused = tuple(refused)

    def directory_failed(self, reason: str) -> None:
        """A directory is away, or its answer cannot be read: everything stays as it is."""
        self._counts.failures += 1
        self._counts.failure = reason

    # What checks and requests find

    def answered(self, member: Member, identity: ReplicaIdentity, process: float | None) -> str:
        """A replica was started or checked. Returns how it differs from what it should be; "" where it does not."""
        member.started = True
        member.proven = member.proven and member.process == process
        return self._likeness.unlike(member.revision, identity)

    def asked_canary(self, member: Member, *, passed: bool) -> None:
        """The canary was asked: whether the replica answered as every replica of this pool has to."""
        member.proven = passed

    def passed(
        self, member: Member, identity: ReplicaIdentity, process: float | None, now: float
    ) -> list[MembershipStep]:
        """A check went well."""
        if self._has_left(member) or not (member.health.passed(now) or member.process != process):
            return []
        member.process, member.came = process, True
        self._likeness.learn(member.revision, identity)
        return [MembershipStep(MembershipAct.ENTER, member.name)]

    def failed(self, member: Member, why: RefusalReason, reason: str, now: float) -> list[MembershipStep]:
        """A check went wrong: what was in service is out, and what was to join is tried again later."""
        if self._has_left(member):
            return []
        if member.health.failed(reason, now):
            return [MembershipStep(MembershipAct.EXIT, member.name, reason)]
        if member.came or member.listed:
            return []
        self._count_closed(member)
        member.phase, member.why, member.reason = Phase.QUARANTINED, why, reason
        silent = sum(
            one.phase is Phase.QUARANTINED and one.why is RefusalReason.SILENT for one in self._members.values()
        )
        pause_s = max(_SILENT_PAUSE_S, silent / _TRIES_PER_S)
        member.retry_s = now + (_MISFIT_PAUSE_S if why is RefusalReason.MISFIT else pause_s)
        if member.absent:
            self._forget(member)
        return [MembershipStep(MembershipAct.REFUSE, member.name)]

    def fault(self, member: Member, fault: Fault, reason: str, now: float) -> list[MembershipStep]:
        """A request failed on a replica."""
        if self._has_left(member) or not member.health.fault(fault, reason, now):
            return []
        return [MembershipStep(MembershipAct.EXIT, member.name, reason)]

    def _has_left(self, member: Member) -> bool:
        """Whether the member's name belongs to another process now, or to none."""
        return self._members.get(member.name) is not member

    # What follows

    def turn(self, now: float) -> list[MembershipStep]:
        """The steps that are due now."""
        steps: list[MembershipStep] = []
        for member in self._members.values():
            if member.phase is Phase.JOINING and member.health.in_service:
                member.phase = Phase.MEMBER
        self._drain(now, steps)
        for name, member in list(self._members.items()):
            if member.phase is Phase.JOINING and member.is_gone:
                steps.append(MembershipStep(MembershipAct.LEAVE, name, "it is not announced any more"))
                self._count_closed(member)
                self._forget(member)
            elif member.phase is Phase.DRAINING:
                if not member.wants_out:
                    member.phase = Phase.MEMBER
                    steps.append(MembershipStep(MembershipAct.RESUME, name))
                elif not member.health.in_flight or now - member.left_s >= self._rules.drain_s:
                    steps.append(MembershipStep(MembershipAct.LEAVE, name, member.reason))
                    self._left(member, now)
        self._join(now, steps)
        return steps

    def _drain(self, now: float, steps: list[MembershipStep]) -> None:
        members = [one for one in self._members.values() if one.phase is Phase.MEMBER]
        serving = {one.name for one in members if one.health.in_service and not one.computes_for_others}
        wanting = [
            WantsOut(one.name, one.name in serving, one.announced.state is ReplicaState.DRAINING)
            for one in members
            if one.wants_out
        ]
        drained = self._shrinking.drained(wanting, len(serving), interval_s=self._rules.shrink_interval_s, now=now)
        held = {one.name for one in wanting} - set(drained)
        for member in members:
            self._counts.held_back += member.name in held and not member.held
            member.held = member.name in held
        for name in drained:
            member = self._members[name]
            member.phase, member.left_s = Phase.DRAINING, now
            member.reason = "it is not announced any more" if member.absent else "it is announced as draining"
            steps.append(MembershipStep(MembershipAct.DRAIN, name, member.reason))

    def _join(self, now: float, steps: list[MembershipStep]) -> None:
        joining = sum(one.phase is Phase.JOINING for one in self._members.values())
        room = min(_JOINS_AT_ONCE - joining, self._rules.most - self._opened)
        due = [
            (member.tried_s, name)
            for name, member in self._members.items()
            if member.phase is Phase.WAITING or (member.phase is Phase.QUARANTINED and member.retry_s <= now)
        ]
        for _, name in sorted(due)[: max(0, room)]:
            one = self._members[name]
            self._put(name, one.announced, now, phase=Phase.JOINING, tried_s=now, why=one.why, reason=one.reason)
            steps.append(MembershipStep(MembershipAct.JOIN, name))

    # Questions

    def weight(self, name: str) -> float:
        """The weight of a replica, by which requests are shared out."""
        member = self._members.get(name)
        return 1.0 if member is None else member.announced.weight

    @property
    def outages(self) -> int:
        """How often a replica was taken out of service, including replicas that have left."""
        return self._outages + sum(one.health.outages for one in self._members.values() if one.opened)

    @property
    def _opened(self) -> int:
        return sum(one.opened for one in self._members.values())

    def statistics(self, now: float) -> MembershipStatistics:
        counts = self._counts
        quarantined = [
            RefusedEntry(name, one.why, one.reason)
            for name, one in self._members.items()
            if one.phase is Phase.QUARANTINED or (one.phase is Phase.JOINING and one.reason)
        ]
        refused = (*quarantined, *counts.refused)
        by_reason = dict.fromkeys(RefusalReason, 0)
        for one in refused:
            by_reason[one.why] += 1
        full = self._opened >= self._rules.most
        waiting = sum(one.phase is Phase.WAITING for one in self._members.values())
        by_reason[RefusalReason.FULL] += counts.left_out + (waiting if full else 0)
        return MembershipStatistics(
            {name: one.phase for name, one in self._members.items()},
            {name: one.announced for name, one in self._members.items()},
            refused[:_SHOWN],
            by_reason,
            counts.failure,
            counts.answers,
            counts.failures,
            counts.held_back,
            now - counts.answered_s,
        )

    # Known replicas

    def _new(self, one: Announced, now: float) -> str | None:
        """Add an announced replica and return its name; None where far more are announced than anybody has."""
        if len(self._members) >= _KNOWN:
            self._counts.left_out += 1
            return None
        key = one.name
        tries: Iterable[int] = range(2, _KNOWN + 2)
        if key in self._members:  # the same name at another address: its former process is still here
            key = next(f"{one.name}~{at}" for at in tries if f"{one.name}~{at}" not in self._members)
        self._put(key, one, now)
        self._by_place[one.name, one.address] = key
        return key

    def _put(self, name: str, announced: Announced, now: float, **fields: Any) -> None:
        """Store a member that is not opened yet, in place of any other of that name."""
        health = HealthMonitor(self._health, now)
        self._members[name] = Member(name=name, announced=announced, health=health, **fields)

    def _update_announced(self, member: Member, one: Announced) -> None:
        ready = one.state is ReplicaState.READY and one.weight > 0
        changed = (one.model, one.revision) != (member.announced.model, member.announced.revision)
        member.announced = one
        if member.phase is Phase.STARTING and ready:
            member.phase = Phase.WAITING
        elif member.phase in (Phase.WAITING, Phase.QUARANTINED):
            if not ready:
                member.phase, member.tried_s = Phase.STARTING, -math.inf
            elif changed:
                member.phase, member.tried_s = Phase.WAITING, -math.inf

    def _left(self, member: Member, now: float) -> None:
        """A member has left. While it is announced it stays known, and does not join again before it is announced as ready."""
        self._count_closed(member)
        if member.absent:
            self._forget(member)
        else:
            self._put(member.name, member.announced, now, tried_s=member.tried_s)

    def _count_closed(self, member: Member) -> None:
        """A member's engine is closed."""
        self._outages += member.health.outages
        others = (one for one in self._members.values() if one.opened and one is not member)
        if all(one.revision != member.revision for one in others):
            self._likeness.forget(member.revision)

    def _forget(self, member: Member) -> None:
        del self._members[member.name]
        self._by_place.pop((member.announced.name, member.announced.address), None)
