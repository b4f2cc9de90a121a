"""Requests for a place that an editor is about to ask for.

Editors ask some time after a key: 30 ms in Emacs and Neovim with our plugins, 200 ms in Neovim 0.12. The change that the key made
is told at once, so the debounce can run out, and the model begin, before the question comes. The question then finds the request
among those of its document and takes it for its own (:meth:`foretype_client.flow.attempt.Attempt.turn`). Nothing is offered
here: an editor that does not ask is shown nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from foretype_client.flow.attempt import Attempt
from foretype_client.flow.open_documents import TrackedDocument
from foretype_client.flow.question import Question
from foretype_client.ports import Clock

_ASKS_S: Final = 30.0
"""An editor that has asked nothing in a document for this long (another mode, switched off) is not about to."""

_LEAD_S: Final = 0.015
"""This long before the request is due, its prompt is made: other files' snippets may take ten milliseconds. Most keys come sooner."""


class AnticipatedRequests:
    """Sends early requests.

    Args:
        attempt: the attempt that a question would make, if the policy lets it be asked at all.
        answered: whether the question needs no request, because its answer is here; None while that is looked for.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        attempt: Callable[[TrackedDocument, Question], Attempt | None],
        answered: Callable[[TrackedDocument, Question], bool | None],
    ) -> None:
        self._clock = clock
        self._attempt = attempt
        self._answered = answered
        self._tasks: set[asyncio.Task[None]] = set()

    def expect(self, document: TrackedDocument, question: Question) -> None:
        """`question` is expected: ask the gateway once its debounce is over, unless it or a change comes before."""
        if self._clock() > document.asked_s + _ASKS_S:
            return
        document.take_over(question)
        task = asyncio.create_task(self._ask(document, question), name="foretype-early")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait until no task is left; the caller has superseded what they wait for."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, document: TrackedDocument, question: Question) -> None:
        try:
            attempt = self._attempt(document, question)
            if attempt is None:
                return
            await question.sleep(attempt.due_s - _LEAD_S - self._clock())
            if await self._settled(document, question):
                return
            while not question.superseded:
                question.wake.clear()
                look_s = attempt.ask_early(self._clock())
                if look_s is None:
                    return
                await question.sleep(look_s - self._clock())
        finally:
            document.release(question)

    async def _settled(self, document: TrackedDocument, question: Question) -> bool:
        """Whether no request is needed any more; what is searched for here is searched for in turns."""
        while not question.superseded:
            here = self._answered(document, question)
            if here is not None:
                return here
            await asyncio.sleep(0)
        return True
