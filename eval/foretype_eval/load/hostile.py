"""`--scenario hostile`: one tenant sends the worst that the doors accept, and another, who types, notices how much of it."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from itertools import pairwise
from typing import Any, Final

import httpx
import msgspec
from foretype_client.ports import Endpoint
from foretype_wire.errors import GatewayGoneError

from foretype_eval.load.attack import Orders, Report
from foretype_eval.load.crowd import Crowd
from foretype_eval.load.drive import Progress
from foretype_eval.load.fairness import less, median
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.recorder import Recorder, percentiles_ms

_LAG: Final = re.compile(r'(?m)^foretype_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')
_HELD: Final = re.compile(
    r"(?m)^foretype_(connections|running|waiting|engine_running|engine_waiting|http_requests|segments_bytes)(?:\{[^}]*\})? (\S+)"
)
_PATIENCE_S: Final = 20.0
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
    for pair in range(pairs):
        for kind in ("alone", "beside") if pair % 2 == 0 else ("beside", "alone"):
            books, name = quiet.book(), f"{kind} {pair + 1} of {pairs}"
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
            await left_behind(found, connections=len(quiet.developers))
    alone, beside = ([row["ttft_ms"]["p99"] for row in rows[kind]] for kind in ("alone", "beside"))
    moved = [less(with_it, without) for without, with_it in zip(alone, beside, strict=True)]
    noise = [less(after, before) for before, after in pairwise(alone)]
    lag_s = quantile(lag, 0.99)
    return {
        "rate": rate,
        **rows,
        "moved_ms": moved,
        "moved_p99_ms": None if None in moved else median(moved),
        "noise_ms": median(None if one is None else abs(one) for one in noise),
        "loop_lag_p99_ms": None if lag_s is None else round(lag_s * 1000, 2),
        "refused": attack.refused,
        "attack": {"connections": attack.connections, **attack.sent},
        "resident_mib": {"before": before, "most": most, "after": _mib(found)},
    }


async def left_behind(found: GatewayUnderLoad, *, connections: int = 0) -> int:
    """What the gateway holds, beside so many connections, once it has had time to notice that everybody else has left."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        held = {name: float(value) for name, value in _HELD.findall(await _metrics(found))}
        held["connections"] -= connections
        if connections:
            held.pop("segments_bytes", None)  # of those who stay
        left = round(sum(max(0.0, value) for value in held.values()))
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)


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
    return {float(le): float(count) for le, count in _LAG.findall(await _metrics(found))}


async def _metrics(found: GatewayUnderLoad) -> str:
    endpoint: Endpoint = found.endpoint
    base = endpoint.url.replace("ws", "http", 1).removesuffix("/v1/stream")
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    async with httpx.AsyncClient(headers=headers, timeout=60.0, trust_env=False) as client:
        answer = await client.get(f"{base}/metrics")
        answer.raise_for_status()
        return answer.text
