"""Developers who keep asking while something goes wrong."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar

from backend.world import World, complete
from foretype_wire.messages import Cancel, Done, Error

__all__ = ["Load", "done", "load", "loaded"]

End = TypeVar("End")


class Load(Generic[End]):
    """What became of their requests so far, in order."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._more = asyncio.Event()

    def ended(self, end: End) -> None:
        self.ends.append(end)
        self._more.set()

    def begin(self, developer: Callable[[int], Awaitable[None]], count: int) -> None:
        async def run(number: int) -> None:
            try:
                await developer(number)
            finally:
                self._more.set()

        self._tasks = [asyncio.create_task(run(number)) for number in range(count)]

    async def more(self, count: int = 10, *, good: Callable[[End], bool] = lambda _: True) -> None:
        """Wait until so many more requests have ended as wanted. Fails with the first developer who does."""
        begin = len(self.ends)
        async with asyncio.timeout(60):
            while sum(map(good, self.ends[begin:])) < count:
                for task in self._tasks:
                    if task.done():
                        task.result()
                self._more.clear()
                await self._more.wait()

    async def end(self) -> None:
        """The developers leave in the middle of what they asked."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


@contextlib.asynccontextmanager
async def load(developer: Callable[[Load[End], int], Awaitable[None]], count: int = 4) -> AsyncGenerator[Load[End]]:
    """So many at once, while the block runs; each is given the load, to tell how its requests ended, and its number."""
    made = Load[End]()
    made.begin(lambda number: developer(made, number), count)
    try:
        yield made
    finally:
        await made.end()


@contextlib.asynccontextmanager
async def loaded(world: World, *, every_s: float = 0.0, **options: Any) -> AsyncGenerator[Load[Done | Error]]:
    """Four developers on streams of their own ask one request after the other, each `every_s` at the most, and cancel every fifth."""

    async def developer(told: Load[Done | Error], number: int) -> None:
        chance, loop = random.Random(number), asyncio.get_running_loop()
        begin_s = loop.time()
        async with world.peer(**options) as peer:
            for at in range(1_000_000):
                await peer.send(complete(f"r{at}"))
                if chance.random() < 0.2:
                    await peer.send(Cancel(id=f"r{at}"))
                while not isinstance(message := await peer.receive(), Done | Error):
                    pass
                told.ended(message)
                begin_s = max(begin_s + every_s, loop.time())
                await asyncio.sleep(begin_s - loop.time())

    async with load(developer) as made:
        yield made


def done(end: Done | Error) -> bool:
    return isinstance(end, Done)
