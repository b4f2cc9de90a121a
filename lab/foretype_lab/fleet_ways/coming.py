"""How long a gateway takes to ask a replica that is ready, and to leave one that was killed: nobody asks it for anything meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import httpx
from foretype_client.ports import Endpoint
from foretype_eval.load.recorder import percentiles_ms

from foretype_lab.errors import FleetBenchError
from foretype_lab.fleet_ways.places import RunningFleet

__all__ = ["Coming"]

_LOOK_S: Final = 0.02
_WAIT_S: Final = 300.0
_CALM_S: Final = 6.0
"""Longer than the interval in which a gateway lets half of a pool go, and no more."""


class Coming:
    """See the module.

    Args:
        gateway: the one that has the fleet's replicas from its directory.
    """

    def __init__(self, fleet: RunningFleet, gateway: Endpoint) -> None:
        self._fleet = fleet
        self._signals = gateway.url.replace("ws", "http", 1).replace("/v1/stream", "/v1/fleet/signals")
        self._headers = {"Authorization": f"Bearer {gateway.token}"} if gateway.token else {}
        self._listed_s: list[float] = []
        self._in_s: list[float] = []
        self._out_s: dict[str, list[float]] = {"engine": [], "replica": []}

    async def measure(self, rounds: int, progress: Callable[[str, int, int], None]) -> None:
        """One more replica comes; then one of both is killed, and its successor comes, `rounds` times. Raises FleetBenchError."""
        async with httpx.AsyncClient(timeout=10.0, trust_env=False) as http:
            progress("replicas", 0, rounds)
            known = {one["replica"] for one in await self._replicas(http)}
            await asyncio.to_thread(self._fleet.command, "scale", "fast", "2")
            await self._comes(http, known)
            for done in range(rounds):
                await asyncio.sleep(_CALM_S)
                there = await self._replicas(http)
                what = ("engine", "replica")[done % 2]
                os.kill(there[done % len(there)]["engine_pid" if what == "engine" else "pid"], signal.SIGKILL)
                killed_s = time.monotonic()
                comes = asyncio.create_task(self._comes(http, {one["replica"] for one in there}))
                try:
                    await self._asks(http, 1)
                    self._out_s[what].append(time.monotonic() - killed_s)
                    await comes
                finally:
                    comes.cancel()
                progress("replicas", done + 1, rounds)

    def report(self) -> dict[str, Any]:
        """From a replica's first answer until the directory lists it as ready, and until it is asked; from a kill until it is asked no more."""
        found = {"listed": self._listed_s, "in_service": self._in_s}
        found |= {f"{what}_out_of_service": times for what, times in self._out_s.items()}
        return {name: percentiles_ms(times) for name, times in found.items() if times}

    async def _comes(self, http: httpx.AsyncClient, known: set[str]) -> None:
        """Waits for a replica that is not known, and takes the time from its engine's first answer."""

        async def starts() -> str:
            return next((one["address"] for one in await self._replicas(http) if one["replica"] not in known), "")

        async def answers() -> bool:
            return (await http.get(f"http://{address}/v1/models")).status_code == 200

        async def listed() -> bool:
            found = [one for one in await self._replicas(http) if one["address"] == address]
            return bool(found) and found[0]["state"] == "ready"

        address = await _until(starts, "a new replica")
        await _until(answers, "its engine")
        answered_s = time.monotonic()
        asks = asyncio.create_task(self._asks(http, 2))
        try:
            await _until(listed, "the directory")
            self._listed_s.append(time.monotonic() - answered_s)
            await asks
            self._in_s.append(time.monotonic() - answered_s)
        finally:
            asks.cancel()

    async def _replicas(self, http: httpx.AsyncClient) -> list[dict[str, Any]]:
        return (await http.get(f"{self._fleet.directory}/fleet")).json()["replicas"]

    async def _asks(self, http: httpx.AsyncClient, count: int) -> None:
        async def asks() -> bool:
            return (await http.get(self._signals, headers=self._headers)).json()["fast"]["replicas"] == count

        await _until(asks, f"the gateway to ask {count}")


async def _until(done: Callable[[], Any], what: str) -> Any:
    ends_s = time.monotonic() + _WAIT_S
    while time.monotonic() < ends_s:
        with contextlib.suppress(httpx.HTTPError):
            if found := await done():
                return found
        await asyncio.sleep(_LOOK_S)
    raise FleetBenchError(f"{what} is not there after {_WAIT_S:g} s")
