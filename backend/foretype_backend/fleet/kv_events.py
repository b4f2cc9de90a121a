"""Reading vLLM's cache events over ZMQ, on the engines' own host."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from foretype_backend.errors import CacheEventsError
from foretype_backend.prefix.events import CacheChange, EventBook

_log = logging.getLogger("foretype.pool")


async def follow_events(endpoint: str, block_tokens: int, heard: Callable[[CacheChange], None]) -> None:
    """Hands on every change until it is cancelled. ZMQ connects anew by itself when the engine restarts.

    Raises:
        ModuleNotFoundError: pyzmq is not installed (the extra `tiers`).
    """
    import zmq
    import zmq.asyncio

    context: Any = zmq.asyncio.Context()
    socket: Any = context.socket(zmq.SUB)
    book, told = EventBook(block_tokens), False
    try:
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.setsockopt(zmq.RCVHWM, 100_000)
        socket.connect(endpoint)
        while True:
            parts: list[bytes] = await socket.recv_multipart()
            if len(parts) != 3 or len(parts[1]) != 8:
                continue
            try:
                heard(book.read(int.from_bytes(parts[1], "big"), parts[2]))
            except CacheEventsError as error:
                if not told:
                    _log.warning("cache events of %s are not used: %s", endpoint, error)
                told = True
            await asyncio.sleep(0)  # a burst of events must not hold up completions
    finally:
        socket.close(linger=0)
        context.term()
