"""Spans of the completion flow: from the keystroke to the answer, and each request on the wire.

`FlowTracer` listens to the flow; `TracedGateway` stands between it and its gateway, so that each request carries its span::

    foretype.suggestion          the last key (or the question, where nothing was typed) to the answer
    ├─ foretype.keystroke        the last key to the editor's question
    ├─ foretype.debounce         question to request: deciding, waiting, looking at requests that already run
    ├─ foretype.assembly         making the prompt, while the debounce runs
    └─ foretype.request          on the wire, with the event `first_token`; the gateway's spans are its children

What is asked ahead of the user (`speculative`, `warm`) is a trace of its own. Answers that need no request have no children.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Change
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import ChangeReason, Complete, Finish

from foretype_client.flow.events import FlowEvents
from foretype_client.flow.inflight import ASKED, Flight
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Suggestion
from foretype_client.ports import Clock, CompletionStream, Gateway

if TYPE_CHECKING:
    from foretype_wire.tracing.spans import Span, Tracing

_TYPED_S: Final = 2.0
"""A question this long after the last key is not that key's."""


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    question: Question
    span: Span


class FlowTracer:
    """Listens to one flow. Times are seconds on its clock."""

    def __init__(self, tracing: Tracing, *, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock
        self._changed_s: dict[str, float] = {}
        self._open: dict[int, _Open] = {}  # by identity of the question
        self._waiting: dict[str, _Open] = {}  # the newest of a document
        self._requests: dict[str, Span] = {}

    def sending(self, call: Complete[Segment]) -> Complete[Segment]:
        """The call with the span that it is from now on."""
        asked = self._waiting.get(call.document) if call.class_ in ASKED else None
        span = self._requests[call.id] = self._tracing.begin(
            "foretype.request",
            self._clock(),
            parent=None if asked is None else asked.span,
            attributes={"foretype.class": call.class_.value, "foretype.prompt_tokens": call.prompt_tokens or 0},
        )
        return msgspec.structs.replace(call, traceparent=self._tracing.traceparent(span))

    def follow(self, events: FlowEvents) -> None:
        """Listen from now on."""
        events.changed.add(self.changed)
        events.closed.add(lambda uri: self._changed_s.pop(uri, None))
        events.asked.add(self.asked)
        events.answered.add(self.answered)
        events.sent.add(self.sent)
        events.landed.add(self.landed)

    def changed(self, change: Change) -> None:
        self._changed_s[change.after.uri] = change.at_s

    def asked(self, question: Question) -> None:
        uri, asked_s = question.snapshot.uri, question.asked_s
        key_s = self._changed_s.pop(uri, -math.inf)
        if not 0 <= asked_s - key_s <= _TYPED_S:
            key_s = asked_s
        span = self._tracing.begin(
            "foretype.suggestion", key_s, attributes={"foretype.trigger": question.trigger.name.lower()}
        )
        if key_s < asked_s:
            self._tracing.stage("foretype.keystroke", key_s, asked_s, span)
        self._open[id(question)] = self._waiting[uri] = _Open(question, span)

    def answered(self, question: Question, result: Suggestion | str) -> None:
        opened = self._open.pop(id(question), None)
        if opened is None:
            return
        if self._waiting.get(question.snapshot.uri) is opened:
            del self._waiting[question.snapshot.uri]
        if isinstance(result, Suggestion):
            told = {"foretype.outcome": "suggested", "foretype.served_from": result.source.value}
            self._tracing.end(opened.span, self._clock(), told | {"foretype.characters": len(result.text)})
        else:
            self._tracing.end(opened.span, self._clock(), {"foretype.outcome": str(result)})

    def sent(self, flight: Flight, call: Complete[Segment]) -> None:
        asked = self._waiting.get(call.document) if call.class_ in ASKED else None
        if asked is None or flight.draft is None:
            return
        self._tracing.stage("foretype.debounce", asked.question.asked_s, flight.sent_s, asked.span)
        began_s, took_s = flight.draft.began_s, flight.draft.assemble_ms / 1000
        self._tracing.stage("foretype.assembly", began_s, began_s + took_s, asked.span)

    def landed(self, flight: Flight) -> None:
        span = self._requests.pop(flight.id, None)
        if span is None:
            return
        if flight.first_s is not None:
            self._tracing.mark(span, "first_token", flight.first_s)
        ended_s = self._clock() if flight.ended_s is None else flight.ended_s
        if flight.error is not None:
            code = flight.error.code.value if isinstance(flight.error, RequestRefusedError) else "gateway_gone"
            self._tracing.end(span, ended_s, error=code)
            return
        finish = Finish.CANCELLED if flight.done is None else flight.done.finish
        told: dict[str, str | int] = {"foretype.finish": finish.value, "foretype.generated_tokens": flight.tokens}
        if flight.done is not None:
            told["foretype.cached_tokens"] = flight.done.usage.cached_tokens
        self._tracing.end(span, ended_s, told)


class TracedGateway:
    """A `Gateway` whose calls carry their spans."""

    def __init__(self, gateway: Gateway, tracer: FlowTracer) -> None:
        self._gateway = gateway
        self._tracer = tracer

    @property
    def profile(self) -> Profile | None:
        return self._gateway.profile

    @property
    def connected(self) -> bool:
        return self._gateway.connected

    def complete(self, call: Complete[Segment]) -> CompletionStream:
        return self._gateway.complete(self._tracer.sending(call))

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None:
        self._gateway.changed(documents, reason)
