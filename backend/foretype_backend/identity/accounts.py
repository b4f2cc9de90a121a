"""What a request may use, and what it did use: budgets and the meter behind one door. Pure; the day is passed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from foretype_wire.messages import RequestClass, Usage

from foretype_backend.admission.limits import Denied, Reservation
from foretype_backend.admission.metering import Meter, UsageKey
from foretype_backend.identity.bounds_by_principal import Quotas
from foretype_backend.identity.directory import Principal

_REFUSED_SHARE: Final = 8
"""A prompt that was counted and not computed costs its sender this part of its tokens: what a gateway did for it is not free."""


def refused_cost(prompt_tokens: int) -> int:
    """Tokens that a request costs which its sender made unfit, late or unwanted before it ran."""
    return prompt_tokens // _REFUSED_SHARE


class Ledger(Protocol):
    """What several gateways spend together."""

    def may_have(self, denied: Denied) -> bool:
        """Whether it may have what a request lacks here; no waiting."""
        ...

    async def more(self, denied: Denied) -> bool:
        """Ask it for that; whether it was asked. Never raises, and takes less than a second."""
        ...


class Accounts:
    """See the module.

    Args:
        day: gives today in UTC, YYYY-MM-DD: a request counts on the day it ended.
        share: of every budget, that may be spent here.
    """

    def __init__(self, day: Callable[[], str], *, share: float = 1.0) -> None:
        self.quotas = Quotas(share)
        self.meter = Meter()
        self._day = day
        self._ledger: Ledger | None = None

    def spend_from(self, ledger: Ledger) -> None:
        """Budgets hold a part of what a ledger has, which is asked before a request is refused."""
        self._ledger = ledger

    def may_grow(self, denied: Denied) -> bool:
        """Whether :meth:`grow` could help."""
        return self._ledger is not None and self._ledger.may_have(denied)

    async def grow(self, denied: Denied) -> bool:
        """Get what a request lacks, where it is to be had. True: reserve once more, it may go now."""
        return self._ledger is not None and await self._ledger.more(denied)

    def reserve(
        self, principal: Principal, class_: RequestClass, tokens: int, now: float
    ) -> Reservation | Denied | None:
        """Claim tokens before admission; None where nothing bounds the principal."""
        return self.quotas.reserve(principal, class_, tokens, now)

    def resize(self, reservation: Reservation | None, tokens: int, now: float) -> Reservation | Denied | None:
        """The tokens are counted: claim exactly these."""
        return None if reservation is None else self.quotas.budgets.resize(reservation, tokens, now)

    def settle(self, reservation: Reservation | None, tokens: int, now: float) -> None:
        """The request is over before it ran, and costs so many tokens; one that was settled stays as it is."""
        if reservation is not None:
            self.quotas.budgets.settle(reservation, tokens, now)

    def over(
        self,
        reservation: Reservation | None,
        principal: Principal,
        class_: RequestClass,
        usage: Usage,
        engine_s: float,
        now: float,
        *,
        refused_tokens: int = 0,
    ) -> None:
        """A request is over, however: settle what it reserved, and meter what it used (nothing if it never ran).

        Args:
            refused_tokens: what it costs where it used nothing.
        """
        self.settle(reservation, usage.prompt_tokens + usage.generated_tokens or refused_tokens, now)
        if usage.prompt_tokens or usage.generated_tokens or engine_s:
            key = UsageKey(principal.tenant, principal.team, principal.user, class_.value, self._day())
            self.meter.add(key, usage, engine_s)
