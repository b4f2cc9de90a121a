"""Budgets in tokens: reserve → settle, so that no disconnect can leak one. Pure; time is passed in.

A request reserves what it may use at most (prompt and `max_tokens`) from every budget it falls under, all or none: first by the length of
its texts, before anything is done for it, then, once they are counted, exactly. When it is over it
settles what it did use, nothing if it never ran; settling twice does no harm. A budget is a bucket that fills at a rate up to
a burst, so that a quiet minute pays for a busy one. What was used beyond a reservation is taken all the same: the bucket goes into
debt, and the next request waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Tokens per second on the long run, and at most so many at once."""

    tokens_per_s: float
    burst_tokens: float

    def __post_init__(self) -> None:
        for name in ("tokens_per_s", "burst_tokens"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, not {value}; leave the budget out for no limit")


class Denied(NamedTuple):
    """Which budget is empty, and when it holds enough: never, where the request is larger than the burst.

    Attributes:
        wants: every budget that has too little for it, and the tokens that it wants of that.
    """

    name: str
    retry_after_s: float
    wants: tuple[tuple[str, int], ...] = ()


class Reservation(NamedTuple):
    """A claim on budgets, until it is settled."""

    number: int
    tokens: int
    names: tuple[str, ...]


class BudgetStatistics(NamedTuple):
    """`level` is what could be reserved now, below zero in debt; `reserved` is claimed by live requests."""

    level: float
    reserved: int
    used: int
    denied: int


@dataclass(slots=True)
class _Bucket:
    budget: Budget
    level: float
    at_s: float
    reserved: int = 0
    used: int = 0
    denied: int = 0
    leased: bool = False
    wanted: float = 0.0
    waited_for: float = 0.0

    def fill(self, now: float) -> None:
        if self.leased:
            self.at_s = now
            return
        # A clock that went back fills nothing, and takes nothing away.
        gained = max(0.0, now - self.at_s) * self.budget.tokens_per_s
        # A live reservation has left the level already; what it gives back must find room below the burst.
        self.level = min(self.level + gained, self.budget.burst_tokens - self.reserved)
        self.at_s = now


class Budgets:
    """Every budget of a gateway by name: of a tenant, a user, a class of theirs. Names without a budget are unlimited."""

    def __init__(self, budgets: Mapping[str, Budget] | None = None, *, now: float = 0.0) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._live: dict[int, Reservation] = {}
        self._next = 0
        for name, budget in (budgets or {}).items():
            self.set(name, budget, now)

    def set(self, name: str, budget: Budget | None, now: float) -> None:
        """A new or changed budget keeps its level and what is reserved; None removes the limit."""
        bucket = self._buckets.get(name)
        if budget is None:
            self._buckets.pop(name, None)
        elif bucket is None:
            self._buckets[name] = _Bucket(budget, budget.burst_tokens, now)
        else:
            bucket.fill(now)
            bucket.budget = budget
            bucket.fill(now)

    def __contains__(self, name: str) -> bool:
        return name in self._buckets

    def names(self) -> Iterable[str]:
        return self._buckets.keys()

    def budget(self, name: str) -> Budget | None:
        bucket = self._buckets.get(name)
        return None if bucket is None else bucket.budget

    def forget_full(self, prefix: str, now: float) -> None:
        """Drop buckets of this prefix that nobody uses: a full one is what a new one would be."""
        for name in [name for name in self._buckets if name.startswith(prefix)]:
            bucket = self._buckets[name]
            bucket.fill(now)
            if not bucket.reserved and bucket.level >= bucket.budget.burst_tokens:
                del self._buckets[name]

    def reserve(self, names: Sequence[str], tokens: int, now: float) -> Reservation | Denied:
        """Claims tokens of every named budget, or of none.

        Raises:
            ValueError: a negative number of tokens.
        """
        if tokens < 0:
            raise ValueError(f"tokens must not be negative, not {tokens}")
        self._next += 1
        claim = Reservation(self._next, 0, tuple(name for name in dict.fromkeys(names) if name in self._buckets))
        return self._claim(claim, tokens, now)

    def resize(self, reservation: Reservation, tokens: int, now: float) -> Reservation | Denied:
        """The same claim, of so many tokens in all; denied, it stays as it was. One that is over is no claim any more, and stays so."""
        if self._live.get(reservation.number) != reservation:
            return reservation
        return self._claim(reservation, tokens, now)

    def _claim(self, former: Reservation, tokens: int, now: float) -> Reservation | Denied:
        found = [(name, bucket) for name in former.names if (bucket := self._buckets.get(name)) is not None]
        more = tokens - former.tokens
        worst: Denied | None = None
        wants: list[tuple[str, int]] = []
        for name, bucket in found:
            bucket.fill(now)
            missing = more - bucket.level
            if more > 0 and missing > 0:
                bucket.denied += 1
                bucket.wanted = max(bucket.wanted, tokens)
                fits = tokens <= bucket.budget.burst_tokens
                wait_s = missing / bucket.budget.tokens_per_s if fits else float("inf")
                wants.append((name, more))
                if worst is None or wait_s > worst.retry_after_s:
                    worst = Denied(name, wait_s)
        if worst is not None:
            return worst._replace(wants=tuple(wants))
        for _, bucket in found:
            bucket.level -= more
            bucket.reserved += more
        reservation = former._replace(tokens=tokens)
        self._live[reservation.number] = reservation
        return reservation

    def settle(self, reservation: Reservation, used_tokens: int, now: float) -> None:
        """The request is over and used so many tokens; what it did not use goes back. Once; later calls change nothing."""
        live = self._live.pop(reservation.number, None)
        if live is None:
            return
        reservation = live  # it may have been resized since
        for name in reservation.names:
            bucket = self._buckets.get(name)
            if bucket is not None:
                bucket.reserved = max(0, bucket.reserved - reservation.tokens)
                bucket.level += reservation.tokens - used_tokens
                bucket.used += used_tokens
                bucket.fill(now)

    def lease(self, now: float) -> list[tuple[str, Budget, float]]:
        """From now on levels are granted from outside (:meth:`grant`) and do not fill by themselves.

        Returns:
            the new ones, with the tokens that were taken from each until now.
        """
        fresh: list[tuple[str, Budget, float]] = []
        for name, bucket in self._buckets.items():
            if not bucket.leased:
                bucket.fill(now)
                taken = bucket.budget.burst_tokens - max(0.0, bucket.level)
                bucket.leased, bucket.level = True, min(bucket.level, 0.0)
                fresh.append((name, bucket.budget, taken))
        return fresh

    def needs(self, slice_s: float) -> dict[str, tuple[Budget, float]]:
        """What each leased budget lacks of `slice_s` seconds' worth; negative where it has more.

        A request that was denied since and is larger than that counts instead: else it would never be served. So does
        all that requests wait for together (:meth:`want`).
        """
        found: dict[str, tuple[Budget, float]] = {}
        for name, bucket in self._buckets.items():
            if bucket.leased:
                target = min(bucket.budget.burst_tokens, max(bucket.budget.tokens_per_s * slice_s, bucket.wanted))
                here = bucket.level + bucket.reserved
                lacks = target - here
                if bucket.waited_for:
                    lacks = max(lacks, min(bucket.waited_for - bucket.level, bucket.budget.burst_tokens - here))
                found[name] = (bucket.budget, lacks)
                bucket.wanted = bucket.waited_for = 0.0
        return found

    def may_be_granted(self, name: str, tokens: int) -> bool:
        """Whether a leased budget has room for so much beside what is reserved of it."""
        bucket = self._buckets.get(name)
        return bucket is not None and bucket.leased and tokens + bucket.reserved <= bucket.budget.burst_tokens

    def want(self, wants: Iterable[tuple[str, int]]) -> None:
        """A request waits for so many tokens of leased budgets."""
        for name, tokens in wants:
            bucket = self._buckets.get(name)
            if bucket is not None and bucket.leased:
                bucket.waited_for += tokens

    def grant(self, name: str, tokens: float) -> None:
        """More (or, where negative, less) of a leased budget. An unknown name changes nothing."""
        bucket = self._buckets.get(name)
        if bucket is not None and bucket.leased:
            bucket.level += tokens

    def statistics(self, now: float) -> dict[str, BudgetStatistics]:
        for bucket in self._buckets.values():
            bucket.fill(now)
        return {
            name: BudgetStatistics(bucket.level, bucket.reserved, bucket.used, bucket.denied)
            for name, bucket in self._buckets.items()
        }
