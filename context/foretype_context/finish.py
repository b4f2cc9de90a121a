"""Post-processing: what of a generated text is shown."""

from __future__ import annotations

from dataclasses import dataclass

from foretype_context.document import Snapshot
from foretype_context.plan import SuggestionKind

__all__ = ["Finished", "finish"]


@dataclass(frozen=True, slots=True)
class Finished:
    """A suggestion to show.

    Attributes:
        text: to insert at the cursor; empty where nothing is to be shown.
        replaces: characters right of the cursor that `text` takes the place of.
        reason: why nothing is left, or None.
    """

    text: str
    replaces: int = 0
    reason: str | None = None


def finish(text: str, snapshot: Snapshot, offset: int, *, kind: SuggestionKind, final: bool) -> Finished:
    if kind is not SuggestionKind.BLOCK:
        text = text.split("\n", 1)[0]
    elif not final:
        text = text[: text.rfind("\n") + 1]
    text = text.rstrip()
    return Finished(text) if text else Finished("", 0, "blank")
