"""What each tenant holds of an engine's slots, and what its part of them is: a tenant that asks seldom finds a slot free. Pure.

Turns (:mod:`.queue`) decide who is next when a slot comes free, but a tenant that floods holds all of them, and one
that asks once waits for a slot. So while several tenants are about, those that hold their part leave the last slots
(the *headroom*) to those that hold less. A tenant alone has every slot. Free tenants are nobody's others to paying
ones, and leave the headroom to them whatever they hold.
"""

from __future__ import annotations

from typing import Final

_ABOUT_S: Final = 10.0
"""A tenant that asked so lately is about."""
_FEW_SLOTS: Final = 4
"""Of fewer, none can be left free."""
_ONE_IN: Final = 8
"""Of the slots, that are headroom: an eighth, and one at least. A flood then finds 87.5 % of an engine.

Of the requests of a tenant that asks a tenth of an engine of 24 slots beside a flood, 1.4 % waited for a slot where a twelfth was left
free, so that its p99 was at the mercy of chance; with an eighth 0.3 % (`tests/backend/test_admission.py`).
"""


class _Tenant:
    __slots__ = ("asked_s", "free", "live", "running", "weight")

    def __init__(self) -> None:
        self.asked_s = 0.0
        self.free = False
        self.live = 0
        self.running = 0
        self.weight = 1.0


class Shares:
    """Counts by tenant. Every call costs O(1), but :meth:`turn`."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._weights = {False: 0.0, True: 0.0}
        """Of paying tenants, and of free ones."""
        self._about = {False: 0, True: 0}

    def __len__(self) -> int:
        """Tenants that are about."""
        return len(self._tenants)

    @property
    def paid_about(self) -> bool:
        """Whether a paying tenant is about, before whom free ones stand back."""
        return self._about[False] > 0

    def asked(self, tenant: str, weight: float, now: float, *, free: bool = False) -> None:
        """A request came, whatever becomes of it."""
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = _Tenant()
        else:
            self._count(found, -1)
        found.weight, found.free, found.asked_s = max(weight, 1e-3), free, now
        self._count(found, 1)

    def taken(self, tenant: str) -> None:
        """It waits or runs from now on."""
        self._tenants[tenant].live += 1

    def started(self, tenant: str) -> None:
        self._tenants[tenant].running += 1

    def gone(self, tenant: str, *, ran: bool) -> None:
        found = self._tenants[tenant]
        found.live -= 1
        found.running -= ran

    def headroom(self, tenant: str, slots: int) -> int:
        """Slots that this tenant leaves free: none where it is alone, or holds less than its part."""
        found = self._tenants[tenant]
        if slots < _FEW_SLOTS:
            return 0
        if not (found.free and self.paid_about) and (
            self._about[found.free] < 2 or self._within(found, slots, found.running)
        ):
            return 0
        return max(1, slots // _ONE_IN)

    def modest(self, tenant: str, slots: int) -> bool:
        """Whether one more request is still within the tenant's part of the slots, while others are about."""
        found = self._tenants[tenant]
        if len(self._tenants) < 2 or (found.free and self.paid_about):
            return False
        return self._within(found, slots, found.live)

    def _within(self, tenant: _Tenant, slots: int, holds: int) -> bool:
        return holds + 1 <= slots * tenant.weight / self._weights[tenant.free]

    def _count(self, tenant: _Tenant, sign: int) -> None:
        self._weights[tenant.free] += sign * tenant.weight
        self._about[tenant.free] += sign

    def turn(self, now: float) -> None:
        """Forget who has not asked for a while and holds nothing."""
        gone = [name for name, one in self._tenants.items() if not one.live and now - one.asked_s > _ABOUT_S]
        for name in gone:
            del self._tenants[name]
        for free in self._weights:
            weights = [one.weight for one in self._tenants.values() if one.free is free]
            self._weights[free], self._about[free] = sum(weights), len(weights)
