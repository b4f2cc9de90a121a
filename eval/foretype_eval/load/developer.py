"""A simulated developer: one connection, files typed one after the other, newer requests that replace older ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec
from foretype_wire.messages import (
    VERSION,
    Cancel,
    Changed,
    ChangeReason,
    Complete,
    Delta,
    Done,
    Error,
    Finish,
    GatewayMessage,
    Hello,
    Need,
    Profile,
)
from foretype_wire.segment_cache import SegmentCache

from foretype_eval.load.connection import LoadConnection
from foretype_eval.load.recorder import Recorder
from foretype_eval.load.scripts import ScriptedRequest
from foretype_eval.load.sent_request import SentRequest

_decoder: Final = msgspec.msgpack.Decoder[GatewayMessage](GatewayMessage)
_encode: Final = msgspec.msgpack.Encoder().encode


class Habits(NamedTuple):
    """What a developer does to requests that still run when the next key comes; shares of 1.

    Attributes:
        supersede: name it in `supersedes`; `cancel`: cancel it explicitly; else it is left running.
        early: cancel a request some milliseconds after it was sent, because the next key fits no suggestion.
        early_ms: up to when.
        branch: switch the branch, per request.
    """

    supersede: float = 0.6
    cancel: float = 0.3
    early: float = 0.08
    early_ms: float = 30.0
    branch: float = 0.002
    max_tokens: int = 6
    deadline_ms: float = 2_000.0


class Developer:
    """Sends what is due and books what comes back.

    Args:
        scripts: of all files; this developer starts at a place of their own and takes one after the other.
        clock: the monotonic seconds that planned moments are in.
    """

    def __init__(
        self,
        number: int,
        connection: LoadConnection,
        scripts: Sequence[tuple[ScriptedRequest, ...]],
        recorder: Recorder,
        *,
        habits: Habits,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self.profile_came = False
        self.live: dict[str, SentRequest] = {}
        self._number = number
        self._connection = connection
        self._scripts = scripts
        self.recorder = recorder
        self._habits = habits
        self._clock = clock
        self._rng = rng
        self._cache = SegmentCache()
        self._file, self._step, self._count = number % len(scripts), 0, 0
        self.cancels = 0
        """Cancels that were sent, those that the next request carried in `supersedes` included."""
        self.ended: Callable[[], None] = lambda: None
        """Called when a request has its answer, or its refusal."""
        connection.on_message = self._received
        connection.on_lost = self._lost

    def greet(self) -> None:
        self._connection.send(_encode(Hello(v=VERSION, client="foretype-load")))

    def ask(self, planned_s: float, measured: bool) -> None:
        """The request of the next key, which was due at `planned_s`."""
        step = self._next_step()
        id = f"{self._number}-{self._count}"
        supersedes = self._let_go()
        if self._rng.random() < self._habits.branch:
            self._connection.send(_encode(Changed(documents=[step.document], reason=ChangeReason.BRANCH)))
        self.live[id] = asked = SentRequest(self._number, planned_s, step, measured)
        if measured:
            self.recorder.requests += 1
            self.recorder.asked_class[step.class_.value] += 1
            self.recorder.late_s.append(self._clock() - planned_s)
            if self.recorder.kept is not None:
                self.recorder.kept.append(asked)
        self._send(id, step, supersedes, as_text=False)
        if self._rng.random() < self._habits.early:
            delay_s = self._rng.uniform(0, self._habits.early_ms / 1000)
            asyncio.get_running_loop().call_later(delay_s, self._cancel, id)

    def _next_step(self) -> ScriptedRequest:
        script = self._scripts[self._file]
        if self._step >= len(script):
            self._file, self._step = (self._file + 7) % len(self._scripts), 0
            script = self._scripts[self._file]
        step = script[self._step]
        self._step += 1
        self._count += 1
        return step

    def _let_go(self) -> str | None:
        """Give up what still runs; the id that the next request replaces."""
        running = [id for id, live in self.live.items() if live.cancelled_s is None]
        if not running:
            return None
        draw = self._rng.random()
        if draw < self._habits.supersede:
            self._booked_cancel(running[-1])
            return running[-1]
        if draw < self._habits.supersede + self._habits.cancel:
            self._cancel(running[-1])
        return None

    def _cancel(self, id: str) -> None:
        live = self.live.get(id)
        if live is not None and live.cancelled_s is None:
            live.cancelled_s = self._clock()
            self._booked_cancel(id)
            self._connection.send(_encode(Cancel(id=id)))

    def _booked_cancel(self, id: str) -> None:
        self.cancels += 1
        if self.live[id].measured:
            self.recorder.cancel_sent_s[id] = self._clock()

    def _send(self, id: str, step: ScriptedRequest, supersedes: str | None, *, as_text: bool) -> None:
        cache = self._cache
        segments = [
            part.text_form
            if as_text or part.digest is None or cache.send(part.kind, part.text_form.text or "", part.digest) is None
            else part.digest_form
            for part in step.parts
        ]
        if as_text:
            for part in step.parts:
                cache.receive_text(part.kind, part.text_form.text or "")
        message = Complete(
            id=id,
            class_=step.class_,
            supersedes=supersedes,
            document=step.document,
            version=step.version,
            language=step.language,
            segments=segments,
            max_tokens=self._habits.max_tokens,
            deadline_ms=self._habits.deadline_ms,
            prompt_tokens=step.prompt_tokens,
        )
        self._connection.send(_encode(message))

    def _received(self, payload: bytes) -> None:
        now, message = self._clock(), _decoder.decode(payload)
        match message:
            case Delta():
                live = self.live.get(message.id)
                if live is not None and not live.first_s:
                    live.first_s = now
                    if live.measured:
                        self.recorder.ttft_s[live.class_].append(now - live.planned_s)
            case Done():
                self._done(message, now)
            case Error():
                live = self.live.pop(message.id, None) if message.id is not None else None
                if live is not None:
                    live.refused, live.ended_s = True, now
                if live is not None and live.measured:
                    self.recorder.outcomes["refused"] += 1
                    self.recorder.refused[message.code.value] += 1
                    self.recorder.refused_class[live.class_] += 1
                    self._in_time(live, now)
                if live is not None:
                    self.ended()
            case Need():
                self.recorder.needs += 1
                self._cache.clear()
                live = self.live.get(message.id)
                if live is not None:
                    self._send(message.id, live.step, None, as_text=True)
            case Profile():
                self.profile_came = True
            case _:
                pass

    def _done(self, done: Done, now: float) -> None:
        live, recorder = self.live.pop(done.id, None), self.recorder
        if live is None:
            return
        self.ended()
        usage = live.usage = done.usage
        live.ended_s = now
        if not live.measured:
            return
        recorder.outcomes[done.finish.value] += 1
        recorder.prompt_tokens += usage.prompt_tokens
        recorder.cached_tokens += usage.cached_tokens
        recorder.generated_tokens += usage.generated_tokens
        recorder.wasted_tokens += usage.tokens_after_cancel
        self._in_time(live, now)
        if done.finish is Finish.CANCELLED:
            recorder.wasted_tokens += usage.generated_tokens
            if live.cancelled_s is not None:
                recorder.cancel_s.append(now - live.cancelled_s)
        else:
            recorder.total_s[live.class_].append(now - live.planned_s)
            recorder.queued_s[live.class_].append(done.timings_ms.queue / 1000)

    def _in_time(self, live: SentRequest, now: float) -> None:
        self.recorder.answered_in_time += now - live.planned_s <= self._habits.deadline_ms / 1000

    def _lost(self, reason: str) -> None:
        self.recorder.lost_connections += 1
        self.live.clear()
