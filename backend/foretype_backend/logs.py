"""Logging that never contains source text, at any level.

What a user typed can be inside an exception's message (a bad value is quoted by most parsers), so a fault is logged as its
type and the places it passed, never as `str(error)`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from typing import Any

__all__ = ["configure", "keep_texts_out", "log_fault"]


def log_fault(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log a fault: its type and stack (files, lines and functions), without the message and without values."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    log.error("%s: %s at %s", what, type(error).__qualname__, places)


def keep_texts_out(loop: asyncio.AbstractEventLoop) -> None:
    """Log faults of callbacks and forgotten tasks as any other: asyncio would print their messages and arguments, too."""
    log = logging.getLogger("foretype.gateway")

    def told(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            log.error("asyncio tells of a fault without an exception")
        else:
            log_fault(log, "a fault that nobody waits for", error)

    loop.set_exception_handler(told)


def configure(level: str = "info") -> None:
    """Log to stderr. Libraries that print frames or requests at `DEBUG` are held at `INFO`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("foretype", "foretype_backend"):
        logging.getLogger(name).setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "websockets", "asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
