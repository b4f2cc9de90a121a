"""The two clients at the desk: llama.vim in front of llama.cpp's server, and our completion flow in front of our gateway."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Protocol

from foretype_client.flow.flow import CompletionFlow
from foretype_client.flow.suggestion import Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Change, Snapshot
from foretype_eval.replay.trace import Answer, MeasuredGateway, RequestRecord
from foretype_wire.messages import Complete, Usage

from foretype_lab.peer.clocks import Clock
from foretype_lab.peer.llama_vim import Buffer, LlamaVim, LlamaVimOptions, Sent
from foretype_lab.peer.recorded_typist import Offer

_TIMINGS: Final = ["content", "timings/prompt_n", "timings/cache_n", "timings/prompt_ms", "timings/predicted_n"]


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request as its own server reports it.

    Attributes:
        kind: `completion`, `speculative` or `warm_up`.
        sent_s: on the virtual clock.
        first_ms: request to first token; None where no token came. llama.cpp's is its own `prompt_ms`, which leaves the
            transport out.
        answer_ms: request to the end of the answer, as the client sees it.
        waited_ms: behind another request of this client.
    """

    kind: str
    sent_s: float
    first_ms: float | None
    answer_ms: float
    waited_ms: float
    prompt_tokens: int
    evaluated_tokens: int
    generated_tokens: int


def row_of(
    call: Complete[Segment], sent_s: float, first_ms: float | None, answer_ms: float, usage: Usage
) -> RequestRow:
    """The row of a request of ours."""
    return RequestRow(
        kind="completion" if call.class_.value == "interactive" else call.class_.value,
        sent_s=sent_s,
        first_ms=first_ms,
        answer_ms=answer_ms,
        waited_ms=0.0,
        prompt_tokens=usage.prompt_tokens,
        evaluated_tokens=usage.prompt_tokens - usage.cached_tokens,
        generated_tokens=usage.generated_tokens,
    )


def row_of_answer(kind: str, answer: dict[str, Any], sent_s: float, answer_ms: float, waited_ms: float) -> RequestRow:
    """The row of a request to llama.cpp's server."""
    evaluated, cached = int(answer["timings/prompt_n"]), int(answer.get("timings/cache_n", 0))
    computes = kind != Sent.WARM_UP
    return RequestRow(
        kind=kind,
        sent_s=sent_s,
        first_ms=float(answer["timings/prompt_ms"]) if computes else None,
        answer_ms=answer_ms,
        waited_ms=waited_ms,
        prompt_tokens=evaluated + cached,
        evaluated_tokens=evaluated,
        generated_tokens=int(answer["timings/predicted_n"]) if computes else 0,
    )


class InfillServer(Protocol):
    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


