"""An editing session as plain events: what every recording is turned into before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretype_context.syntax.document import Edit


@dataclass(frozen=True, slots=True)
class Loaded:
    """The text of `path` was read from disk or replaced from outside: nobody inserted it."""

    time_s: float
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Edits of one moment, in sequence: each in the coordinates that the one before it left (code points).

    Attributes:
        accepted: a suggestion that was taken, where the recording says so.
    """

    time_s: float
    path: str
    edits: tuple[Edit, ...]
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The caret stands at `offset`; `selecting` if text is selected, where nothing would be asked."""

    time_s: float
    path: str
    offset: int
    selecting: bool = False


Event = Loaded | Changed | Moved


@dataclass(frozen=True, slots=True)
class Recording:
    """Events in order of time.

    Attributes:
        name: for people.
        notes: what was left out, by reason.
    """

    name: str
    events: tuple[Event, ...]
    notes: dict[str, int] = field(default_factory=dict[str, int])
