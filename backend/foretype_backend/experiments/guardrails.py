"""What stops an experiment: ratios that a variant may not make worse by more than a margin, whatever its headline says. Pure.

Each is looked at after every block, with a one-sided bound that holds at all looks together (:mod:`.estimate`); the guardrails of an
experiment share one error, so that of experiments without a difference at most :data:`FALSE_STOPS` are ever stopped. The margins come on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from foretype_backend.experiments.estimate import WAY_SHARE, Effect

_Margin = Annotated[float, Meta(ge=0.0, le=10.0)]
FALSE_STOPS: Final = 0.01
"""Share of experiments without any difference, and without margins, that guardrails would stop."""


class Guardrails(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Margins of one experiment; None switches a guardrail off.

    Attributes:
        first_token_ms: a first token later than this is late; `first_token` bounds the share of late ones, so at 0.01 a control whose
            p99 is the limit may become a variant whose p98 is.
        first_token, syntax_errors: by how much the share may rise, of 1.
        cancel_rate, cost: by how much it may rise, of the control's.
        acceptance, retention: by how much it may fall, of the control's.
    """

    first_token_ms: Annotated[float, Meta(gt=0.0, le=60_000.0)] = 150.0
    first_token: _Margin | None = 0.01
    cancel_rate: _Margin | None = 0.10
    syntax_errors: _Margin | None = 0.02
    cost: _Margin | None = 0.25
    acceptance: _Margin | None = 0.10
    retention: _Margin | None = 0.05

    def margins(self) -> dict[str, float]:
        """Of those that are on, by name."""
        return {name: margin for name in GUARDS if (margin := getattr(self, name)) is not None}


class Guard(NamedTuple):
    """Which way a ratio gets worse, and whether its margin is a part of the control's."""

    falls: bool
    relative: bool


GUARDS: Final[Mapping[str, Guard]] = {
    "first_token": Guard(falls=False, relative=False),
    "cancel_rate": Guard(falls=False, relative=True),
    "syntax_errors": Guard(falls=False, relative=False),
    "cost": Guard(falls=False, relative=True),
    "acceptance": Guard(falls=True, relative=True),
    "retention": Guard(falls=True, relative=True),
}


def alpha_each(guards: Sequence[str]) -> float:
    """What to give :func:`.estimate.estimate` for each of them: its always-valid bounds are two-sided and get a share of it."""
    return min(0.5, 2 * FALSE_STOPS / WAY_SHARE / max(1, len(guards)))


def finding(
    name: str, margin: float, effect: Effect, of: Sequence[float], guard: Guard | None = None
) -> dict[str, Any]:
    """What is known of one guardrail.

    Args:
        of: the denominators of control and treatment.
        guard: of a ratio that is none of :data:`GUARDS`.
    """
    guard, bounds = guard or GUARDS[name], effect.always
    breached = None
    allowed = margin * effect.control if guard.relative else margin
    if bounds is not None:
        worst = -bounds.high if guard.falls else bounds.low
        if worst > allowed:  # never where the control has no value
            verb = "falls" if guard.falls else "rises"
            certain = worst / effect.control if guard.relative and effect.control else worst
            of_what = "" if guard.relative else " of all"
            breached = f"{verb} by more than {margin:.0%}{of_what} (at least {certain:.1%} is certain)"
    return {
        "control": _number(effect.control),
        "treatment": _number(effect.treatment),
        "n": [int(one) for one in of],
        "difference": _number(effect.difference),
        "ci_on_the_way": None if bounds is None else [_number(bounds.low), _number(bounds.high)],
        "margin": margin,
        "breached": breached,
    }


def _number(value: float) -> Any:
    return round(value, 6) if math.isfinite(value) else None
