"""The highest rate that holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

__all__ = ["highest_rate"]

_TRIES: Final = 14


async def highest_rate(
    measure: Callable[[float], Awaitable[dict[str, Any]]], *, start: float, limit_ms: float
) -> dict[str, Any]:
    """Double the rate while it holds, then halve the gap: the highest rate that holds, and every one that was tried.

    A rate holds when the p99 of added time is within `limit_ms` and 99.9 % were answered in time. It fails when it fails
    twice: one pause of the machine is no property of the gateway.
    """
    tried: list[dict[str, Any]] = []
    good: dict[str, Any] | None = None
    low, high = 0.0, float("inf")
    rate, again = start, False
    while len(tried) < _TRIES and high - low > 0.08 * rate:
        found = await measure(rate)
        p99 = found["added_ms"]["p99"]
        holds = p99 is not None and p99 <= limit_ms and found["availability"] >= 0.999
        tried.append({"rate": rate, "holds": holds, "added_ms": found["added_ms"]} | _brief(found))
        if not holds and not again:
            again = True
            continue
        again = False
        if holds:
            low, good = rate, found
        else:
            high = rate
        rate = round(low * 2 if high == float("inf") else (low + high) / 2, 1)
    return {**(good or {}), "highest_rate": low, "limit_ms": limit_ms, "tried": tried}


def _brief(found: dict[str, Any]) -> dict[str, Any]:
    names = ("achieved_rate", "availability", "refused", "gateway_cpu_share", "generator_cpu_share", "cancel_ms")
    return {name: found[name] for name in names if name in found} | {"generator_late_ms": found["generator_late_ms"]}
