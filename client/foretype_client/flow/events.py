"""What the completion flow tells of its work, to telemetry and tracing; it knows neither."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Change, Snapshot
from foretype_wire.messages import Complete
from foretype_wire.subscriptions import Subscribers

from foretype_client.flow.inflight import Flight
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Suggestion


@dataclass(frozen=True, slots=True)
class FlowEvents:
    """Who subscribes is called synchronously, in the order of events; must be quick and must not raise.

    Attributes:
        opened, changed: a document was; comes before the feedback about it.
        closed: the uri of a document.
        asked: a question was taken; it is the one of its document from now on.
        answered: it ended with a suggestion, or with the label of why there is none.
        sent: a request was sent for the question of its document.
        landed: a request is over.
    """

    opened: Subscribers[Snapshot] = field(default_factory=Subscribers[Snapshot])
    changed: Subscribers[Change] = field(default_factory=Subscribers[Change])
    closed: Subscribers[str] = field(default_factory=Subscribers[str])
    asked: Subscribers[Question] = field(default_factory=Subscribers[Question])
    answered: Subscribers[Question, Suggestion | str] = field(default_factory=Subscribers[Question, Suggestion | str])
    sent: Subscribers[Flight, Complete[Segment]] = field(default_factory=Subscribers[Flight, Complete[Segment]])
    landed: Subscribers[Flight] = field(default_factory=Subscribers[Flight])
