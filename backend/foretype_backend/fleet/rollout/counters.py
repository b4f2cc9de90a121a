"""What gateways count of each revision, as differences: sums over several of them, through their restarts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from foretype_backend.fleet.scaling.signals import figure

_MOST_GATEWAYS: Final = 64
_FORGOTTEN_S: Final = 86_400.0


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway counted of one revision; None: it does not count that.

    Attributes:
        p99_ms: of the first token, as the gateway tells it; no count.
    """

    requests: int | None = None
    failed: int | None = None
    cancelled: int | None = None
    shown: int | None = None
    accepted: int | None = None
    syntax_errors: int | None = None
    p99_ms: float | None = None

    def since(self, before: Counts) -> Counts:
        """What came since. Where any count has fallen the gateway began anew, and all it says is new."""
        pairs = [(getattr(self, name), getattr(before, name)) for name in _SUMS]
        again = any(now is not None and then is not None and now < then for now, then in pairs)
        news = [now if again or now is None else now - (then or 0) for now, then in pairs]
        return Counts(**dict(zip(_SUMS, news, strict=True)), p99_ms=self.p99_ms)

    def plus(self, more: Counts) -> Counts:
        """Both; what one of them does not count is taken from the other."""
        sums = {
            name: None
            if (one := getattr(self, name)) is None and getattr(more, name) is None
            else (one or 0) + (getattr(more, name) or 0)
            for name in _SUMS
        }
        return Counts(**sums)


_SUMS: Final = ("requests", "failed", "cancelled", "shown", "accepted", "syntax_errors")


class GatewayLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway said last, by revision, and when, Unix seconds."""

    at_s: float
    revisions: dict[str, Counts] = {}


class CountedLook(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted since the last look at the gateways.

    Attributes:
        gateways: what each of them said last.
        fresh: by gateway and revision, what is new.
    """

    gateways: dict[str, GatewayLook]
    fresh: dict[str, dict[str, Counts]]


def counted(before: Mapping[str, GatewayLook], told: Mapping[str, Mapping[str, Counts]], now_s: float) -> CountedLook:
    """What each gateway's new words add. A gateway that is heard for the first time adds nothing: its past is not ours."""
    fresh: dict[str, dict[str, Counts]] = {}
    gateways = {name: look for name, look in before.items() if now_s - look.at_s < _FORGOTTEN_S}
    for name, revisions in told.items():
        known = gateways.get(name)
        if known is not None:
            fresh[name] = {
                revision: counts.since(known.revisions.get(revision, Counts()))
                for revision, counts in revisions.items()
            }
        former = {} if known is None else known.revisions
        gateways[name] = GatewayLook(at_s=now_s, revisions={**former, **revisions})
    latest = sorted(gateways.items(), key=lambda one: one[1].at_s)[-_MOST_GATEWAYS:]
    return CountedLook(gateways=dict(latest), fresh=fresh)


def read_revisions(answer: Any, pool: str) -> dict[str, Counts] | None:
    """Of a gateway's answer of `/v1/fleet/signals`; None where the pool is not in it. What is no count is not counted."""
    found = _table(_table(answer).get(pool))
    if not found:
        return None
    revisions = _table(found.get("revisions"))
    return {name: _read(one) for name, told in revisions.items() if (one := _table(told))}


def _table(told: Any) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _read(one: dict[str, Any]) -> Counts:
    sums = {name: None if (count := figure(one.get(name))) is None else int(count) for name in _SUMS}
    return Counts(**sums, p99_ms=figure(_table(one.get("ttft_ms")).get("p99")))
