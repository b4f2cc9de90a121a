"""A gateway's model of next edits behind the rules, as the language server asks it where eagerness is high."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from foretype_client.session.session import EditAnswer
from foretype_context.edit_models.question import EditWindow
from foretype_context.edits.evidence import Evidence
from foretype_context.edits.model_question import ModelQuestions
from foretype_context.edits.pace import Eagerness
from foretype_context.syntax.languages import language_of
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import NextEdit

from foretype_eval.next_edit.offers import Offer, Rules

_DEADLINE_MS: Final = 60_000.0
"""What it says is measured here, and its time apart from that; the server waits two seconds."""


class AskedModel:
    """One gateway's.

    Args:
        name: of what the gateway serves.
        send: a question, and its answer. Raises RequestRefusedError.

    Attributes:
        wanted: the window that it is asked about.
        answers: how many there were of each kind: `edit`, or why there was none.
    """

    def __init__(self, name: str, wanted: EditWindow, send: Callable[[NextEdit], EditAnswer]) -> None:
        self.name = name
        self.wanted = wanted
        self.answers = Counter[str]()
        self._send = send
        self._numbers = itertools.count(1)

    def predictor(self) -> RulesAndModel:
        return RulesAndModel(self)

    def ask(self, message: NextEdit) -> EditAnswer | None:
        """None where the gateway does not take the question."""
        try:
            answer = self._send(message)
        except RequestRefusedError as error:
            self.answers[f"refused: {error.code}"] += 1
            return None
        self.answers[answer.reason or "edit"] += 1
        return answer

    def next_id(self) -> str:
        return f"eval-{next(self._numbers)}"


class RulesAndModel(Rules):
    """The rules, and the model where they show nothing."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, model: AskedModel) -> None:
        super().__init__(Eagerness.HIGH)
        self._model = model
        self._questions = ModelQuestions()

    def opened(self, path: str, text: str) -> None:
        super().opened(path, text)
        self._open[path].recent()  # from now on it is noted what is done

    def next(self, path: str, cursor: int) -> Offer | None:
        if (offer := super().next(path, cursor)) is not None:
            return offer
        document = self._open[path]
        text, wanted = document.text, self._model.wanted
        edits, last = document.recent()
        asked = self._questions.ask(text, cursor, wanted, path, edits, last)
        if asked is None:
            return None
        message = NextEdit(
            id=self._model.next_id(),
            document=f"file:///{path}",
            language=language_of(path),
            question=asked.question,
            deadline_ms=_DEADLINE_MS,
        )
        answer = self._model.ask(message)
        edit = None if answer is None or answer.edit is None else self._questions.take(text, asked, answer.edit)
        return None if edit is None or not document.parses(edit) else Offer(path, edit, Evidence.MODEL.value)

    def refused(self, offer: Offer) -> None:
        if offer.evidence == Evidence.MODEL.value:
            self._questions.refused(self._open[offer.path].text, offer.edit)
        else:
            super().refused(offer)
