"""Gateways for the replay: one that measures a real gateway, one that plays a latency trace.

The real gateway works while the virtual clock stands still; the measured times of its deltas are then replayed on that clock and
decide what is late, reused or cancelled.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from foretype_client.ports import Gateway
from foretype_context.prompt.segments import Segment
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import ChangeReason, Complete, Delta, Done, Finish, Profile, Usage

from foretype_eval.errors import EvalError
from foretype_eval.replay.virtual import VirtualLoop

_PIECE: Final = re.compile(r"[^\S\n]*(?:\w{1,8}|[^\w\s]{1,3})|\s+")
"""Roughly one token of code: a part of a word or some punctuation, with the blanks before it."""


class TraceRow(msgspec.Struct, frozen=True):
    """Latency of one request: milliseconds from sending to each delta, and to the end."""

    deltas_ms: list[float]
    done_ms: float

    def times_ms(self, count: int) -> list[float]:
        """Arrival times of `count` tokens: those of this row, and beyond them more at the row's mean pace."""
        times = self.deltas_ms or [self.done_ms]
        pace_ms = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
        return [times[i] if i < len(times) else times[-1] + (i + 1 - len(times)) * pace_ms for i in range(count)]


class LatencyTrace:
    """Rows of measured latencies; request number n uses row n modulo the length."""

    def __init__(self, rows: Sequence[TraceRow]) -> None:
        self.rows = list(rows)

    @classmethod
    def load(cls, path: Path) -> LatencyTrace:
        """Read JSON lines.

        Raises:
            EvalError: missing, empty or malformed.
        """
        rows: list[TraceRow] = []
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise EvalError(
                f"{path}: {error.strerror}; make one with `foretype eval replay --save-trace FILE`"
            ) from error
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(msgspec.json.decode(line, type=TraceRow))
            except msgspec.DecodeError as error:
                raise EvalError(f"{path}:{number}: {error}") from error
        if not rows:
            raise EvalError(f"{path}: no rows")
        return cls(rows)

    def save(self, path: Path) -> None:
        path.write_bytes(b"\n".join(map(msgspec.json.encode, self.rows)) + b"\n")

    def row(self, number: int) -> TraceRow:
        return self.rows[number % len(self.rows)]


@dataclass(slots=True)
class RequestRecord:
    """What became of one request, on the virtual clock (seconds)."""

    sent_s: float
    last_s: float
    characters: int
    cancelled: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    tokens_after_cancel: int = 0
    stages_ms: dict[str, float] = field(default_factory=dict[str, float])


Answer = tuple[list[tuple[float, Delta]], float, Done]
"""Deltas with their milliseconds since sending, milliseconds to the end, and the end."""


class _Stream:
    """Plays an answer on the virtual clock; `answer` may take real time, during which that clock is held."""

    def __init__(
        self, call: Complete[Segment], answer: Callable[[], Awaitable[Answer]], record: RequestRecord, loop: VirtualLoop
    ) -> None:
        self._call = call
        self._answer = answer
        self._record = record
        self._loop = loop
        self._cancelled = asyncio.Event()

    @property
    def id(self) -> str:
        return self._call.id

    def cancel(self) -> None:
        self._cancelled.set()

    async def _until(self, moment_s: float) -> bool:
        """Wait on the virtual clock; False if cancelled before."""
        delay = moment_s - self._loop.time()
        if delay > 0:
            try:
                async with asyncio.timeout(delay):
                    await self._cancelled.wait()
            except TimeoutError:
                return True
        return not self._cancelled.is_set()

    async def __aiter__(self) -> AsyncIterator[Delta | Done]:
        sent_s = self._loop.time()
        with self._loop.held():
            deltas, done_ms, done = await self._answer()
        self._record.last_s = sent_s + done_ms / 1000
        self._record.characters = sum(len(delta.text) for _, delta in deltas)
        self._record.prompt_tokens = done.usage.prompt_tokens
        self._record.cached_tokens = done.usage.cached_tokens
        self._record.generated_tokens = done.usage.generated_tokens
        self._record.stages_ms |= msgspec.structs.asdict(done.timings_ms)
        self._record.stages_ms |= {"ttft": deltas[0][0] if deltas else done_ms, "total": done_ms}
        for at, (ms, delta) in enumerate(deltas):
            if not await self._until(sent_s + ms / 1000):
                self._record.cancelled = True
                self._record.tokens_after_cancel = sum(late.tokens for _, late in deltas[at:])
                yield Done(id=self.id, finish=Finish.CANCELLED, usage=done.usage, timings_ms=done.timings_ms)
                return
            yield delta
        await self._until(sent_s + done_ms / 1000)
        yield done


