"""The simulated developers of a load run, on real connections."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
from foretype_wire.errors import GatewayGoneError

from foretype_eval.gateway import GatewayOptions, connected
from foretype_eval.load.aborts import AbortLog
from foretype_eval.load.connection import LoadConnection, open_connection
from foretype_eval.load.developer import Developer, Habits
from foretype_eval.load.drive import Progress, Usage, drive, quiet_collector, schedule
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.recorder import Recorder
from foretype_eval.load.scripts import TYPING, Mix, ScriptedRequest, make_scripts
from foretype_eval.load.search import highest_rate

_DRAIN_S: Final = 5.0
_AT_ONCE: Final = 64


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One load run.

    Attributes:
        rate: requests per second of all developers together.
        developers, idle: connections that type, and that only stay open.
        frame_ms: the scripted engine sends six frames, one each so many milliseconds.
        search: find the highest rate whose p99 of added time stays within `limit_ms`, starting at `rate`.
        pin: gateway on the first core, generator on the last.
    """

    rate: float = 100.0
    seconds: float = 10.0
    warm_up_s: float = 1.5
    developers: int = 200
    idle: int = 0
    frame_ms: float = 5.0
    slots: int = 8192
    seed: int = 0
    search: bool = False
    limit_ms: float = 10.0
    pin: bool = True
    scripts: int = 48
    habits: Habits = Habits()
    mix: Mix = msgspec.field(default_factory=lambda: TYPING)
    gateway: GatewayOptions = GatewayOptions()


async def scripts_of(found: GatewayUnderLoad, options: LoadOptions) -> list[tuple[ScriptedRequest, ...]]:
    async with connected(GatewayOptions(url=found.endpoint.url, token=found.endpoint.token)) as gateway:
        assembler, budget = gateway.assembler(), gateway.profile.budgets.prompt_tokens
        return await asyncio.to_thread(
            make_scripts,
            assembler,
            count=options.scripts,
            steps=40,
            seed=options.seed,
            prompt_tokens=budget,
            mix=options.mix,
        )


async def leaked(found: GatewayUnderLoad) -> int:
    """Slots and requests that are still held once everybody has left."""
    return sum((await found.left(patience_s=_DRAIN_S)).values())


class Crowd:
    """All developers of a run."""

    def __init__(
        self, found: GatewayUnderLoad, scripts: list[tuple[ScriptedRequest, ...]], options: LoadOptions
    ) -> None:
        self._target = found
        self._scripts = scripts
        self._options = options
        self._recorder = Recorder()
        self.developers: list[Developer] = []
        self._connections: list[LoadConnection] = []
        self._rng = Random(options.seed)
        self._aborts = None if found.abort_log is None else AbortLog(found.abort_log)

    async def connect(self, progress: Progress) -> None:
        """Open every connection, and wait for every profile. Raises GatewayGoneError."""
        total = self._options.developers + self._options.idle
        while len(self._connections) < total:
            batch = min(_AT_ONCE, total - len(self._connections))
            self._connections += await asyncio.gather(*(open_connection(self._target.endpoint) for _ in range(batch)))
            progress("connections", len(self._connections), total)
        for number, connection in enumerate(self._connections):
            developer = Developer(
                number,
                connection,
                self._scripts,
                self._recorder,
                habits=self._options.habits,
                clock=time.perf_counter,
                rng=Random(f"{self._options.seed}:{number}"),
            )
            developer.greet()
            self.developers.append(developer)
        deadline = time.monotonic() + 30
        while not all(developer.profile_came for developer in self.developers):
            if time.monotonic() > deadline:
                raise GatewayGoneError("not every connection got its profile within 30 s")
            await asyncio.sleep(0.05)

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    def book(self) -> Recorder:
        """Fresh books from now on; what runs is booked there as well."""
        self._recorder = Recorder()
        for developer in self.developers:
            developer.recorder = self._recorder
        return self._recorder

    async def steady(self, rate: float, seconds: float, name: str, progress: Progress) -> None:
        """Arrivals as of very many independent people, developers in turn: for what no burst of one of them may blur."""
        typing = self.developers[: self._options.developers]
        moments = sorted(self._rng.random() * seconds for _ in range(round(rate * seconds)))
        plan = [(moment_s, at % len(typing)) for at, moment_s in enumerate(moments)]
        with quiet_collector():
            await drive(plan, lambda due, number: typing[number].ask(due, True), seconds, partial(progress, name))

    async def measure(self, rate: float, progress: Progress) -> dict[str, Any]:
        """One rate: warm up, measure, let what runs come home."""
        await self._drive(rate, self._options.warm_up_s, False, "warm-up", progress)
        recorder = self._recorder
        usage = Usage(self._target)
        with quiet_collector():
            await self._drive(rate, self._options.seconds, True, f"{rate:g}/s", progress)
        figures = usage.report(self._options.seconds, recorder.requests)
        await self.drain()
        report = recorder.report(
            seconds=self._options.seconds,
            engine_first_s=self._options.frame_ms / 1000,
            aborted_s=None if self._aborts is None else self._aborts.news(),
        )
        self.book()
        return report | figures

    async def search(self, progress: Progress) -> dict[str, Any]:
        return await highest_rate(
            lambda rate: self.measure(rate, progress), start=self._options.rate, limit_ms=self._options.limit_ms
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.on_lost = lambda _reason: None
            connection.close()

    async def _drive(self, rate: float, seconds: float, measured: bool, name: str, progress: Progress) -> None:
        typing = self.developers[: self._options.developers]
        plan = schedule(len(typing), rate, seconds, self._rng)
        await drive(
            plan, lambda planned, number: typing[number].ask(planned, measured), seconds, partial(progress, name)
        )

    async def drain(self) -> None:
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            if not any(developer.live for developer in self.developers):
                return
            await asyncio.sleep(0.02)
        for developer in self.developers:
            developer.live.clear()
