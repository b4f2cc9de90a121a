"""What a model is asked of one document after what was done there, and what of its answer is taken. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from foretype_context.edit_models.question import (
    EditQuestion,
    EditWindow,
    RecentEdit,
    WindowEdit,
    question_at,
    window_at,
    window_before,
)
from foretype_context.edits.bursts import Burst
from foretype_context.edits.evidence import named
from foretype_context.syntax.document import Edit

_REFUSED: Final = 256


class ModelQuestion(NamedTuple):
    """A question about a window that begins at `start` of its text, after `edits`, the oldest first."""

    question: EditQuestion
    start: int
    edits: Sequence[RecentEdit]


class ModelQuestions:
    """Remembers what was refused."""

    def __init__(self) -> None:
        self._refused = deque[tuple[str, str]](maxlen=_REFUSED)

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this: not here again, nor where the same line stands."""
        self._refused.append(named(text, edit))

    def ask(
        self, text: str, cursor: int, wanted: EditWindow, path: str, edits: Sequence[RecentEdit], last: Burst | None
    ) -> ModelQuestion | None:
        """None where nothing was done yet, or the window is too long.

        Args:
            last: what was done last.
        """
        if not edits:
            return None
        window = window_at(text, cursor, wanted.lines_above, wanted.lines_below)
        before = None
        if last is not None:
            start, end, inserted = last.edit
            before = window_before(last.before, start, end, len(inserted), window)
        shown = [msgspec.structs.replace(one, path=path) for one in edits]
        question = question_at(text, cursor, wanted, path=path, before=before, edits=shown)
        return None if question is None else ModelQuestion(question, window.start, edits)

    def take(self, text: str, asked: ModelQuestion, said: WindowEdit) -> Edit | None:
        """The edit of the text that was asked about; None where it was refused, changes nothing or takes back what was done."""
        edit = Edit(asked.start + said.start, asked.start + said.end, said.text)
        return None if named(text, edit) in self._refused or _takes_back(asked, said) else edit


def _takes_back(asked: ModelQuestion, said: WindowEdit) -> bool:
    question = asked.question
    result = question.window[: said.start] + said.text + question.window[said.end :]
    if result in (question.window, question.before):
        return True
    done = (one for one in asked.edits if one.old)
    return any(one.new in question.window and one.new not in result and one.old in result for one in done)
