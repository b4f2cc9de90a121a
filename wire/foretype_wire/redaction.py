"""Faults as both ends log them: never with source text, at any level.

What a user typed can be inside an exception's message (a bad value is quoted by most parsers) and on the lines of its
traceback, so a fault is logged as its type and the places it passed, never as `str(error)`.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any, Final

_FRAMES_MAX: Final = 20
"""Of a stack, from where it broke: a recursion without an end has a thousand."""


def log_fault(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log a fault: its type and stack (files, lines and functions), without the message and without values."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    log.error("%s: %s at %s", what, type(error).__qualname__, places)


def keep_texts_out(loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
    """Log faults of callbacks and forgotten tasks as any other: asyncio would print their messages and arguments, too."""

    def told(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            log.error("asyncio tells of a fault without an exception")
        else:
            log_fault(log, "a fault that nobody waits for", error)

    loop.set_exception_handler(told)
