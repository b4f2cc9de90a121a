"""Who is in a pool, by what a directory announces and what health says. Pure: time is passed in; the shell does what :meth:`turn` says.

A directory is believed no further than it helps: what it does not say, or says wrongly, changes nothing that works.

1. *Join*: what is announced as ready is checked first (a canary; a few at a time, those that were never tried first)
   and serves when it passes. What is refused stands in quarantine with its reason, and is tried again later.
2. *Leave*: a replica that is announced as draining, with weight 0, or not at all in two answers running, gets no new
   requests and goes when those in flight have ended. If it is announced again meanwhile, it stays.
3. *Bound*: a pool shrinks no faster than :mod:`foretype_backend.fleet.members.draining` allows, whatever is announced.
4. *Identity*: a replica is its name and its address. Another address under the same name is another process, which joins before the
   old one leaves; two of one name, or at one address, in one answer are one too many, and the one that is known already
   is believed.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from foretype_backend.fleet.members.announced import (
    Announced,
    DirectoryAnswer,
    RefusalReason,
    RefusedEntry,
    ReplicaState,
    Role,
)
from foretype_backend.fleet.members.draining import ShrinkBound, WantsOut

_ABSENT_ANSWERS: Final = 2
_JOINS_AT_ONCE: Final = 16
_SILENT_PAUSE_S: Final = 1.0
_TRIES_PER_S: Final = 10
"""Of all that do not answer: hundreds of them must not keep the gateway busy."""
_MISFIT_PAUSE_S: Final = 30.0
_SHOWN: Final = 256
_KNOWN: Final = 4096


class Phase(StrEnum):
    """Where a replica stands; also the metric's label."""

    STARTING = "starting"  # announced, and not ready by its own word
    WAITING = "waiting"  # for its turn to be checked
    JOINING = "joining"  # being checked for the first time
    MEMBER = "member"  # asked, as long as its health allows
    DRAINING = "draining"  # gets nothing new
    QUARANTINED = "quarantined"


class MembershipAct(StrEnum):
    JOIN = "join"
    DRAIN = "drain"
    RESUME = "resume"
    LEAVE = "leave"


class MembershipStep(NamedTuple):
    """One instruction to the shell: what to do with which replica."""

    act: MembershipAct
    name: str
    reason: str = ""


class Fact(NamedTuple):
    """What is known of a replica that has joined: whether its health lets it serve, and its requests in flight."""

    serving: bool
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRules:
    """What is let in, and how fast a pool may shrink.

    Attributes:
        networks: that replicas may be in; empty for any.
        is_own: whether an address is the gateway's own.
        grammar: of the profile; "" where any will do.
        block_tokens: of the pool's book of caches, once it is known; 0 before.
        shrink_interval_s: in which at most half of those that serve are drained.
        drain_s: how long requests in flight may hold a replica that leaves.
        most: replicas that a pool may have; who does not answer takes nobody's place.
        apart: those that compute prompts for others are let in, too; they are not counted among those that serve.
    """

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    is_own: Callable[[str], bool] = lambda _: False
    grammar: str = ""
    block_tokens: int = 0
    shrink_interval_s: float = 5.0
    drain_s: float = 120.0
    most: int = 256
    apart: bool = False

    def unfit(self, one: Announced) -> tuple[RefusalReason, str] | None:
        """What is wrong with it by its entry alone."""
        host, _, _ = one.address.rpartition(":")
        ip = ipaddress.ip_address(host.strip("[]"))
        if self.networks and not any(ip in network for network in self.networks):
            return RefusalReason.STRANGER, f"{one.address} is outside of pool.fast.discovery.networks"
        if self.is_own(one.address):
            return RefusalReason.OURSELVES, f"{one.address} is this gateway"
        if one.role is Role.PREFILL and not self.apart:
            return (
                RefusalReason.ROLE,
                "its role is prefill; pool.fast.prefill_from_tokens says which prompts are computed apart",
            )
        if self.grammar and one.grammar and one.grammar != self.grammar:
            return RefusalReason.MISFIT, f"its grammar is {one.grammar}, the profile's {self.grammar}"
        if self.block_tokens and one.block_tokens and one.block_tokens != self.block_tokens:
            return RefusalReason.MISFIT, f"its blocks have {one.block_tokens} tokens, the pool's {self.block_tokens}"
        return None


