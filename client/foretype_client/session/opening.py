"""A connection that is closed when it is left."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from foretype_context.authorities import trusted
from websockets.asyncio.client import ClientConnection, connect


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[ClientConnection]:
    """`websockets.connect`, whose socket is closed at the end whatever the other side does.

    In a task that was cancelled, a limit of CPython 3.11.2 (Debian 12) ends without a TimeoutError, and the library leaves a
    connection open whose other side does not answer its goodbye.
    """
    tls = {"ssl": trusted()} if url.startswith("wss:") else {}
    connection = await connect(url, **tls, **options)
    try:
        async with connection:
            yield connection
    finally:
        connection.transport.abort()