class OneSlot:
    """A llama.cpp server that answers one request after the other: what comes while it works waits behind.

    Attributes:
        rows: of what was asked, as the server reports it.
    """

    def __init__(self, server: InfillServer, loop: Clock) -> None:
        self._server = server
        self._loop = loop
        self._threads = ThreadPoolExecutor(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy_until_s = 0.0
        self._failed: list[BaseException] = []
        self.rows: list[RequestRow] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Work that asks, and that `close` waits for. What it raises is raised by the next that asks, and by `close`."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed.append(error)

    async def ask(self, body: dict[str, Any], kind: str) -> str:
        """The text of its answer, once it would be there."""
        if self._failed:
            raise self._failed[0]
        sent_s = self._loop.time()
        with self._loop.held():
            answer, answer_ms = await self._loop.run_in_executor(self._threads, self._post, body)
        start_s = max(sent_s, self._busy_until_s)
        self._busy_until_s = start_s + answer_ms / 1000
        self.rows.append(row_of_answer(kind, answer, sent_s, answer_ms, (start_s - sent_s) * 1000))
        await asyncio.sleep(max(0.0, self._busy_until_s - self._loop.time()))
        return str(answer["content"])

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._threads.shutdown()
        if self._failed:
            raise self._failed[0]

    def _post(self, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        began = time.perf_counter()
        answer = self._server.post("/infill", body | {"response_fields": _TIMINGS})
        return answer, (time.perf_counter() - began) * 1000


def buffer_of(snapshot: Snapshot, caret: int) -> Buffer:
    """How Vim sees a text: no line behind the last line end, unless the caret stands there."""
    lines = [line.removesuffix("\r") for line in snapshot.text.split("\n")]
    y = snapshot.line_of(caret)
    x = min(caret - snapshot.line_start(y), len(lines[y]))
    if len(lines) > 1 and lines[-1] == "" and y < len(lines) - 1:
        lines.pop()
    return Buffer(snapshot.path, tuple(lines), x, y + 1)


class LlamaVimAssistant:
    """llama.vim before a real llama.cpp server.

    What it sends is sent as it is, but for two things that change no computation: the answer's fields that are asked for, and a
    last sampling step that takes the likeliest of what its own samplers left.
    """

    def __init__(
        self, server: InfillServer, loop: Clock, *, rng: Random, options: LlamaVimOptions | None = None
    ) -> None:
        self._slot = OneSlot(server, loop)
        self._loop = loop
        self._since_s = 0.0
        self._closed = False
        self._before: tuple[str, str] = ("", "")
        self._typed = ""
        self.rows = self._slot.rows
        self.news = asyncio.Event()
        self._vim = LlamaVim(
            clock=loop.time,
            later=self._later,
            send=self._send,
            rng=rng,
            options=options,
            on_hint=self._hinted,
        )
        self._vim.start()

    @property
    def offer(self) -> Offer | None:
        hint = self._vim.hint
        if hint is None or not hint.can_accept:
            return None
        text = hint.before + hint.text
        # On a blank line the hint may set another indentation than what stands there: that is no continuation.
        return Offer(text[len(self._typed) :], self._since_s) if text.startswith(self._typed) else None

    def opened(self, snapshot: Snapshot) -> None:
        """A file that was read is not yet in the window."""

    def entered(self, snapshot: Snapshot, caret: int) -> None:
        self._vim.entered(buffer_of(snapshot, caret))

    def left(self, snapshot: Snapshot, caret: int, *, modified: bool) -> None:
        if modified:
            self._vim.saved()
        self._vim.left()

    def changed(self, change: Change, caret: int, *, asks: bool) -> None:
        self._move(change.after, caret, inserting=asks)

    def moved(self, snapshot: Snapshot, caret: int) -> None:
        self._move(snapshot, caret, inserting=False)

    def _move(self, snapshot: Snapshot, caret: int, *, inserting: bool) -> None:
        offered, typed = self.offer, self._typed
        buffer = buffer_of(snapshot, caret)
        self._typed = buffer.line(buffer.y)[: buffer.x]
        self._before = (typed + offered.text, self._typed) if offered is not None else ("", "")
        self._vim.moved(buffer, inserting=inserting)
        self._before = ("", "")

    def taken(self) -> None:
        """The plugin inserts and moves the caret; that is `changed`."""

    async def close(self) -> None:
        self._closed = True
        await self._slot.close()

    def _hinted(self) -> None:
        # A hint that goes on where the visible one stood, less what was typed, has been visible all the time.
        offer = self.offer
        shown, typed = self._before
        if offer is None or not shown or typed + offer.text != shown:
            self._since_s = self._loop.time()
        self.news.set()

    def _later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, lambda: None if self._closed else call())

    def _send(self, body: dict[str, Any], kind: Sent, answered: Callable[[str | None], None]) -> None:
        if body["samplers"]:
            body = body | {"samplers": [*body["samplers"], "temperature"], "temperature": 0.0}
        self._slot.start(self._answer(body, kind, answered))

    async def _answer(self, body: dict[str, Any], kind: Sent, answered: Callable[[str | None], None]) -> None:
        text = await self._slot.ask(body, kind.value)
        if not self._closed:
            answered(text)


class CountingGateway(MeasuredGateway):
    """A measured gateway that keeps a row per request."""

    _answered: list[tuple[RequestRow, RequestRecord]] | None = None

    @property
    def rows(self) -> list[RequestRow]:
        """Tokens that came after the client had cancelled are measured, for nothing here is cancelled, and were not generated."""
        return [
            replace(row, generated_tokens=row.generated_tokens - record.tokens_after_cancel)
            for row, record in self._answered or []
        ]

    async def _ask(self, call: Complete[Segment], number: int) -> Answer:
        sent_s = self._loop.time()
        deltas, done_ms, done = await super()._ask(call, number)
        row = row_of(call, sent_s, deltas[0][0] if deltas else None, done_ms, done.usage)
        self._answered = [*(self._answered or []), (row, self.records[number])]
        return deltas, done_ms, done


class ForetypeAssistant:
    """Our completion flow, asked as an editor asks: after each change at the caret, and again when a suggestion grew.

    Attributes:
        redraws: by question, how often what was shown at its place became longer; and `taken_back`, how often it became another text.
    """

    def __init__(self, flow: CompletionFlow, clock: Callable[[], float]) -> None:
        self._flow = flow
        self._clock = clock
        self._asked = 0
        self._snapshot: Snapshot | None = None
        self._caret = 0
        self._suggestion: Suggestion | None = None
        self._offer: Offer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.by_source: dict[str, int] = {}
        self.redraws: Counter[int] = Counter()
        self.taken_back = 0
        self.news = asyncio.Event()
        flow.grew.add(self._grew)

    @property
    def offer(self) -> Offer | None:
        return self._offer

    def opened(self, snapshot: Snapshot) -> None:
        self._flow.document_opened(snapshot)

    def entered(self, snapshot: Snapshot, caret: int) -> None:
        self._hide()

    def left(self, snapshot: Snapshot, caret: int, *, modified: bool) -> None:
        self._hide()

    def moved(self, snapshot: Snapshot, caret: int) -> None:
        self._hide()
        self._flow.rested(snapshot, caret)

    def _hide(self) -> None:
        self._asked += 1
        self._offer = self._suggestion = None

    def changed(self, change: Change, caret: int, *, asks: bool) -> None:
        snapshot = change.after
        before, where = self._offer, (self._snapshot, self._caret)
        self._hide()
        self._flow.document_changed(change)
        if not asks:
            return
        self._snapshot, self._caret = snapshot, caret
        old, at = where
        shown = old.text[:at] + before.text if before is not None and old is not None else None
        self._start(self._ask(self._asked, snapshot, caret, shown, before.since_s if before is not None else 0.0))

    def taken(self) -> None:
        if self._suggestion is not None:
            self._flow.accepted(self._suggestion.id)

    async def close(self) -> None:
        await self._flow.close()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, mine: int, snapshot: Snapshot, caret: int, shown: str | None, since_s: float) -> None:
        suggestion = await self._flow.suggest(snapshot, caret, trigger=Trigger.AUTOMATIC)
        if suggestion is None or mine != self._asked:
            return
        text = suggestion.text
        if suggestion.replaces:
            text = text.removesuffix(snapshot.text[caret : caret + suggestion.replaces])
        # Typed through: the same text has been visible all the time.
        same = shown is not None and snapshot.text[:caret] + text == shown
        if (before := self._offer) is not None and before.text != text:
            self.redraws[mine] += 1
            self.taken_back += not text.startswith(before.text)
        self._suggestion, self._offer = suggestion, Offer(text, since_s if same else self._clock())
        self.by_source[suggestion.source.value] = self.by_source.get(suggestion.source.value, 0) + 1
        self.news.set()

    def _grew(self, uri: str, suggestion: Suggestion) -> None:
        if self._snapshot is None or self._snapshot.uri != uri or self._offer is None:
            return
        shown = self._snapshot.text[: self._caret] + suggestion.text
        self._start(self._ask(self._asked, self._snapshot, self._caret, shown, self._offer.since_s))
