"""Who is bounded by what: a tenant as a whole, each of its users, each class of its requests. Pure; time is passed in.

A user's bucket is made when the user first asks and forgotten when it is full again, so that memory follows who is active.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foretype_wire.messages import RequestClass

from foretype_backend.admission.limits import Budget, Budgets, Denied, Reservation
from foretype_backend.identity.directory import Principal, Tenant

_FORGET_EVERY: Final = 4096


class Quotas:
    """The budgets of every tenant.

    Args:
        share: of each of them, that may be spent here; what others may spend of it is counted elsewhere.
    """

    def __init__(self, share: float = 1.0) -> None:
        self.budgets = Budgets()
        self._share = share
        self._tenants: Mapping[str, Tenant] = {}
        self._asked = 0

    def __repr__(self) -> str:
        return f"<Quotas of {len(self._tenants)} tenants: {self.budgets!r}>"

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
