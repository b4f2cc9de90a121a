"""A day of very many developers: cells with exact events, of which some half minutes of every hour and region are played.

A cell is what one gateway group serves, and cells share nothing: a region is as many equal cells as its developers fill. Within an hour the
number of those who type is constant, so that a cell's hour is a stationary process and a window of it, after its own warm-up, stands for all of
it; hours and regions differ, and so they are strata, each with windows of its own. :func:`check` plays one small cell through a whole day without
leaving anything out, and samples the same day.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from foretype_plan.day import swing
from foretype_plan.errors import PlanError
from foretype_plan.scenario import Tier
from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.cell_options import CellOptions, Tenant
from foretype_plan.simulation.engine import EngineSpec, spec_of
from foretype_plan.simulation.people import Arrivals
from foretype_plan.simulation.runs import Progress, Rows, rounded
from foretype_plan.simulation.scenarios import RATE, capacity

REGIONS: Final[Mapping[str, tuple[float, float]]] = {"europe": (0.0, 0.4), "america": (-5.0, 0.35), "asia": (8.0, 0.25)}
"""Hours east of UTC, and share of the developers."""
_SWING: Final = 10.0
_PEAK_ACTIVE: Final = 0.10
"""Share of a region's developers who write code in its busiest hour: the plan's office day has 0.095."""
_PEAK_LOAD: Final = 0.75
_BINS: Final = tuple(1.05**at for at in range(-20, 220))
"""Upper ends of the bins that times are counted in, milliseconds from 0.4 on; they are told within 5 %."""


class Window(NamedTuple):
    """One window that is played."""

    region: str
    hour: int
    number: int


def active(region: str, hour: int) -> float:
    """Share of a region's busiest hour, at an hour UTC: from a tenth at four in the morning to all of it at four in the afternoon."""
    east, _ = REGIONS[region]
    return swing(_SWING)[int(hour + east - 4) % 24]


def world_day(
    *,
    developers: float,
    tier: Tier,
    arrivals: Arrivals,
    replicas: int = 4,
    windows: int = 2,
    seconds: float = 15.0,
    seed: int = 0,
    rows: Rows,
    progress: Progress,
) -> dict[str, Any]:
    """The day, hour by hour and region by region.

    Args:
        replicas: of a cell in its busiest hour; in others as many as keep its load.
        windows: of each hour and region, each of `seconds` after as many of warm-up.

    Raises:
        PlanError: nobody, or nothing to run on.
    """
    if not 1 <= developers <= 1e9:
        raise PlanError("developers", f"{developers:g}: 1 to 1,000,000,000 have a day")
    began, cpu = time.perf_counter(), time.process_time()
    spec = spec_of(tier)
    most = replicas * capacity(spec, arrivals) * _PEAK_LOAD
    hours: list[dict[str, Any]] = []
    every = [Window(region, hour, one) for region in REGIONS for hour in range(24) for one in range(windows)]
    played: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for at, window in enumerate(every, start=1):
        share = active(window.region, window.hour)
        key = f"day/{tier}/{replicas}/{seconds:g}/{seed}/{window.region}/{window.hour}/{window.number}"
        row = rows.get(key)
        if row is None:
            count = max(1, math.ceil(replicas * share))
            row = _window(spec, arrivals, most * share, count, seconds, f"{seed} {key}")
            rows.add(key, row)
        played.setdefault((window.region, window.hour), []).append(row)
        progress("day", at, len(every))
    for (region, hour), each in played.items():
        rate = developers * REGIONS[region][1] * _PEAK_ACTIVE * RATE * active(region, hour)
        cells = math.ceil(developers * REGIONS[region][1] * _PEAK_ACTIVE * RATE / most)
        hours.append(
            {"region": region, "hour": hour, "rate": rate, "cells": cells, "replicas": cells * each[0]["replicas"]}
            | estimate([(each, 1.0)])
        )
    weighted = [(played[one["region"], one["hour"]], one["rate"]) for one in hours]
    fixed = 24 * sum(max(one["replicas"] for one in hours if one["region"] == region) for region in REGIONS)
    sampled = sum(row["requests"] for each in played.values() for row in each)
    return {
        "developers": developers,
        "requests_day": 3600 * rounded(sum(one["rate"] for one in hours)),
        "replica_hours": sum(one["replicas"] for one in hours),
        "replica_hours_fixed": fixed,
        **estimate(weighted),
        "sampled_requests": sampled,
        "hours": rounded(hours),
        "run": run_figures(began, cpu, sum(row["played"] for each in played.values() for row in each)),
    }


def _window(
    spec: EngineSpec, arrivals: Arrivals, rate: float, replicas: int, seconds: float, seed: str
) -> dict[str, Any]:
    options = CellOptions(
        specs=(spec,),
        tenants=(Tenant(developers=max(1, round(rate / RATE)), rate=RATE, repositories=16),),
        arrivals=arrivals,
        replicas=replicas,
        seconds=seconds,
        warm_up_s=seconds,
        seed=sum(ord(one) * 31**at for at, one in enumerate(seed)) % (1 << 31),
    )
    cell = Cell(options)
    cell.run()
    return row_of(cell) | {"replicas": replicas}


