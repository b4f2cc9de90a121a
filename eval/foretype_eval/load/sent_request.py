"""One request of a simulated developer, as it is booked."""

from __future__ import annotations

from dataclasses import dataclass

from foretype_wire.messages import Usage

from foretype_eval.load.scripts import ScriptedRequest


@dataclass(slots=True, eq=False)
class SentRequest:
    """One request of a developer's, and what has become of it by now.

    Attributes:
        planned_s: when it was due, on the developer's clock; `first_s` and `ended_s` when its first text and its end came, 0 until then.
        refused: it was ended by an error.
        usage: that its end told.
    """

    number: int
    planned_s: float
    step: ScriptedRequest
    measured: bool
    first_s: float = 0.0
    ended_s: float = 0.0
    refused: bool = False
    usage: Usage | None = None
    cancelled_s: float | None = None

    @property
    def class_(self) -> str:
        return self.step.class_.value
