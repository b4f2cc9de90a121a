"""Whether answers of chat flow as fast as promised: time per token, by tier, and who is refused when they do not. Pure.

Every answer that runs slows the others down, so a tier whose rolling p99 is above `refuse_share` of its objective takes no new ones;
where it is the paid tier, the free one stops first, and the paid one only when that did not help. Nothing new is taken until the window
of two seconds is calm or empty.
"""

from __future__ import annotations

from typing import Final

from foretype_backend.admission.pressure import RollingP99
from foretype_backend.identity.directory import Tier

_STEP_S: Final = 0.5


class AnswerPace:
    """Args: objectives in seconds per token after the first."""

    def __init__(self, *, paid_s: float, free_s: float, refuse_share: float = 0.8, resume_share: float = 0.6) -> None:
        self._objectives_s = {Tier.PAID: paid_s, Tier.FREE: free_s}
        self._refuse_share, self._resume_share = refuse_share, resume_share
        self._windows = {tier: RollingP99() for tier in self._objectives_s}
        self._shed: set[Tier] = set()
        self._turned: float | None = None

    def note(self, tier: Tier, tpot_s: float) -> None:
        """An answer took so long per token."""
        self._windows[tier].add(tpot_s)

    def sheds(self, tier: Tier, now: float) -> bool:
        """Whether a new answer of this tier is refused."""
        if self._turned is None or now - self._turned >= _STEP_S:
            self._turn()
            self._turned = now
        return tier in self._shed

    def p99_ms(self) -> dict[str, float]:
        """By tier, where it is known."""
        found = {tier.value: window.p99_s() for tier, window in self._windows.items()}
        return {name: round(p99 * 1000, 1) for name, p99 in found.items() if p99 is not None}

    def _turn(self) -> None:
        late, calm = set[Tier](), set[Tier]()
        for tier, window in self._windows.items():
            p99, objective = window.p99_s(), self._objectives_s[tier]
            if p99 is None or p99 < self._resume_share * objective:
                calm.add(tier)
            elif p99 > self._refuse_share * objective:
                late.add(tier)
            window.turn()
        before = set(self._shed)
        self._shed -= calm
        if late:
            self._shed.add(Tier.FREE)
        if Tier.PAID in late and Tier.FREE in before:
            self._shed.add(Tier.PAID)
