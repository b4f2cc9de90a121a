"""Scenarios of `foretype bench load` beside ordinary typing: each with a private gateway made for it, and keys of its own."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from foretype_client.ports import Endpoint

from foretype_eval.gateway import GatewayOptions
from foretype_eval.load.churn import churn
from foretype_eval.load.crowd import Crowd, LoadOptions, leaked, scripts_of
from foretype_eval.load.developer import Habits
from foretype_eval.load.drive import Progress
from foretype_eval.load.fairness import fairness, make_keys
from foretype_eval.load.gateway import GatewayUnderLoad, cores, pinned, target, team_target
from foretype_eval.load.hostile import hostile, left_behind
from foretype_eval.load.overload import MIX, overload
from foretype_eval.load.rolling import rolling
from foretype_eval.load.scripts import ScriptedRequest
from foretype_eval.load.sessions import sessions
from foretype_eval.load.worker_cost import cost_by_one, cost_ms

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


class _Scene(NamedTuple):
    found: GatewayUnderLoad
    scripts: list[tuple[ScriptedRequest, ...]]
    options: LoadOptions


async def run_scenario(name: str, options: ScenarioOptions, *, progress: Progress) -> dict[str, Any]:
    """Run one of :data:`SCENARIOS`, and report.

    Raises:
        GatewayGoneError: the gateway cannot be started, or broke connections that it must not.
        WorkloadError: there is no code here to type.
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
) -> AsyncGenerator[_Scene]:
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
            yield _Scene(found, scripts, load)


async def _overload(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, slots=options.slots, habits=_PATIENT, mix=MIX)
    async with _scene(load, waiting=_WAITING) as scene:
        crowd = Crowd(scene.found, scene.scripts, load)
        try:
            await crowd.connect(progress)
            report = await overload(
                crowd,
                scene.found,
                slots=options.slots,
                times=options.times,
                seconds=load.seconds,
                calibrate_s=options.calibrate_s,
                calm_s=options.calm_s,
                progress=progress,
            )
        finally:
            crowd.close()
        return {"slots": options.slots, **report, "leaked_slots": await leaked(scene.found)}


async def _fairness(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, slots=options.slots, habits=_PATIENT)
    with tempfile.TemporaryDirectory(prefix="foretype-load-") as folder:
        store = str(Path(folder) / "identity.db")
        keys = await make_keys(store, ["quiet", "flood"], secrets.token_bytes)
        more = f"[identity]\nurl = {msgspec.json.encode(store).decode()}\n"
        async with _scene(load, waiting=_WAITING, team=True, more=more) as scene:
            crowds = [
                Crowd(scene.found._replace(endpoint=Endpoint(scene.found.endpoint.url, key)), scene.scripts, load)
                for key in keys.values()
            ]
            try:
                for crowd in crowds:
                    await crowd.connect(progress)
                report = await fairness(
                    *crowds, capacity=options.capacity, pairs=options.pairs, seconds=load.seconds, progress=progress
                )
            finally:
                for crowd in crowds:
                    crowd.close()
            return {"slots": options.slots, **report, "leaked_slots": await leaked(scene.found)}


async def _hostile(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, habits=_PATIENT, slots=_SLOTS)
    with tempfile.TemporaryDirectory(prefix="foretype-load-") as folder:
        store = str(Path(folder) / "identity.db")
        keys = await make_keys(store, ["quiet", "hostile"], secrets.token_bytes)
        more = f"[identity]\nurl = {msgspec.json.encode(store).decode()}\n"
        async with _scene(load, waiting=_WAITING, team=True, more=more) as scene:
            crowd = Crowd(
                scene.found._replace(endpoint=Endpoint(scene.found.endpoint.url, keys["quiet"])), scene.scripts, load
            )
            try:
                await crowd.connect(progress)
                report = await hostile(
                    crowd,
                    scene.found,
                    keys["hostile"],
                    rate=load.rate,
                    pairs=options.pairs,
                    seconds=load.seconds,
                    idle=load.idle,
                    progress=progress,
                )
            finally:
                crowd.close()
            return {**report, "leaked": await left_behind(scene.found)}


async def _sessions(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = options.load
    async with _scene(load) as scene:
        crowd = Crowd(scene.found, scene.scripts, load)
        try:
            count = load.developers + load.idle
            report = await sessions(
                crowd, scene.found, rate=load.rate, count=count, idle_s=options.idle_s, progress=progress
            )
        finally:
            crowd.close()
        return {"developers": load.developers, **report, "leaked_slots": await leaked(scene.found)}


async def _churn(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    async with _scene(options.load) as scene:
        return await churn(scene.found, scene.scripts, events=options.events, seed=options.load.seed, progress=progress)


async def _rolling(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = options.load
    async with _scene(load, team=True, workers=options.workers) as scene:
        return await rolling(
            scene.found, scene.scripts, developers=load.developers, rate=load.rate, seed=load.seed, progress=progress
        )


async def _workers(options: ScenarioOptions, progress: Progress) -> dict[str, Any]:
    load = msgspec.structs.replace(options.load, pin=False)  # where it runs is the system's choice for both
    costs: dict[int, list[float]] = {1: [], options.workers: []}
    for _ in range(options.pairs):
        for workers, found in costs.items():
            async with _scene(load, team=True, workers=workers) as scene:
                crowd = Crowd(scene.found, scene.scripts, load)
                try:
                    found.append(await cost_ms(crowd, load.rate, progress))
                finally:
                    crowd.close()
    return cost_by_one(costs[1], costs[options.workers], options.workers)
