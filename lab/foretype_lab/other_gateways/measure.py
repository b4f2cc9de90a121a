"""`foretype bench peer-load`: the same load through completions over SSE, at any gateway before the scripted engine."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from foretype_eval.latency.workload import sites
from foretype_eval.load.drive import Progress, Usage, drive, quiet_collector, schedule
from foretype_eval.load.gateway import cores, pinned
from foretype_eval.load.recorder import Recorder, percentiles_ms
from foretype_eval.load.search import highest_rate
from foretype_wire.errors import GatewayGoneError

from foretype_lab.other_gateways.gateways import GatewayPlace, peer, scripted_server, version_of
from foretype_lab.other_gateways.sse_client import SseConnection, open_sse, request_bytes
from foretype_lab.other_gateways.sse_engine import MODEL

_CLASS: Final = "completion"
_DRAIN_S: Final = 5.0
_CALM_S: Final = 10.0
_CALM_SHARE: Final = 0.2
_CONNECTIONS_MAX: Final = 4096


class PeerLoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run beside a peer.

    Attributes:
        peer: `smg`, `foretype`, or the http:// URL of a running gateway.
        rate: requests per second; with `search` the first that is tried, and measured once more after the search.
        search_s: after this long no other rate is tried.
        tried_requests: a rate that is tried lasts long enough for so many.
        prompts: how many different prompts, of about `prompt_chars` characters of real code.
    """

    peer: str
    rate: float = 50.0
    seconds: float = 10.0
    warm_up_s: float = 1.5
    developers: int = 200
    frame_ms: float = 5.0
    seed: int = 0
    search: bool = False
    search_s: float = 120.0
    tried_requests: int = 60
    limit_ms: float = 10.0
    deadline_ms: float = 2_000.0
    pin: bool = True
    prompts: int = 64
    prompt_chars: int = 4500
    max_tokens: int = 6


async def run_peer(options: PeerLoadOptions, *, progress: Progress) -> dict[str, Any]:
    """Run, and report. `direct` is the engine asked without any gateway: what of `added_ms` is not the gateway's.

    Raises:
        GatewayGoneError: the peer is not installed, or does not start.
        EvalError: there is no code here to send.
    """
    places = cores() if options.pin else []
    near, far = (places[0], places[-1]) if len(places) > 1 else (None, None)
    prompts = _prompts(options)
    with (
        tempfile.TemporaryDirectory(prefix="foretype-peer-") as folder,
        scripted_server(options.frame_ms, far) as engine,
    ):
        async with peer(options.peer, engine, Path(folder), near) as place:
            with pinned(far):
                async with peer(engine, engine, Path(folder), None) as alone:
                    direct = await _Line(alone, prompts, options).measure(50.0, options.seconds, progress)
                line = _Line(place, prompts, options)
                try:
                    report = await (_search(line, options, progress) if options.search else line.at_rate(progress))
                finally:
                    line.close()
    return {
        "peer": options.peer,
        "version": version_of(options.peer),
        "rate": options.rate,
        "seconds": options.seconds,
        "frame_ms": options.frame_ms,
        "frames": options.max_tokens,
        "pinned": far is not None,
        **report,
        "direct": {"rate": 50.0, "added_ms": direct["added_ms"]},
    }


async def _search(line: _Line, options: PeerLoadOptions, progress: Progress) -> dict[str, Any]:
    """From the rate that was asked for, which is far below: a gateway that falls behind is slow for a while."""

    async def measure(rate: float) -> dict[str, Any]:
        return await line.measure(rate, max(options.seconds, options.tried_requests / rate), progress)

    found = await highest_rate(measure, start=options.rate, limit_ms=options.limit_ms, budget_s=options.search_s)
    return found | {"at_rate": await line.at_rate(progress)}


def _prompts(options: PeerLoadOptions) -> list[str]:
    found = sites(options.seed, chars_above=options.prompt_chars, chars_below=0)
    return [
        site.text[site.offset - options.prompt_chars : site.offset]
        for site, _ in zip(found, range(options.prompts), strict=False)
    ]


