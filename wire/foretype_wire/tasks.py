"""The end of tasks that run until somebody ends them, and of work that nobody can end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

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


async def in_own_thread(work: Callable[[], _T]) -> _T:
    """What `work` returns, done in a thread that keeps nobody from ending.

    For what may wait for a server that says nothing: `asyncio.to_thread` has the loop, and then the process, wait for it at the end.
    """
    done: Future[_T] = Future()
    done.set_running_or_notify_cancel()  # who waits may stop to; the result is then nobody's

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="foretype work", daemon=True).start()
    return await asyncio.wrap_future(done)
