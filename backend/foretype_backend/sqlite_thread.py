"""The thread of a SQLite connection, which is told to stop once."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any, Final, cast

import aiosqlite

_ITERATED_ROWS: Final = 64
"""As `aiosqlite.connect` has it."""


class StoppedOnce(aiosqlite.Connection):
    """A connection whose second stop is its first one.

    SQLAlchemy closes the connection of a question that was cancelled, and where that is cancelled too, stops its thread. The close, which
    goes on, then waits for a stop of its own, from a thread that has ended: for ever, and so does the end of the event loop.
    """

    def __init__(self, *place: Any, **options: Any) -> None:
        super().__init__(lambda: sqlite3.connect(*place, **options), _ITERATED_ROWS)
        self._thread.daemon = True  # as SQLAlchemy has it of connections that it makes itself
        self._stopped = False
        self._stopping: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        """The same end, however often it is asked for."""
        if not self._stopped:
            self._stopped = True
            self._stopping = cast("asyncio.Future[Any] | None", super().stop())  # pyright: ignore[reportUnknownMemberType]
        return self._stopping
