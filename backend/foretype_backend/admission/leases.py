"""One gateway's share of budgets that several gateways spend: leased in slices, extended while the ledger is away. Pure.

Every `slice_s` the gateway asks the ledger for what its buckets lack of a slice, so that a request reserves without a round trip. One
that finds too little here is not refused before the ledger was asked: a burst lies there.
While the ledger does not answer, every bucket gets what it got on average before (one that never got an answer: its whole rate),
and what was given so is owed: it is taken off the shared budget when the ledger is back, at most one burst of it. A ledger that
forgot (restarted, evicted) starts with full buckets: at most one burst more is spent, and nothing is ever stuck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from foretype_backend.admission.limits import Budgets, Denied

_SMOOTHING: Final = 0.3


class LeaseRequest(NamedTuple):
    """What is asked of the ledger for one budget. `want` below zero gives back; `owed` was spent while it was away."""

    name: str
    tokens_per_s: float
    burst_tokens: float
    want: float
    owed: float


class LeaseStatistics(NamedTuple):
    leased: int
    owed_tokens: float
    away_s: float


class Leases:
    """Args: `budgets` are filled from here alone from now on."""

    def __init__(self, budgets: Budgets, *, slice_s: float, now: float) -> None:
        self._budgets = budgets
        self._slice_s = slice_s
        self._rates: dict[str, float] = {}
        self._owed: dict[str, float] = {}
        self._short: set[str] = set()
        self._away = False
        self._at_s = now
        self._answered_s = now

    def asks(self, now: float) -> list[LeaseRequest]:
        """What to ask now: nothing for budgets that neither lack nor have too much."""
        for name, budget, taken in self._budgets.lease(now):
            if taken > 0:  # the first request was served before the ledger was asked
                self._owed[name] = self._owed.get(name, 0.0) + taken
            # Half a slice in advance, which is owed: nobody is refused because the ledger's first answer is on its way.
            self._give(name, min(budget.burst_tokens, budget.tokens_per_s * self._slice_s / 2))
        asks: list[LeaseRequest] = []
        for name, (budget, lacks) in self._budgets.needs(self._slice_s).items():
            owed = self._owed.get(name, 0.0)
            if abs(lacks) >= 1.0 or owed:
                asks.append(LeaseRequest(name, budget.tokens_per_s, budget.burst_tokens, lacks, owed))
        self._short.intersection_update(ask.name for ask in asks)
        return asks

    def may_have(self, denied: Denied) -> bool:
        """Whether the ledger may have what a request wants: it answers, and gave no less than it was asked for the last time."""
        return not self._away and all(
            name not in self._short and self._budgets.may_be_granted(name, tokens) for name, tokens in denied.wants
        )

    def want(self, denied: Denied) -> None:
        """The next asking is for this too."""
        self._budgets.want(denied.wants)

    def answered(self, asks: Sequence[LeaseRequest], grants: Mapping[str, float], now: float) -> None:
        """The ledger granted (or took back) so much of each that was asked for."""
        elapsed_s = max(now - self._at_s, 1e-3)
        for ask in asks:
            granted = grants[ask.name]
            self._budgets.grant(ask.name, granted)
            self._owed.pop(ask.name, None)
            if granted < ask.want - 1e-6:
                self._short.add(ask.name)
            else:
                self._short.discard(ask.name)
            rate = max(0.0, granted) / elapsed_s
            before = self._rates.get(ask.name, rate)
            self._rates[ask.name] = min(ask.tokens_per_s, before + _SMOOTHING * (rate - before))
        self._at_s = self._answered_s = now
        self._away = False

    def idle(self, now: float) -> None:
        """There was nothing to ask: this time is part of nobody's average, and says nothing of the ledger."""
        self._at_s = self._answered_s = now
        self._away = False

    def away(self, asks: Sequence[LeaseRequest], now: float) -> None:
        """The ledger did not answer: the last lease goes on at its average rate, and is owed."""
        self._away = True
        elapsed_s = max(0.0, now - self._at_s)
        for ask in asks:
            # A budget never leased before gets its whole rate: nobody may be locked out by an absent ledger.
            rate = self._rates.get(ask.name, ask.tokens_per_s)
            self._give(ask.name, max(0.0, min(ask.want, rate * elapsed_s)))
        self._at_s = now

    def _give(self, name: str, tokens: float) -> None:
        """Grant what the ledger has not; it is owed."""
        self._budgets.grant(name, tokens)
        self._owed[name] = self._owed.get(name, 0.0) + tokens

    def statistics(self, now: float) -> LeaseStatistics:
        return LeaseStatistics(len(self._rates), sum(self._owed.values()), now - self._answered_s)