class ReplayGateway:
    """What both gateways share; by itself it is a gateway that never comes up (`profile` None)."""

    def __init__(self, profile: Profile | None, loop: VirtualLoop) -> None:
        self._profile = profile
        self._loop = loop
        self.records: list[RequestRecord] = []

    @property
    def profile(self) -> Profile | None:
        return self._profile

    @property
    def connected(self) -> bool:
        return self._profile is not None

    def complete(self, call: Complete[Segment]) -> _Stream:
        async def nothing() -> Answer:
            return [], 0.0, Done(id=call.id, finish=Finish.REFUSED)

        return self._open(call, nothing)

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None:
        """Does nothing: a replay has one developer, so nobody else changes a document."""

    def _open(self, call: Complete[Segment], answer: Callable[[], Awaitable[Answer]]) -> _Stream:
        now = self._loop.time()
        record = RequestRecord(sent_s=now, last_s=now, characters=0)
        self.records.append(record)
        return _Stream(call, answer, record, self._loop)


async def measure(gateway: Gateway, call: Complete[Segment]) -> Answer:
    """Ask a real gateway on its own (real) event loop, and note when each delta came. A refusal is an empty answer."""
    began = time.perf_counter()
    deltas: list[tuple[float, Delta]] = []
    done = Done(id=call.id, finish=Finish.REFUSED)
    try:
        async for event in gateway.complete(call):
            if isinstance(event, Done):
                done = event
            else:
                deltas.append(((time.perf_counter() - began) * 1000, event))
    except (RequestRefusedError, GatewayGoneError):
        deltas = []
    return deltas, (time.perf_counter() - began) * 1000, done


class MeasuredGateway(ReplayGateway):
    """Asks a real gateway and keeps the latencies; with `trace`, its latencies are used in place of the measured ones.

    Args:
        ask: starts :func:`measure` on the real event loop, which lives in another thread: keep-alives and time-outs of a
            real connection must not see virtual time.
    """

    def __init__(
        self,
        ask: Callable[[Complete[Segment]], concurrent.futures.Future[Answer]],
        profile: Profile,
        loop: VirtualLoop,
        *,
        trace: LatencyTrace | None = None,
    ) -> None:
        super().__init__(profile, loop)
        self._ask_real = ask
        self._trace = trace
        self.measured: list[TraceRow] = []

    def complete(self, call: Complete[Segment]) -> _Stream:
        number = len(self.records)
        return self._open(call, lambda: self._ask(call, number))

    async def _ask(self, call: Complete[Segment], number: int) -> Answer:
        deltas, done_ms, done = await asyncio.wrap_future(self._ask_real(call))
        self.measured.append(TraceRow([round(ms, 3) for ms, _ in deltas], round(done_ms, 3)))
        if self._trace is None:
            if deltas:
                spent = done.timings_ms
                engine_ms = spent.queue + spent.prefill + spent.decode_first
                self.records[number].stages_ms["overhead"] = max(0.0, deltas[0][0] - engine_ms)
            return deltas, done_ms, done
        row = self._trace.row(number)
        times = row.deltas_ms or [row.done_ms]
        timed = [(times[min(i, len(times) - 1)], delta) for i, (_, delta) in enumerate(deltas)]
        return timed, max([row.done_ms, *(ms for ms, _ in timed)]), done


class SimulatedGateway(ReplayGateway):
    """Answers from a function of the call, at latencies drawn from a trace: for sweeps, with no engine."""

    def __init__(
        self,
        predict: Callable[[Complete[Segment]], str],
        profile: Profile,
        loop: VirtualLoop,
        *,
        trace: LatencyTrace,
        rng: Random,
    ) -> None:
        super().__init__(profile, loop)
        self._predict = predict
        self._trace = trace
        self._rng = rng

    def complete(self, call: Complete[Segment]) -> _Stream:
        row = self._rng.choice(self._trace.rows)
        pieces = _PIECE.findall(self._predict(call))
        times = row.times_ms(len(pieces))
        deltas = [(ms, Delta(id=call.id, text=text, tokens=1)) for ms, text in zip(times, pieces, strict=True)]
        usage = Usage(prompt_tokens=call.prompt_tokens or 0, generated_tokens=sum(d.tokens for _, d in deltas))
        done = Done(id=call.id, finish=Finish.END_OF_MIDDLE, usage=usage)

        async def answer() -> Answer:
            return deltas, max([row.done_ms if len(row.deltas_ms) < 2 else 0.0, *times]), done

        return self._open(call, answer)
