"""`--scenario hostile`: one tenant sends the worst that the doors accept, and another, who types, notices how much of it."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any, Final

import msgspec
from foretype_wire.errors import GatewayGoneError

from foretype_eval.latency.requests import metrics_text
from foretype_eval.load.attack import Orders, Report
from foretype_eval.load.crowd import Crowd
from foretype_eval.load.drive import Progress
from foretype_eval.load.fairness import compared, turns
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.recorder import Recorder, percentiles_ms

_LAG: Final = re.compile(r'(?m)^foretype_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')
PATIENCE_S: Final = 20.0
_START_S: Final = 3.0


async def hostile(
    quiet: Crowd,
    found: GatewayUnderLoad,
    key: str,
    *,
    rate: float,
    pairs: int,
    seconds: float,
    idle: int,
    progress: Progress,
) -> dict[str, Any]:
    """The quiet tenant types at `rate`, alone and beside the attack, in turns on one gateway.

    Args:
        key: of the hostile tenant.
        idle: connections of each sort that it opens and leaves silent.

    Keys: `alone`, `beside` (each run's `ttft_ms` of interactive requests, of that the wait for a slot in `queued_ms`, and how many were `refused` or `unanswered`), `moved_ms` (p99 beside
    less p99 alone, pair by pair), `moved_p99_ms` (their median), `noise_ms` (what p99 differs by from one run alone to the next),
    `loop_lag_p99_ms` (beside; by the gateway's own count, None where it has none), `refused` (of the attack), `attack` (what was
    sent, by kind), `resident_mib` (`before`, `most`, `after`).
    """
    rows: dict[str, list[dict[str, Any]]] = {"alone": [], "beside": []}
    lag: dict[float, float] = {}
    attack = Report(sent={})
    before = most = _mib(found)
    for kind, name in turns(pairs):
        books = quiet.book()
        if kind == "alone":
            await quiet.steady(rate, seconds, name, progress)
        else:
            earlier = await _lag(found)
            attacking = asyncio.create_task(_attack(found, key, seconds + _START_S, idle))
            await asyncio.sleep(_START_S)
            await quiet.steady(rate, seconds, name, progress)
            most = max(most, _mib(found))
            _add(attack, await attacking)
            later = await _lag(found)
            for le, count in later.items():
                lag[le] = lag.get(le, 0.0) + count - earlier.get(le, 0.0)
        await quiet.drain()
        rows[kind].append(_row(books))
        await found.left("connections", "http_requests", patience_s=PATIENCE_S, staying=len(quiet.developers))
    figures = compared(rows)
    if None in figures["moved_ms"]:
        figures["moved_p99_ms"] = None
    lag_s = quantile(lag, 0.99)
    return {
        "rate": rate,
        **rows,
        **figures,
        "loop_lag_p99_ms": None if lag_s is None else round(lag_s * 1000, 2),
        "refused": attack.refused,
        "attack": {"connections": attack.connections, **attack.sent},
        "resident_mib": {"before": before, "most": most, "after": _mib(found)},
    }


def quantile(buckets: dict[float, float], q: float) -> float | None:
    """Of a histogram, by upper bound and cumulative count; within a bucket as if evenly spread."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return None
    low, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= q * total:
            inside = buckets[bound] - below
            return low if bound == float("inf") else low + (bound - low) * (q * total - below) / max(inside, 1e-9)
        low, below = bound, buckets[bound]
    return low


async def _attack(found: GatewayUnderLoad, key: str, seconds: float, idle: int) -> Report:
    orders = Orders(found.endpoint.url, key, seconds, idle)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "foretype_eval.load.attack",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(msgspec.json.encode(orders))
    if process.returncode:
        raise GatewayGoneError(f"the attack ended with {process.returncode}")
    return msgspec.json.decode(said, type=Report)


def _add(whole: Report, part: Report) -> None:
    whole.refused += part.refused
    whole.connections += part.connections
    for kind, count in part.sent.items():
        whole.sent[kind] = whole.sent.get(kind, 0) + count


def _row(books: Recorder) -> dict[str, Any]:
    answered = len(books.ttft_s.get("interactive", []))
    return {
        "ttft_ms": percentiles_ms(books.ttft_s.get("interactive", [])),
        "queued_ms": percentiles_ms(books.queued_s.get("interactive", [])),
        "asked": books.requests,
        "first_texts": answered,
        "refused": sum(books.refused.values()),
    }


def _mib(found: GatewayUnderLoad) -> float:
    return round((found.resident_bytes() or 0) / (1 << 20), 1)


async def _lag(found: GatewayUnderLoad) -> dict[float, float]:
    return {float(le): float(count) for le, count in _LAG.findall(await metrics_text(found.endpoint))}
