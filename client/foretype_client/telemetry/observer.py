"""What the completion flow tells its observers, such as telemetry. The flow knows this interface only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foretype_context.prompt.segments import Segment
from foretype_context.text.document import Snapshot
from foretype_wire.messages import Complete

from foretype_client.feedback.events import FeedbackEvent
from foretype_client.flow.inflight import Flight
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Suggestion


class FlowObserver(Protocol):
    """Called synchronously, in the order of events; must be quick and must not raise. Times are monotonic seconds."""

    def asked(self, question: Question) -> None:
        """A question was taken; it is the one of its document from now on."""
        ...

    def answered(self, question: Question, result: Suggestion | str) -> None:
        """It ended with a suggestion, or with the label of why there is none."""
        ...

    def sent(self, flight: Flight, call: Complete[Segment]) -> None:
        """A request was sent for the question of its document."""
        ...

    def landed(self, flight: Flight) -> None:
        """A request is over."""
        ...

    def told(self, event: FeedbackEvent) -> None:
        """Something became known about a suggestion."""
        ...

    def changed(self, snapshot: Snapshot) -> None:
        """A document was opened or changed. Comes before the feedback about it."""
        ...

    def closed(self, uri: str) -> None: ...


class Observers:
    """Several observers as one, told in order."""

    def __init__(self, observers: Sequence[FlowObserver]) -> None:
        self._observers = tuple(observers)

    def asked(self, question: Question) -> None:
        for observer in self._observers:
            observer.asked(question)

    def answered(self, question: Question, result: Suggestion | str) -> None:
        for observer in self._observers:
            observer.answered(question, result)

    def sent(self, flight: Flight, call: Complete[Segment]) -> None:
        for observer in self._observers:
            observer.sent(flight, call)

    def landed(self, flight: Flight) -> None:
        for observer in self._observers:
            observer.landed(flight)

    def told(self, event: FeedbackEvent) -> None:
        for observer in self._observers:
            observer.told(event)

    def changed(self, snapshot: Snapshot) -> None:
        for observer in self._observers:
            observer.changed(snapshot)

    def closed(self, uri: str) -> None:
        for observer in self._observers:
            observer.closed(uri)
