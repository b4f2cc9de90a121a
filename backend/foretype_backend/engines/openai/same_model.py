"""Whether a server still has the model that prompts are made for.

A server of somebody's own is stopped and started with other weights; some take any model's name and answer all the same, from
prompts in another model's grammar. So it is looked at again after it was away, and now and then while it is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from foretype_context.text.pasted import shell_line
from foretype_wire.tasks import end_tasks

from foretype_backend.errors import EngineUnavailableError, Fault

_EVERY_S: Final = 5.0
"""How old what is known may be; a look costs one small request, beside the one that is asked."""
_AGAIN_S: Final = 1.0
"""While it is another model: how often to look whether the right one is back."""


class SameModel:
    """The watch over one server.

    Args:
        look: the models that it lists now; raises EngineUnavailableError.
        url: of the server.
        clock: monotonic seconds.
    """

    def __init__(self, look: Callable[[], Awaitable[Sequence[str]]], url: str, clock: Callable[[], float]) -> None:
        self._look = look
        self._url = url
        self._clock = clock
        self._seen_s: float | None = None
        self._other = ""
        self._looking: asyncio.Task[None] | None = None

    def seen(self) -> None:
        """It was seen to be the right one."""
        self._seen_s, self._other = self._clock(), ""

    def lost(self) -> None:
        """A connection broke or could not be made: whatever answers next may be another."""
        self._seen_s = None

    async def check(self, model: str) -> None:
        """Return at once where it was seen lately, and look where it was away or had another model.

        Raises:
            EngineUnavailableError: it has another model now.
        """
        age_s = None if self._seen_s is None else self._clock() - self._seen_s
        if age_s is None or (self._other and age_s >= _AGAIN_S):
            await self._see(model)
        elif age_s >= _EVERY_S and self._looking is None:
            self._looking = asyncio.create_task(self._see(model), name="the server's model")
            self._looking.add_done_callback(self._looked)
        if self._other:
            raise EngineUnavailableError(
                f"{self._url}: serves {self._other} now, not {model}; start that again, or `{shell_line('foretype', 'use', self._url)}`",
                fault=Fault.REPLACED,
            )

    async def close(self) -> None:
        looking, self._looking = self._looking, None
        await end_tasks(looking)

    async def _see(self, model: str) -> None:
        with contextlib.suppress(EngineUnavailableError):  # a request of now learns it from its answer
            names = await self._look()
            self.seen()
            if names and model not in names:
                self._other = ", ".join(names[:3])

    def _looked(self, task: asyncio.Task[None]) -> None:
        if self._looking is task:
            self._looking = None