class MembershipStatistics(NamedTuple):
    """Where every known replica stands, and who is refused (no more than a few hundred), with the answer's age in seconds.

    Attributes:
        refused: those of the last answer, and those that did not pass their check.
        refusals: how many by reason, whether shown or not.
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
class _Entry:
    announced: Announced
    phase: Phase
    absent: int = 0
    tried_s: float = -math.inf
    retry_s: float = -math.inf
    left_s: float = 0.0
    why: RefusalReason = RefusalReason.SILENT
    reason: str = ""
    held: bool = False


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
    """See the module."""

    def __init__(self, rules: MembershipRules | None = None) -> None:
        self.rules = rules or MembershipRules()
        self._entries: dict[str, _Entry] = {}
        self._by_place: dict[tuple[str, str], str] = {}
        self._counts = _Counts()
        self._shrinking = ShrinkBound()

    def __repr__(self) -> str:
        members = sum(one.phase is Phase.MEMBER for one in self._entries.values())
        return f"<Membership: {members} members of {len(self._entries)}>"

    # What is heard

    def heard(self, answer: DirectoryAnswer, now: float) -> None:
        """A directory has answered."""
        counts = self._counts
        counts.answers, counts.failure, counts.answered_s, counts.left_out = counts.answers + 1, "", now, 0
        refused = list(answer.refused)
        seen, names, addresses = set[str](), set[str](), set[str]()
        places = {(one.name, one.address) for one in answer.replicas}
        for key, entry in list(self._entries.items()):
            if not self._works(key) and (entry.announced.name, entry.announced.address) not in places:
                self._forget(key)
        # A known one comes first: of two that claim one name or address, it is believed.
        for one in sorted(answer.replicas, key=lambda one: ((one.name, one.address) not in self._by_place, one)):
            key = self._by_place.get((one.name, one.address))
            if one.name in names or one.address in addresses:
                if key is None or key not in seen:
                    what = "its name" if one.name in names else f"its address {one.address}"
                    refused.append(
                        RefusedEntry(one.name, RefusalReason.TWICE, f"{what} is announced for another replica, too")
                    )
                continue
            unfit = self.rules.unfit(one)
            if unfit is not None:
                refused.append(RefusedEntry(one.name, *unfit))
                if key is not None and self._works(key):
                    seen.add(key)  # what it was announced as before is what it was checked for
                continue
            names.add(one.name)
            addresses.add(one.address)
            if key is None:
                key = self._new(one)
            if key is not None:
                seen.add(key)
                self._told(self._entries[key], one)
        spared = {one.name for one in answer.refused}
        believed = bool(answer.replicas)
        for key, entry in list(self._entries.items()):
            if key in seen:
                entry.absent = 0
            elif not self._works(key):  # it was announced, and is not fit any more
                self._forget(key)
            elif believed and entry.announced.name not in spared:
                entry.absent += 1
        counts.refused = tuple(refused)

    def unheard(self, reason: str) -> None:
        """A directory is away, or what it says is no answer: everything stays as it is."""
        self._counts.failures += 1
        self._counts.failure = reason

    def refuse(self, name: str, why: RefusalReason, reason: str, now: float) -> None:
        """A replica that was to join did not pass its check; the shell has let go of it."""
        entry = self._entries[name]
        entry.phase, entry.why, entry.reason = Phase.QUARANTINED, why, reason
        silent = sum(
            one.phase is Phase.QUARANTINED and one.why is RefusalReason.SILENT for one in self._entries.values()
        )
        pause_s = max(_SILENT_PAUSE_S, silent / _TRIES_PER_S)
        entry.retry_s = now + (_MISFIT_PAUSE_S if why is RefusalReason.MISFIT else pause_s)
        if entry.absent:
            self._forget(name)

    # What follows

    def turn(self, facts: Mapping[str, Fact], now: float) -> list[MembershipStep]:
        """What is to be done now.

        Args:
            facts: of every replica that has joined and not left.
        """
        steps: list[MembershipStep] = []
        for name, fact in facts.items():
            entry = self._entries[name]
            if entry.phase is Phase.JOINING and fact.serving:
                entry.phase = Phase.MEMBER
        self._drain(facts, now, steps)
        for name, entry in list(self._entries.items()):
            fact = facts.get(name, Fact(serving=False, in_flight=0))
            if entry.phase is Phase.JOINING and entry.absent >= _ABSENT_ANSWERS:
                steps.append(MembershipStep(MembershipAct.LEAVE, name, "it is not announced any more"))
                self._forget(name)
            elif entry.phase is Phase.DRAINING:
                if not self._wants_out(entry):
                    entry.phase = Phase.MEMBER
                    steps.append(MembershipStep(MembershipAct.RESUME, name))
                elif not fact.in_flight or now - entry.left_s >= self.rules.drain_s:
                    steps.append(MembershipStep(MembershipAct.LEAVE, name, entry.reason))
                    self._left(name, now)
        self._join(now, steps)
        return steps

    def _drain(self, facts: Mapping[str, Fact], now: float, steps: list[MembershipStep]) -> None:
        members = {name: one for name, one in self._entries.items() if one.phase is Phase.MEMBER and name in facts}
        serving = {
            name for name, one in members.items() if facts[name].serving and one.announced.role is not Role.PREFILL
        }
        wanting = [
            WantsOut(name, name in serving, one.announced.state is ReplicaState.DRAINING)
            for name, one in members.items()
            if self._wants_out(one)
        ]
        drained = self._shrinking.drained(wanting, len(serving), interval_s=self.rules.shrink_interval_s, now=now)
        held = {one.name for one in wanting} - set(drained)
        for name, entry in members.items():
            self._counts.held_back += name in held and not entry.held
            entry.held = name in held
        for name in drained:
            entry = self._entries[name]
            entry.phase, entry.left_s = Phase.DRAINING, now
            entry.reason = "it is not announced any more" if entry.absent else "it is announced as draining"
            steps.append(MembershipStep(MembershipAct.DRAIN, name, entry.reason))

    def _join(self, now: float, steps: list[MembershipStep]) -> None:
        working = sum(map(self._works, self._entries))
        joining = sum(one.phase is Phase.JOINING for one in self._entries.values())
        room = min(_JOINS_AT_ONCE - joining, self.rules.most - working)
        due = [
            (entry.tried_s, name)
            for name, entry in self._entries.items()
            if entry.phase is Phase.WAITING or (entry.phase is Phase.QUARANTINED and entry.retry_s <= now)
        ]
        for _, name in sorted(due)[: max(0, room)]:
            entry = self._entries[name]
            entry.phase, entry.tried_s = Phase.JOINING, now
            steps.append(MembershipStep(MembershipAct.JOIN, name))

    # Questions

    def members(self) -> list[str]:
        """Who may be asked, as far as membership goes."""
        return [name for name, one in self._entries.items() if one.phase is Phase.MEMBER]

    def announced(self, name: str) -> Announced:
        return self._entries[name].announced

    def statistics(self, now: float) -> MembershipStatistics:
        counts = self._counts
        quarantined = [
            RefusedEntry(name, one.why, one.reason)
            for name, one in self._entries.items()
            if one.phase is Phase.QUARANTINED or (one.phase is Phase.JOINING and one.reason)
        ]
        refused = (*quarantined, *counts.refused)
        by_reason = dict.fromkeys(RefusalReason, 0)
        for one in refused:
            by_reason[one.why] += 1
        full = sum(map(self._works, self._entries)) >= self.rules.most
        waiting = sum(one.phase is Phase.WAITING for one in self._entries.values())
        by_reason[RefusalReason.FULL] += counts.left_out + (waiting if full else 0)
        return MembershipStatistics(
            {name: one.phase for name, one in self._entries.items()},
            {name: one.announced for name, one in self._entries.items()},
            refused[:_SHOWN],
            by_reason,
            counts.failure,
            counts.answers,
            counts.failures,
            counts.held_back,
            now - counts.answered_s,
        )

    # Entries

    def _new(self, one: Announced) -> str | None:
        """The name of a new entry; None where far more are announced than anybody has."""
        if len(self._entries) >= _KNOWN:
            self._counts.left_out += 1
            return None
        key = one.name
        tries: Iterable[int] = range(2, _KNOWN + 2)
        if key in self._entries:  # the same name at another address: its former process is still here
            key = next(f"{one.name}~{at}" for at in tries if f"{one.name}~{at}" not in self._entries)
        self._entries[key] = _Entry(one, Phase.STARTING)
        self._by_place[one.name, one.address] = key
        return key

    def _told(self, entry: _Entry, one: Announced) -> None:
        ready = one.state is ReplicaState.READY and one.weight > 0
        changed = (one.model, one.revision) != (entry.announced.model, entry.announced.revision)
        entry.announced = one
        if entry.phase is Phase.STARTING and ready:
            entry.phase = Phase.WAITING
        elif entry.phase in (Phase.WAITING, Phase.QUARANTINED):
            if not ready:
                entry.phase, entry.tried_s = Phase.STARTING, -math.inf
            elif changed:
                entry.phase, entry.tried_s = Phase.WAITING, -math.inf

    def _works(self, key: str) -> bool:
        """Whether the shell has something of it."""
        return self._entries[key].phase in (Phase.JOINING, Phase.MEMBER, Phase.DRAINING)

    def _wants_out(self, entry: _Entry) -> bool:
        one = entry.announced
        return one.state is ReplicaState.DRAINING or not one.weight or entry.absent >= _ABSENT_ANSWERS

    def _left(self, name: str, now: float) -> None:
        """It has left; while it is announced it stays known, and does not join again before it is announced as ready."""
        entry = self._entries[name]
        if entry.absent:
            self._forget(name)
        else:
            entry.phase, entry.reason = Phase.STARTING, ""

    def _forget(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._by_place.pop((entry.announced.name, entry.announced.address), None)
