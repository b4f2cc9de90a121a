"""What may be held at once, in all and by one tenant: connections, requests, remembered texts. Pure."""

from __future__ import annotations

from typing import NamedTuple


class BoundStatistics(NamedTuple):
    held: int
    tenants: int


class Bound:
    """Counts what is held.

    Args:
        in_all: most of everybody together.
        each: most of one tenant.
    """

    def __init__(self, in_all: int, each: int) -> None:
        self.in_all = in_all
        self.each = each
        self._held: dict[str, int] = {}
        self._sum = 0

    def full(self, tenant: str) -> bool:
        """Nothing more fits for everybody, or for this tenant."""
        return self._sum >= self.in_all or self.own_full(tenant)

    def own_full(self, tenant: str) -> bool:
        """The tenant has all that one may have."""
        return self._held.get(tenant, 0) >= self.each

    def add(self, tenant: str, amount: int = 1) -> None:
        """Take, or with an amount below zero give back, whether it fits or not."""
        held = self._held.get(tenant, 0) + amount
        self._sum += amount
        if held > 0:
            self._held[tenant] = held
        else:
            self._held.pop(tenant, None)
            self._sum -= held  # nobody gives back more than was taken

    def statistics(self) -> BoundStatistics:
        return BoundStatistics(self._sum, len(self._held))
