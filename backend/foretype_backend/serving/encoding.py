"""Long texts become tokens in a few threads of their own, where tiktoken lets go of the interpreter's lock.

A tenant has one text under way at a time, so that nobody's hundred long prompts stand before another's one. What was asked and is no
longer wanted keeps its place until its thread is done: a storm of cancels occupies no more threads than patience does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from foretype_context.tokens.tokenizer import has_blanks

INLINE_CHARS: Final = 1 << 14
"""Of text, that are encoded on the event loop: 0.6 ms of source, 2 ms of blanks, which take longest."""
_INLINE_BLANKS: Final = 1024
"""Of white space in a row, which takes time in its square: longer runs are no work for the event loop."""
_THREADS: Final = 2
_NICE: Final = 10
"""Of these threads: where cores are short the event loop comes first."""

_T = TypeVar("_T")


def is_short(text: str) -> bool:
    """Whether it is encoded on the event loop."""
    return len(text) <= INLINE_CHARS and not has_blanks(text, _INLINE_BLANKS)


def _behind() -> None:
    if sys.platform == "linux":  # where a thread has a priority of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class EncodePool:
    """Of one gateway."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="encode", initializer=_behind)
        self._queues: dict[str, list[asyncio.Future[None]]] = {}  # tenant → who waits for its place, which is taken

    def close(self) -> None:
        """Nothing is begun any more; its threads end with what they are at."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, tenant: str, work: Callable[[], _T]) -> _T:
        """The result of `work`, done in a thread when it is the tenant's turn."""
        loop = asyncio.get_running_loop()
        await self._place(tenant, loop)
        try:
            done = loop.run_in_executor(self._threads, work)
        except BaseException:
            self._leave(tenant)
            raise
        done.add_done_callback(lambda done: self._ended(tenant, done))
        return await asyncio.shield(done)

    async def _place(self, tenant: str, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._queues.get(tenant)
        if queue is None:
            self._queues[tenant] = []
            return
        mine: asyncio.Future[None] = loop.create_future()
        queue.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._leave(tenant)  # the place came in the same moment
            raise

    def _ended(self, tenant: str, done: asyncio.Future[_T]) -> None:
        if not done.cancelled():
            done.exception()  # those that still wait get the exception
        self._leave(tenant)

    def _leave(self, tenant: str) -> None:
        """The place goes to the one that has waited longest."""
        queue = self._queues[tenant]
        while queue:
            waiting = queue.pop(0)
            if not waiting.done():
                waiting.set_result(None)
                return
        del self._queues[tenant]
