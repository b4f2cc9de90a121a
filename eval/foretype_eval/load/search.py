"""The highest rate that holds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

_TRIES: Final = 14
_NEAR: Final = 0.08
LOWEST_RATE: Final = 5.0
"""Requests per second; what fails here has no rate that is worth a name."""


async def highest_rate(
    measure: Callable[[float], Awaitable[dict[str, Any]]],
    *,
    start: float,
    limit_ms: float,
    budget_s: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Double the rate while it holds, halve it until one holds, then halve the gap.

    A rate holds when the p99 of added time is within `limit_ms` and 99.9 % were answered in time. It fails when it fails
    twice: one pause of the machine is no property of the gateway.

    Args:
        budget_s: after this long nothing more is tried.

    Returns:
        The figures of the best rate; `highest_rate`, None where none holds; `verdict`, in words; `tried`, every one; `cut_off`, the
        budget or the number of tries ended it and not the gap.
    """
    tried: list[dict[str, Any]] = []
    good: dict[str, Any] | None = None
    worst: dict[str, Any] = {}
    low, high = 0.0, float("inf")
    rate, again, over = start, False, False
    until = clock() + budget_s
    while not over and len(tried) < _TRIES and clock() < until:
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
            high, worst = rate, found
        over = rate <= LOWEST_RATE if not low else high - low <= _NEAR * rate
        rate = _next(low, high)
    report = {**(good or worst), "highest_rate": low or None, "verdict": _verdict(low, limit_ms, tried)}
    return report | {"limit_ms": limit_ms, "cut_off": not over, "tried": tried}


def _next(low: float, high: float) -> float:
    if high == float("inf"):
        return round(low * 2, 1)
    return round(max(LOWEST_RATE, high / 2) if not low else (low + high) / 2, 1)


def _verdict(low: float, limit_ms: float, tried: list[dict[str, Any]]) -> str:
    if low:
        return f"{low:g} requests/s with a p99 of {limit_ms:g} ms or less"
    least = min(tried, key=lambda one: one["rate"], default=None)
    if least is None:
        return "none: nothing was tried"
    lowest = [one for one in tried if one["rate"] == least["rate"]]
    p99s = ", ".join("–" if one["added_ms"]["p99"] is None else f"{one['added_ms']['p99']:g}" for one in lowest)
    in_time = min(one["availability"] for one in lowest)
    return f"none: p99 {p99s} ms at {least['rate']:g}/s, the lowest rate tried; {in_time:.1%} answered in time"


def _brief(found: dict[str, Any]) -> dict[str, Any]:
    names = ("achieved_rate", "availability", "refused", "gateway_cpu_share", "generator_cpu_share", "cancel_ms")
    return {name: found[name] for name in names if name in found} | {"generator_late_ms": found["generator_late_ms"]}
