"""What a request may use, and what it did use: budgets and the meter behind one door. Pure, but for the day it is told."""

from __future__ import annotations

from collections.abc import Callable

from foretype_client.wire import RequestClass, Usage

from foretype_backend.admission.limits import Denied, Reservation
from foretype_backend.admission.metering import Meter, UsageKey
from foretype_backend.admission.quota import Quotas
from foretype_backend.identity.directory import Principal

__all__ = ["Accounts"]


class Accounts:
    """Args: `day` gives today in UTC, YYYY-MM-DD: a request counts on the day it ended."""

    def __init__(self, day: Callable[[], str]) -> None:
        self.quotas = Quotas()
        self.meter = Meter()
        self._day = day

    def reserve(
        self, principal: Principal, class_: RequestClass, tokens: int, now: float
    ) -> Reservation | Denied | None:
        """Claim tokens before admission; None where nothing bounds the principal."""
        return self.quotas.reserve(principal, class_, tokens, now)

    def over(
        self,
        reservation: Reservation | None,
        principal: Principal,
        class_: RequestClass,
        usage: Usage,
        engine_s: float,
        now: float,
    ) -> None:
        """A request is over, however: settle what it reserved, and meter what it used (nothing where it never ran)."""
        if reservation is not None:
            self.quotas.budgets.settle(reservation, usage.prompt_tokens + usage.generated_tokens, now)
        if usage.prompt_tokens or usage.generated_tokens or engine_s:
            key = UsageKey(principal.tenant, principal.team, principal.user, class_.value, self._day())
            self.meter.add(key, usage, engine_s)