def row_of(cell: Cell) -> dict[str, Any]:
    """What a cell counted, small enough to be kept: first tokens by bins of 5 %."""
    tally = cell.tally
    bins = [0] * (len(_BINS) + 1)
    for values in tally.ttft_s.values():
        for value in values:
            bins[_bin(1000 * value)] += 1
    return {
        "requests": sum(tally.asked.values()),
        "played": cell.requests,
        "good": sum(tally.good.values()),
        "cancelled": tally.cancelled,
        "refused": sum(tally.refused.values()) + sum(tally.silent.values()),
        "prompt_tokens": tally.prompt_tokens,
        "cached_tokens": tally.cached_tokens,
        "bins": {str(at): count for at, count in enumerate(bins) if count},
    }


def _bin(value_ms: float) -> int:
    return min(len(_BINS), max(0, math.ceil(math.log(max(value_ms, 1e-9), 1.05) + 20)))


def estimate(strata: Sequence[tuple[Sequence[Mapping[str, Any]], float]]) -> dict[str, float]:
    """Figures over strata: windows, and the weight of all of them together. The interval is of the goodput, from its spread within strata."""
    sums = dict.fromkeys(("requests", "good", "cancelled", "refused", "prompt_tokens", "cached_tokens"), 0.0)
    bins: dict[int, float] = {}
    variance, whole = 0.0, sum(weight for _, weight in strata)
    for each, weight in strata:
        scale = weight / max(1, sum(row["requests"] for row in each))
        shares = [row["good"] / max(1, row["requests"] - row["cancelled"]) for row in each]
        mean = sum(shares) / len(shares)
        if len(shares) > 1:
            variance += (
                (weight / whole) ** 2 * sum((one - mean) ** 2 for one in shares) / (len(shares) - 1) / len(shares)
            )
        for row in each:
            for key in sums:
                sums[key] += scale * row[key]
            for at, count in row["bins"].items():
                bins[int(at)] = bins.get(int(at), 0.0) + scale * count
    goodput = sums["good"] / max(1e-9, sums["requests"] - sums["cancelled"])
    return rounded(
        {
            "ttft_p50_ms": _quantile(bins, 0.5),
            "ttft_p99_ms": _quantile(bins, 0.99),
            "goodput": goodput,
            "goodput_half_interval": 1.96 * math.sqrt(variance),
            "refused": sums["refused"] / max(1e-9, sums["requests"]),
            "cached_share": sums["cached_tokens"] / max(1e-9, sums["prompt_tokens"]),
        }
    )


def _quantile(bins: Mapping[int, float], share: float) -> float:
    left = share * sum(bins.values())
    for at in sorted(bins):
        left -= bins[at]
        if left <= 0:
            return _BINS[min(at, len(_BINS) - 1)]
    return 0.0


def check(
    *, tier: Tier, arrivals: Arrivals, windows: int = 2, seconds: float = 30.0, seed: int = 0, progress: Progress
) -> dict[str, Any]:
    """One cell of one replica through a whole day, and the same day sampled.

    Returns:
        `whole`, `sampled`, `ratio`, and what the whole day took.
    """
    began, cpu = time.perf_counter(), time.process_time()
    spec = spec_of(tier)
    most = capacity(spec, arrivals) * _PEAK_LOAD
    rates = [most * active("europe", hour) for hour in range(24)]
    cell = Cell(
        CellOptions(
            specs=(spec,),
            tenants=_shifts(rates),
            arrivals=arrivals,
            replicas=1,
            seconds=86_400.0,
            warm_up_s=0.0,
            seed=seed,
        )
    )
    cell.begin()
    for minute in range(1, 24 * 60 + 1):
        cell.until(60.0 * minute)
        progress("whole day", minute, 24 * 60)
    whole = estimate([([row_of(cell)], 1.0)])
    run = run_figures(began, cpu, cell.requests)
    strata: list[tuple[list[dict[str, Any]], float]] = []
    for hour, rate in enumerate(rates):
        each = [_window(spec, arrivals, rate, 1, seconds, f"{seed} check {hour} {one}") for one in range(windows)]
        strata.append((each, rate))
        progress("sampled", hour + 1, 24)
    sampled = estimate(strata)
    names = ("ttft_p50_ms", "ttft_p99_ms", "goodput", "cached_share")
    return {
        "whole": whole,
        "sampled": sampled,
        "ratio": {name: rounded(sampled[name] / whole[name]) for name in names if whole[name]},
        "share_played": rounded(sum(row["requests"] for each, _ in strata for row in each) / max(1, cell.requests)),
        "run": run,
    }


def _shifts(rates: Sequence[float]) -> tuple[Tenant, ...]:
    """Developers who come and go on the hour, so that as many are there as the rates ask for; who came last goes first."""
    made: list[Tenant] = []
    there: list[tuple[float, int]] = []
    for hour, rate in enumerate([*rates, 0.0]):
        wanted, now = round(rate / RATE), sum(count for _, count in there)
        if wanted > now:
            there.append((3600.0 * hour, wanted - now))
        while now > wanted:
            begin_s, count = there.pop()
            gone = min(count, now - wanted)
            made.append(Tenant(developers=gone, rate=RATE, repositories=16, begin_s=begin_s, end_s=3600.0 * hour))
            if count > gone:
                there.append((begin_s, count - gone))
            now -= gone
    return tuple(made)


def run_figures(began: float, cpu: float, requests: int) -> dict[str, float]:
    """What it took; the one part of an answer that is not the same twice."""
    cpu_s = time.process_time() - cpu
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(cpu_s, 1),
        "requests": requests,
        "requests_per_cpu_s": round(requests / max(1e-9, cpu_s)),
        "memory_mib": round(size / (1 << 20)),
    }
