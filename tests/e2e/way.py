"""A road to a server that is longer than loopback, and on which nothing comes through when a test says so."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Protocol, Self

__all__ = ["Way"]


class Place(Protocol):
    """What listens on a port of this machine, the same after it was started again or not."""

    port: int


class Way:
    """A road to a gateway that takes its time; `frozen` nothing comes through any more, and nobody is told.

    `connections` are those that there have been; on those before `forget` nothing comes through either.
    """

    def __init__(self, place: Place, delay_s: float = 0.0) -> None:
        self.place, self.delay_s = place, delay_s
        self.port = 0
        self.frozen = False
        self.connections = self._forgotten = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def forget(self) -> None:
        self._forgotten = self.connections

    async def _goal(self) -> int | None:
        """The port that a new connection goes to, if to any."""
        return self.place.port

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)  # closed in the end, also where its task never ran
        self._tasks.add(asyncio.create_task(self._carry(reader, writer)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if (port := await self._goal()) is not None:
                with suppress(OSError):
                    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                    self._writers.append(far_writer)
                    self.connections = number = self.connections + 1
                    await asyncio.gather(self._pour(reader, far_writer, number), self._pour(far_reader, writer, number))
        finally:
            writer.close()

    async def _pour(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    await asyncio.sleep(self.delay_s)
                    if self.frozen or number <= self._forgotten:
                        await asyncio.get_running_loop().create_future()
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Self]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for writer in self._writers:
                writer.close()