class _Line:
    """Connections to one place, kept alive, and as many as are needed at a time."""

    def __init__(self, place: GatewayPlace, prompts: Sequence[str], options: PeerLoadOptions) -> None:
        self._place = place
        self._options = options
        asked = partial(request_bytes, model=MODEL, max_tokens=options.max_tokens, headers=place.headers)
        self._requests = [asked(place.host, text) for text in prompts]
        self._free: list[SseConnection] = []
        self._open = 0
        self._live: set[SseConnection] = set()
        self._recorder = Recorder()
        self._rng = Random(options.seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._problems: dict[str, int] = {}
        self._per_token_s: list[float] = []

    async def at_rate(self, progress: Progress) -> dict[str, Any]:
        """At the rate that was asked for."""
        return await self.measure(self._options.rate, self._options.seconds, progress)

    async def measure(self, rate: float, seconds: float, progress: Progress) -> dict[str, Any]:
        """One rate: warm up, measure, let what runs come home."""
        options = self._options
        await self._drive(rate, options.warm_up_s, False, partial(progress, "warm-up"))
        await self._drain()
        self._recorder, self._problems, self._per_token_s = Recorder(), {}, []
        usage = Usage(self._place.watched())
        with quiet_collector():
            await self._drive(rate, seconds, True, partial(progress, f"{rate:g}/s"))
        figures = usage.report(seconds, self._recorder.requests)
        await self._drain()
        report = self._recorder.report(seconds=seconds, engine_first_s=options.frame_ms / 1000)
        wanted = (
            "requests",
            "achieved_rate",
            "answered_rate",
            "unanswered",
            "added_ms",
            "availability",
            "refused",
            "generator_late_ms",
        )
        report = {name: report[name] for name in wanted} | {"total_ms": report["total_ms"].get(_CLASS)}
        report["tpot_ms"] = percentiles_ms(self._per_token_s)
        return report | {"problems": dict(sorted(self._problems.items())[:5]), "connections": self._open} | figures

    def close(self) -> None:
        for connection in self._free:
            connection.close()

    async def _drive(self, rate: float, seconds: float, measured: bool, progress: Any) -> None:
        plan = schedule(self._options.developers, rate, seconds, self._rng)
        await drive(plan, lambda planned, number: self._ask(planned, number, measured), seconds, progress)

    def _ask(self, planned: float, number: int, measured: bool) -> None:
        recorder = self._recorder
        if measured:
            recorder.requests += 1
            recorder.late_s.append(time.perf_counter() - planned)
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                self._send(connection, planned, number, recorder if measured else None)
                return
            self._open -= 1
        task = asyncio.create_task(self._on_a_new_one(planned, number, recorder if measured else None))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_a_new_one(self, planned: float, number: int, recorder: Recorder | None) -> None:
        if self._open >= _CONNECTIONS_MAX:
            self._book(recorder, "no connection left")
            return
        self._open += 1
        try:
            connection = await open_sse(self._place.host, self._place.port)
        except GatewayGoneError as error:
            self._open -= 1
            self._book(recorder, str(error))
            return
        self._send(connection, planned, number, recorder)

    def _send(self, connection: SseConnection, planned: float, number: int, recorder: Recorder | None) -> None:
        first_s = 0.0

        def first() -> None:
            nonlocal first_s
            first_s = time.perf_counter() - planned
            if recorder is not None:
                recorder.ttft_s[_CLASS].append(first_s)

        def ended(problem: str | None) -> None:
            self._live.discard(connection)
            took_s = time.perf_counter() - planned
            if connection.usable:
                self._free.append(connection)
            else:
                self._open -= 1
            if problem is not None:
                self._book(recorder, problem)
            elif recorder is not None:
                recorder.outcomes["whole"] += 1
                recorder.total_s[_CLASS].append(took_s)
                if self._options.max_tokens > 1:
                    self._per_token_s.append((took_s - first_s) / (self._options.max_tokens - 1))
                recorder.answered_in_time += took_s <= self._options.deadline_ms / 1000

        self._live.add(connection)
        connection.on_first, connection.on_end = first, ended
        connection.send(self._requests[(number * 31 + len(self._live)) % len(self._requests)])

    def _book(self, recorder: Recorder | None, problem: str) -> None:
        if recorder is not None:
            recorder.outcomes["refused"] += 1
            recorder.refused["failed"] += 1
            self._problems[problem[:120]] = self._problems.get(problem[:120], 0) + 1

    async def _drain(self) -> None:
        """Wait for what still runs; what does not come home is given up, and shows as unanswered."""
        deadline = time.monotonic() + _DRAIN_S
        while (self._live or self._tasks) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if not self._live:
            return
        for connection in self._live:
            connection.close()
        self._open -= len(self._live)
        self._live.clear()
        await self._calm()

    async def _calm(self) -> None:
        """A gateway that was asked more than it can do works on what nobody waits for; the next rate is not to pay for it."""
        process, deadline = self._place.process, time.monotonic() + _CALM_S
        if process is None:
            return
        process.cpu_percent()
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            if process.cpu_percent() < _CALM_SHARE * 100:
                return
