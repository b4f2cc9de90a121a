"""One request of a simulated developer, as it is booked."""

from __future__ import annotations

from foretype_wire.messages import Usage

from foretype_eval.load.scripts import ScriptedRequest


class SentRequest:
    """One request of a developer's, and what has become of it by now.

    Attributes:
        planned_s: when it was due, on the developer's clock; `first_s` and `ended_s` when its first text and its end came, 0 until then.
        refused: it was ended by an error.
        usage: that its end told.
    """

    __slots__ = (
        "cancelled_s", "class_", "ended_s", "first_s", "measured", "number", "planned_s", "refused", "step", "usage",
    )  # fmt: skip

    def __init__(self, number: int, planned_s: float, step: ScriptedRequest, measured: bool) -> None:
        self.number = number
        self.planned_s = planned_s
        self.class_ = step.class_.value
        self.step = step
        self.measured = measured
        self.first_s = self.ended_s = 0.0
        self.refused = False
        self.usage: Usage | None = None
        self.cancelled_s: float | None = None
