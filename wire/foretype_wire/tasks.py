"""The end of tasks that run until somebody ends them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["end_tasks"]

_AGAIN_S: Final = 0.25


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel them and return when they have ended, whatever with; None is no task.

    One that goes on is cancelled again after a quarter of a second: on Python 3.11 `asyncio.wait_for`, with which redis-py sends, loses a
    cancellation that arrives in the moment its answer does, and a loop around it would go on for ever.
    """
    going = {task for task in tasks if task is not None}
    while going:
        for task in going:
            task.cancel()
        ended, going = await asyncio.wait(going, timeout=_AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # looked at, so that nobody logs it as never retrieved
