"""Scenarios of `foretype bench load` beside ordinary typing: each with a private gateway made for it, and keys of its own."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_client.ports import Endpoint

from foretype_eval.gateway import GatewayOptions
from foretype_eval.load.churn import churn
from foretype_eval.load.crowd import Crowd, LoadOptions, leaked, scripts_of
from foretype_eval.load.developer import Habits
from foretype_eval.load.drive import Progress
from foretype_eval.load.fairness import fairness, make_keys
from foretype_eval.load.gateway import GatewayUnderLoad, cores, pinned, target, team_target
from foretype_eval.load.hostile import PATIENCE_S, hostile
from foretype_eval.load.overload import MIX, overload
from foretype_eval.load.rolling import rolling
from foretype_eval.load.scripts import ScriptedRequest
from foretype_eval.load.sessions import sessions
from foretype_eval.statistics import clustered_ratio

SCENARIOS: Final = ("overload", "fairness", "sessions", "churn", "rolling", "hostile", "workers")
_PATIENT: Final = Habits(supersede=0.0, cancel=0.0, early=0.0, branch=0.0)
"""People who wait for every answer: what they do not get, they were refused."""
_SLOTS: Final = 64
"""Of the engine in `hostile`: the gateway's default."""
_WAITING: Final = 256
"""Requests that may wait: the gateway's default."""


class ScenarioOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Besides those of an ordinary run.

    Attributes:
        capacity: requests per second that the scripted engine is given slots for.
        times: of the capacity, that `overload` asks.
        pairs: of runs without and with the flood, in `fairness` and `hostile`; with one worker and several, in `workers`.
        idle_s: silence before `sessions` looks at the memory.
        events: connects, cancels and disconnects of `churn`.
        workers: of the gateway that `rolling` restarts, and that `workers` compares with one.
        calibrate_s, calm_s: `overload`: for measuring the capacity, and for watching how it recovers.
    """

    load: LoadOptions = LoadOptions()
    capacity: float = 200.0
    times: float = 3.0
    pairs: int = 5
    idle_s: float = 60.0
    events: int = 20_000
    workers: int = 2
    calibrate_s: float = 4.0
    calm_s: int = 10

    @property
    def slots(self) -> int:
        return max(1, round(self.capacity * self.load.habits.max_tokens * self.load.frame_ms / 1000))


async def run_scenario(name: str, options: ScenarioOptions, *, progress: Progress) -> dict[str, Any]:
    """Run one of :data:`SCENARIOS`, and report.

    Raises:
        GatewayGoneError: the gateway cannot be started, or broke connections that it must not.
        EvalError: there is no code here to type.
    """
    run = {
        "overload": _overload,
        "fairness": _fairness,
        "sessions": _sessions,
        "churn": _churn,
        "rolling": _rolling,
        "hostile": _hostile,
        "workers": _workers,
    }[name]
    report = await run(options, progress)
    return {"scenario": name, "seconds": options.load.seconds, "frame_ms": options.load.frame_ms, **report}


@contextlib.asynccontextmanager
async def _scene(
    load: LoadOptions, *, waiting: int = 4096, team: bool = False, more: str = "", workers: int = 1
) -> AsyncGenerator[tuple[GatewayUnderLoad, list[tuple[ScriptedRequest, ...]]]]:
    places = cores() if load.pin and workers == 1 else []
    near, far = (places[0], places[-1]) if len(places) > 1 else (None, None)
    if team:
        made = team_target(
            frame_ms=load.frame_ms, slots=load.slots, core=near, waiting=waiting, more=more, workers=workers
        )
    else:
        made = target(GatewayOptions(), frame_ms=load.frame_ms, slots=load.slots, core=near, waiting=waiting)
    async with made as found:
        scripts = await scripts_of(found, load)
        with pinned(far):
            yield found, scripts


@contextlib.asynccontextmanager
async def _tenants(load: LoadOptions, *names: str) -> AsyncGenerator[tuple[GatewayUnderLoad, list[Crowd], list[str]]]:
    """A team's gateway with a tenant of each name: a crowd of each that is not connected yet, and its key."""
    with tempfile.TemporaryDirectory(prefix="foretype-load-") as folder, contextlib.ExitStack() as stack:
        store = str(Path(folder) / "identity.db")
        keys = [*(await make_keys(store, list(names), secrets.token_bytes)).values()]
        more = f"[identity]\nurl = {msgspec.json.encode(store).decode()}\n"
        async with _scene(load, waiting=_WAITING, team=True, more=more) as (found, scripts):
            places = [found._replace(endpoint=Endpoint(found.endpoint.url, key)) for key in keys]
            crowds = [stack.enter_context(contextlib.closing(Crowd(place, scripts, load))) for place in places]
            yield found, crowds, keys


