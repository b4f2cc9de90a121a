"""The one question: whether completions feel instant. Asked of users who opted in, by a request that every editor knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from foretype_wire.tasks import end_tasks

from foretype_lsp.editor import Editor

if TYPE_CHECKING:
    from foretype_client.telemetry.feeling import Feeling

QUESTION: Final = "Foretype: do completions feel instant?"
_TITLES: Final = {"Yes": "yes", "Mostly": "mostly", "No": "no"}


class HowItFeels:
    """Asks when it is time, once at most while this server runs."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._task: asyncio.Task[None] | None = None

    def look(self, feeling: Feeling | None, *, allowed: bool) -> None:
        """Ask if it may be asked now. The question waits in the editor for as long as it likes."""
        if allowed and feeling is not None and self._task is None and feeling.is_time():
            self._task = asyncio.get_running_loop().create_task(self._ask(feeling), name="foretype question")

    async def close(self) -> None:
        await end_tasks(self._task)

    async def _ask(self, feeling: Feeling) -> None:
        if not await asyncio.to_thread(feeling.claim):
            return
        title = await self._editor.choose(QUESTION, _TITLES)
        if title is not None:  # closed without an answer is an answer too: none
            feeling.answered(_TITLES[title])
