"""What a request may use, and what it did use: budgets and the meter behind one door. Pure; the day is passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from foretype_wire.messages import RequestClass, Usage

from foretype_backend.admission.limits import Budget, Budgets, Denied, Reservation
from foretype_backend.admission.metering import Meter, UsageKey
from foretype_backend.identity.directory import Principal, Tenant

_FORGET_EVERY: Final = 4096


class Quotas:
    """The budgets of every tenant as a whole, of each of its users, and of each class of its requests.

    A user's bucket is made when the user first asks and forgotten when it is full again, so that memory follows who is active.

    Args:
        share: of each of them, that may be spent here; what others may spend of it is counted elsewhere.
    """

    def __init__(self, share: float = 1.0) -> None:
        self.budgets = Budgets()
        self._share = share
        self._tenants: Mapping[str, Tenant] = {}
        self._asked = 0

    def follow(self, tenants: Mapping[str, Tenant], now: float) -> None:
        """Take the limits of a newer snapshot; levels and reservations stay."""
        for name in list(self.budgets.names()):
            kind, _, rest = name.partition(":")
            tenant, _, of = rest.partition("/")
            wanted = self._bound(tenants[tenant], of if kind == "class" else kind) if tenant in tenants else None
            self.budgets.set(name, wanted, now)
        self._tenants = tenants

    def _bound(self, tenant: Tenant, of: str) -> Budget | None:
        budget = tenant.budgets.get(of)
        if budget is None or self._share == 1.0:
            return budget
        return Budget(tokens_per_s=budget.tokens_per_s * self._share, burst_tokens=budget.burst_tokens * self._share)

    def reserve(
        self, principal: Principal, class_: RequestClass, tokens: int, now: float
    ) -> Reservation | Denied | None:
        """Claim what a request may use at most; None where nothing bounds it."""
        tenant = self._tenants.get(principal.tenant)
        if tenant is None or not tenant.budgets:
            return None
        names: list[str] = []
        for of, name in (
            ("tenant", f"tenant:{tenant.name}"),
            ("user", f"user:{tenant.name}/{principal.user}"),
            (class_.value, f"class:{tenant.name}/{class_.value}"),
        ):
            budget = self._bound(tenant, of)
            if budget is not None:
                names.append(name)
                if name not in self.budgets:
                    self.budgets.set(name, budget, now)
        if not names:
            return None
        self._asked += 1
        if self._asked % _FORGET_EVERY == 0:
            self.budgets.forget_full("user:", now)
        return self.budgets.reserve(names, tokens, now)


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
