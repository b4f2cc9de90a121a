"""Waiting for what the code under test, or another process, has no event for."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


async def until(condition: Callable[[], Any], timeout_s: float = 300.0) -> Any:
    """What `condition` gives, which may be awaitable, once it gives anything."""
    async with asyncio.timeout(timeout_s):
        while True:
            given = condition()
            if found := await given if inspect.isawaitable(given) else given:
                return found
            await asyncio.sleep(0.01)
