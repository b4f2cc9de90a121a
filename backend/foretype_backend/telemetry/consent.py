"""What a tenant agreed to, and where that is asked: before text is kept, exported, or kept longer. Operators set it with `foretype privacy`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

_AGE_S: Final = 30.0
"""A withdrawn consent takes effect within this."""


class Consent(NamedTuple):
    """What a tenant agreed to, and for how many days things are kept."""

    tenant: str
    store_text: bool = False
    train: bool = False
    events_days: int = 90
    text_days: int = 30
    user_reports: bool = False


class RememberedConsents:
    """Asked for every batch, and of the store twice a minute.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, Consent]] = {}

    async def of(self, tenant: str, ask: Callable[[str], Awaitable[Consent]]) -> Consent:
        """What `ask` said of the tenant lately."""
        known = self._known.get(tenant)
        if known is None or self._clock() - known[0] > _AGE_S:
            known = self._known[tenant] = (self._clock(), await ask(tenant))
        return known[1]