async def _overload(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, slots=options.slots, habits=_PATIENT, mix=MIX)
    async with _scene(load, waiting=_WAITING) as (found, scripts):
        with contextlib.closing(Crowd(found, scripts, load)) as crowd:
            await crowd.connect(progress)
            report = await overload(
                crowd,
                found,
                slots=options.slots,
                times=options.times,
                seconds=load.seconds,
                calibrate_s=options.calibrate_s,
                calm_s=options.calm_s,
                progress=progress,
            )
        return {"slots": options.slots, **report, "leaked_slots": await leaked(found)}


async def _fairness(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, slots=options.slots, habits=_PATIENT)
    async with _tenants(load, "quiet", "flood") as (found, crowds, _):
        for crowd in crowds:
            await crowd.connect(progress)
        report = await fairness(
            *crowds, capacity=options.capacity, pairs=options.pairs, seconds=load.seconds, progress=progress
        )
        for crowd in crowds:
            crowd.close()
        return {"slots": options.slots, **report, "leaked_slots": await leaked(found)}


async def _hostile(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, habits=_PATIENT, slots=_SLOTS)
    async with _tenants(load, "quiet", "hostile") as (found, (crowd, _), (_, key)):
        await crowd.connect(progress)
        report = await hostile(
            crowd,
            found,
            key,
            rate=load.rate,
            pairs=options.pairs,
            seconds=load.seconds,
            idle=load.idle,
            progress=progress,
        )
        crowd.close()
        left = await found.left("connections", "http_requests", "segments_bytes", patience_s=PATIENCE_S)
        return {**report, "leaked": sum(left.values())}


async def _sessions(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = options.load
    async with _scene(load) as (found, scripts):
        with contextlib.closing(Crowd(found, scripts, load)) as crowd:
            count = load.developers + load.idle
            report = await sessions(crowd, found, rate=load.rate, count=count, idle_s=options.idle_s, progress=progress)
        return {"developers": load.developers, **report, "leaked_slots": await leaked(found)}


async def _churn(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    async with _scene(options.load) as (found, scripts):
        return await churn(found, scripts, events=options.events, seed=options.load.seed, progress=progress)


async def _rolling(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = options.load
    async with _scene(load, team=True, workers=options.workers) as (found, scripts):
        return await rolling(
            found, scripts, developers=load.developers, rate=load.rate, seed=load.seed, progress=progress
        )


async def _workers(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    """What a request costs in processor time where workers share the port, by what it costs one of them."""
    load = msgspec.structs.replace(options.load, pin=False)  # where it runs is the system's choice for both
    costs: dict[int, list[float]] = {1: [], options.workers: []}
    for _ in range(options.pairs):
        for workers, costs_ms in costs.items():
            async with _scene(load, team=True, workers=workers) as (found, scripts):
                with contextlib.closing(Crowd(found, scripts, load)) as crowd:
                    await crowd.connect(progress)
                    costs_ms.append(float((await crowd.measure(load.rate, progress))["gateway_cpu_ms_per_request"]))
    ratio, bounds = clustered_ratio(costs[options.workers], costs[1], digits=3)
    return {
        "workers": options.workers,
        "cpu_ms_per_request": {"one": costs[1], "several": costs[options.workers]},
        "by_one": ratio,
        "by_one_95": bounds,
    }
