"""Whether a canary is worse than what stands: the experiments' guardrails, on what gateways count of each revision. Pure.

Ratios of requests are compared by a confidence sequence that holds at all looks of all steps together; the error is shared by guardrails and
steps, so that of canaries without a difference, and without margins, at most one in a hundred is taken back. Gateways count requests and
not people, and requests of one developer are alike: they count as half as many. With few developers a canary's share may differ from the others
by who is in it; the margins stand against that.

The p99 of the first token is no count: it breaches when it was above the limit, and a quarter above that of the stable revision on the same
gateways, in three looks one after the other, each with new requests.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from foretype_backend.experiments.estimate import WAY_SHARE, Effect
from foretype_backend.experiments.guardrails import GUARDS, Guard, Guardrails, alpha_each, finding
from foretype_backend.experiments.sequential import confidence_sequence, mixture_for
from foretype_backend.fleet.rollout.counters import Counts

RATIOS: Final = {
    "failed": ("failed", "requests"),
    "cancel_rate": ("cancelled", "requests"),
    "syntax_errors": ("syntax_errors", "shown"),
    "acceptance": ("accepted", "shown"),
}
LATE_LOOKS: Final = 3
_LATER: Final = 1.25
_ALIKE: Final = 2.0
"""Variance of a count of requests beside that of independent ones: assumed, since gateways do not count people."""
_GUARDS: Final = {**GUARDS, "failed": Guard(falls=False, relative=False)}


class Judged(NamedTuple):
    """What one guardrail says of a canary.

    Attributes:
        breached: why the canary goes back.
        waits: why it does not go forward yet.
        told: the same in words, for operators.
    """

    name: str
    breached: str | None
    waits: str | None
    told: str


def judge(margins: dict[str, float], stable: Counts, canary: Counts, *, evidence_min: int, steps: int) -> list[Judged]:
    """Every ratio that is on.

    Args:
        margins: by name; see :class:`Guardrails`.
        evidence_min: of what a ratio is of, on both sides.
        steps: that share the error.
    """
    on = [name for name in RATIOS if name in margins]
    alpha = alpha_each(on) * WAY_SHARE / steps
    return [_judged(name, margins[name], stable, canary, evidence_min, alpha) for name in on]


def _judged(name: str, margin: float, stable: Counts, canary: Counts, evidence_min: int, alpha: float) -> Judged:
    over, under = RATIOS[name]
    parts = [(getattr(one, over), getattr(one, under)) for one in (stable, canary)]
    if any(None in part for part in parts):
        return Judged(name, None, f"{name}: no gateway counts {over} of {under} yet", f"{name}: not known")
    (x0, n0), (x1, n1) = parts
    least = min(n0, n1)
    if least < evidence_min:
        told = f"{name}: {n1} {under} of the canary and {n0} of the stable revision"
        return Judged(name, None, f"{told}; {evidence_min} of each are needed", told)
    control, treatment = x0 / n0, x1 / n1
    difference = treatment - control
    shares = [((x + 1) / (n + 2), n) for x, n in ((x0, n0), (x1, n1))]
    variance = _ALIKE * sum(p * (1 - p) / n for p, n in shares)
    deviation = max(math.sqrt(variance * least), abs(difference) / math.sqrt(least))
    bounds = confidence_sequence(difference, deviation, least, r=mixture_for(4 * evidence_min, alpha), alpha=alpha)
    effect = Effect(control, treatment, difference, None, bounds, None, least, least)
    guard = _GUARDS[name]
    breached: str | None = finding(name, margin, effect, (n0, n1), guard)["breached"]
    told = f"{name} {control:.1%} to {treatment:.1%}; n = {n0} and {n1}"
    allowed = margin * control if guard.relative else margin
    worse = -difference if guard.falls else difference
    looks = None if worse <= allowed else f"{told}: looks worse by more than {margin:.0%}, and is not certain yet"
    return Judged(name, None if breached is None else f"{name} {breached}; n = {n0} and {n1}", looks, told)


def is_late(
    fresh: dict[str, dict[str, Counts]], stable: str, canary: str, guardrails: Guardrails, requests_min: int
) -> bool | None:
    """Whether in this look the canary's first token is late on most gateways, weighed by its requests; None with too few of them."""
    late = total = 0
    for revisions in fresh.values():
        one, other = revisions.get(canary, Counts()), revisions.get(stable, Counts())
        if not one.requests or one.p99_ms is None:
            continue
        total += one.requests
        beside = 0.0 if other.p99_ms is None else other.p99_ms * _LATER
        late += one.requests if one.p99_ms > max(guardrails.first_token_ms, beside) else 0
    return None if total < requests_min else late * 2 > total
