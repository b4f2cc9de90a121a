"""Requests through the client's own session and assembler, with a stopwatch on them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Final

import httpx
import msgspec
from foretype_client.flow.planning import call_of
from foretype_client.ports import Endpoint
from foretype_client.session.session import Session
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Stop
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Document, Edit
from foretype_wire.messages import Complete, Delta, Done, Finish

from foretype_eval.latency.workload import Site

_DEADLINE_MS: Final = 60_000.0
_numbers: Final = itertools.count()


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One measured request; times in milliseconds from the moment of sending.

    Attributes:
        ttft_ms: to the first delta; None where none came.
        cancel_ms: from the cancel to the end of the request, which the gateway sends once the engine's slot is free.
    """

    prompt_tokens: int
    assemble_ms: float
    ttft_ms: float | None
    cancel_ms: float | None
    deltas: int
    done: Done

    @property
    def engine_ms(self) -> float:
        """The engine's part of the time to the first token."""
        timings = self.done.timings_ms
        return timings.queue + timings.prefill + timings.decode_first


class Typing:
    """A site being typed: document, plan state, and the position of the cursor."""

    def __init__(self, site: Site, assembler: Assembler) -> None:
        self._site = site
        self._assembler = assembler
        self._document = Document(f"file:///bench/{next(_numbers)}/{site.path}", site.text, path=site.path, version=1)
        self._state = PlanState.empty()
        self._typed = 0

    @property
    def left(self) -> int:
        """Characters still to be typed."""
        return len(self._site.typed) - self._typed

    def type(self, characters: int) -> None:
        """Type that many characters, one change each, as an editor reports them."""
        for character in self._site.typed[self._typed : self._typed + characters]:
            at = self._site.offset + self._typed
            snapshot = self._document.snapshot()
            self._document.apply([Edit(at, at, character)], version=snapshot.version + 1)
            self._typed += 1

    def call(
        self, *, block: bool | None = None, max_tokens: int | None = None, stop: Stop | None = None
    ) -> tuple[Complete[Segment], float]:
        """The request that the client would send now, and how long its assembly took in milliseconds."""
        snapshot, offset = self._document.snapshot(), self._site.offset + self._typed
        started = time.perf_counter()
        plan, self._state = self._assembler.plan(self._state, snapshot, offset, block=block, now=time.monotonic())
        id_ = f"bench-{next(_numbers)}"
        call = call_of(plan, snapshot, id=id_, max_tokens=max_tokens, stop=stop, deadline_ms=_DEADLINE_MS)
        return call, (time.perf_counter() - started) * 1000


class Stopwatch:
    """Sends calls through a session and measures them.

    Raises:
        RequestRefusedError, GatewayGoneError: from the session; a bench that loses requests has no figures.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def timed(
        self,
        call: Complete[Segment],
        assemble_ms: float = 0.0,
        *,
        cancel_at_delta: int | None = None,
        cancel_after_s: float | None = None,
    ) -> Timed:
        """Until its end, or cancelled at one of its deltas or after so many seconds."""
        started = time.perf_counter()
        stream = self._session.complete(call)
        cancelled: float | None = None

        def cancel() -> None:
            nonlocal cancelled
            if cancelled is None:
                cancelled = time.perf_counter()
                stream.cancel()

        timer = None if cancel_after_s is None else asyncio.get_running_loop().call_later(cancel_after_s, cancel)
        ttft: float | None = None
        deltas = 0
        done: Done | None = None
        try:
            async for event in stream:
                if isinstance(event, Delta):
                    deltas += 1
                    ttft = ttft if ttft is not None else (time.perf_counter() - started) * 1000
                    if deltas == cancel_at_delta:
                        cancel()
                else:
                    done = event
        finally:
            if timer is not None:
                timer.cancel()
        ended = time.perf_counter()
        if done is None:
            raise RuntimeError("the session ended a stream without `done`, against its contract")
        was_cancelled = cancelled is not None and done.finish is Finish.CANCELLED
        return Timed(
            prompt_tokens=done.usage.prompt_tokens or call.prompt_tokens or 0,
            assemble_ms=assemble_ms,
            ttft_ms=ttft,
            cancel_ms=(ended - cancelled) * 1000 if cancelled is not None and was_cancelled else None,
            deltas=deltas,
            done=done,
        )


def warm_keys(left: int) -> Iterator[int]:
    """How many characters to type before each warm request: a few at a time, as between pauses."""
    while left > 1:
        step = min(3, left - 1)
        yield step
        left -= step


async def metrics_text(endpoint: Endpoint) -> str:
    """What `/metrics` says."""
    base = endpoint.url.replace("ws", "http", 1).removesuffix("/v1/stream")
    async with httpx.AsyncClient(headers=endpoint.headers(), timeout=60.0, trust_env=False) as client:
        answer = await client.get(f"{base}/metrics")
        answer.raise_for_status()
        return answer.text


async def engine_counters(endpoint: Endpoint) -> dict[str, float]:
    """The gateway's own counters from `/metrics`, names without labels summed up."""
    counters: dict[str, float] = {}
    for line in (await metrics_text(endpoint)).splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            counters[name] = counters.get(name, 0.0) + float(value)
    return counters
